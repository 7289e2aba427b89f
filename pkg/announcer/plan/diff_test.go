package plan

import (
	"net/netip"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestDiffSaysWhyAnAddressMoved(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.10")
	verdict := func(edit func(*Verdict)) []Verdict {
		v := Verdict{Address: address, Owner: "n2", Reason: NotOwner, Candidates: []string{"n2", "n1"}, Eligible: 2}
		edit(&v)
		return []Verdict{v}
	}
	same := func(*Verdict) {}
	nobody := func(r Reason) func(*Verdict) {
		return func(v *Verdict) { v.Owner, v.Reason, v.Candidates, v.Eligible = "", r, nil, 0 }
	}
	without := func(r Reason) func(*Verdict) {
		return func(v *Verdict) {
			v.Owner, v.Candidates, v.Eligible, v.Excluded = "n1", []string{"n1"}, 1, []Exclusion{{"n2", r}}
		}
	}
	mine := func(links ...string) func(*Verdict) {
		return func(v *Verdict) {
			v.Reason = Owner
			for _, name := range links {
				v.Links = append(v.Links, Link{Name: name})
			}
		}
	}
	for name, c := range map[string]struct {
		before, after []Verdict
		want          []Change
	}{
		"nothing":            {verdict(same), verdict(same), nil},
		"new":                {nil, verdict(same), []Change{{Address: address, To: "n2"}}},
		"new and mine":       {nil, verdict(mine("eth0")), []Change{{Address: address, To: "n2", Links: []string{"eth0"}}}},
		"new, nobody's":      {nil, verdict(nobody(NoEndpoints)), []Change{{Address: address, Cause: NoEndpoints}}},
		"found somebody":     {verdict(nobody(NoEndpoints)), verdict(same), []Change{{Address: address, To: "n2", Cause: NoEndpoints}}},
		"found nobody":       {verdict(same), verdict(nobody(NoEligibleNode)), []Change{{Address: address, From: "n2", Cause: NoEligibleNode}}},
		"another why not":    {verdict(nobody(NoEndpoints)), verdict(nobody(Deleting)), []Change{{Address: address, Cause: Deleting}}},
		"gone":               {verdict(same), nil, []Change{{Address: address, From: "n2", Cause: Released}}},
		"gone, was nobody's": {verdict(nobody(Deleting)), nil, nil},
		"owner left out":     {verdict(same), verdict(without(Draining)), []Change{{Address: address, From: "n2", To: "n1", Cause: Draining}}},
		"owner unknown": {
			verdict(func(v *Verdict) { v.Owner = "n9" }), verdict(same),
			[]Change{{Address: address, From: "n9", To: "n2", Cause: NoAnnouncer}},
		},
		"better one came": {
			verdict(without(NoAnnouncer)), verdict(same),
			[]Change{{Address: address, From: "n1", To: "n2", Cause: NotOwner}},
		},
		"other links": {
			verdict(mine("eth0")), verdict(mine("eth0", "eth1")),
			[]Change{{Address: address, From: "n2", To: "n2", Cause: LinksChanged, Links: []string{"eth0", "eth1"}}},
		},
		"same links": {verdict(mine("eth0")), verdict(mine("eth0")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(c.want, Diff(c.before, c.after), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReporterIsTheOwnerOrTheFirstThatIsAlive(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.10") // ranking: n2, n3, n1
	members := []Member{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}
	for name, c := range map[string]struct {
		owner   string
		members []Member
		want    string
	}{
		"owner":              {"n1", members, "n1"},
		"nobody announces":   {"", members, "n2"},
		"first is passive":   {"", []Member{{Name: "n1"}, {Name: "n2", Passive: true}, {Name: "n3"}}, "n3"},
		"first is draining":  {"", []Member{{Name: "n1"}, {Name: "n2", Draining: true}, {Name: "n3"}}, "n3"},
		"nobody is there":    {"", nil, ""},
		"all of them passed": {"", []Member{{Name: "n1", Passive: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Reporter(Verdict{Address: address, Owner: c.owner}, c.members); got != c.want {
				t.Errorf("reporter %q, want %q", got, c.want)
			}
		})
	}
}
