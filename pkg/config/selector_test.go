package config_test

import (
	"fmt"
	"testing"
)

// A selector in its three forms, and which labels it matches.
func TestSelectorMatchesIfAnyOfTheListDoes(t *testing.T) {
	web, edge, none := map[string]string{"tier": "web"}, map[string]string{"team": "edge"}, map[string]string(nil)
	for selector, want := range map[string][3]bool{
		`""`:                       {true, true, true},
		`"tier in (web, db)"`:      {true, false, false},
		`["tier=web"]`:             {true, false, false},
		`["tier=web","team=edge"]`: {true, true, false},
		`"!tier"`:                  {false, true, true},
		`"tier=web,team=edge"`:     {false, false, false},
	} {
		c := load(t, head+fmt.Sprintf("pools: [{addresses: [192.0.2.1], serviceSelector: %s}]\n", selector))
		s := c.Pools[0].ServiceSelector
		if got := [3]bool{s.Matches(web), s.Matches(edge), s.Matches(none)}; got != want {
			t.Errorf("%s: got %v, want %v", selector, got, want)
		}
	}
}
