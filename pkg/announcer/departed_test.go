package announcer

import (
	"slices"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

func TestDepartedMembersAreKnownWhileTheirNodeExists(t *testing.T) {
	members := func(names ...string) (all []plan.Member) {
		for _, n := range names {
			all = append(all, plan.Member{Name: n})
		}
		return all
	}
	nodes := func(names ...string) (all []plan.Node) {
		for _, n := range names {
			all = append(all, plan.Node{Name: n})
		}
		return all
	}
	s := plan.Snapshot{Members: members("a", "b", "c"), Nodes: nodes("a", "b", "c")}
	for _, step := range []struct {
		what    string
		members []plan.Member
		nodes   []plan.Node
		want    []string
	}{
		{"b dies", members("a", "c"), nodes("a", "b", "c"), []string{"b"}},
		{"nothing happens", members("a", "c"), nodes("a", "b", "c"), []string{"b"}},
		{"c dies too", members("a"), nodes("a", "b", "c"), []string{"b", "c"}},
		{"b returns", members("a", "b"), nodes("a", "b", "c"), []string{"c"}},
		{"the Node of c is deleted", members("a", "b"), nodes("a", "b"), nil},
	} {
		next := plan.Snapshot{Members: step.members, Nodes: step.nodes}
		next.Departed = departed(s, next)
		var got []string
		for _, m := range next.Departed {
			got = append(got, m.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: departed are %v, want %v", step.what, got, step.want)
		}
		s = next
	}
}
