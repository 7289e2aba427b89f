package plan

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Planner decides as Decide does, and remembers what most passes have in common
// with the one before: so a pass in a large cluster in which one node came or
// went costs a fraction. What it remembers changes no decision. The zero value
// is ready; it is for one goroutine at a time.
type Planner struct {
	last     Snapshot
	verdicts []Verdict
	peerings []Peering

	nodes      []string // those that the favourites are of
	favourites map[netip.Addr]*election.Favourites
}

// Decide returns Decide(s), and prepares what Peerings returns. Verdicts of
// passes share memory.
func (p *Planner) Decide(s Snapshot) []Verdict {
	if p.verdicts != nil && sameWorld(p.last, s) {
		return p.verdicts
	}
	v := newView(s, Ranked)
	cases := v.cases()
	favourites := p.follow(v.names, cases)
	inParallel(len(cases), func(i int) {
		favourites[i].bring(cases[i].Address)
		cases[i].elect(v, favourites[i].Favourites)
	})
	p.last, p.verdicts, p.peerings = s, v.verdicts(cases), v.peerings(s)
	return p.verdicts
}

// Peerings returns what the function of that name says of the snapshot that
// Decide has got last. Those of passes share memory.
func (p *Planner) Peerings() []Peering { return p.peerings }

// favourites of an address that still have to follow the nodes.
type favourites struct {
	*election.Favourites
	news *election.Renumbering // nil: nothing has changed
}

func (f favourites) bring(address netip.Addr) {
	if f.news != nil {
		f.Follow(*f.news, address)
	}
}

// follow returns the favourites for all cases with an election, and forgets
// those of other addresses.
func (p *Planner) follow(nodes []string, cases []verdict) []favourites {
	var changed *election.Renumbering
	if !slices.Equal(p.nodes, nodes) {
		r := election.Renumber(p.nodes, nodes)
		changed = &r
	}
	fresh := election.Renumber(nil, nodes)
	next := make(map[netip.Addr]*election.Favourites, len(cases))
	out := make([]favourites, len(cases))
	for i := range cases {
		if cases[i].Reason != "" {
			continue
		}
		address := cases[i].Address
		known, ok := p.favourites[address]
		out[i] = favourites{known, changed}
		if !ok {
			out[i] = favourites{&election.Favourites{}, &fresh}
		}
		next[address] = out[i].Favourites
	}
	p.nodes, p.favourites = nodes, next
	return out
}

// sameWorld tells whether two snapshots are known to decide alike. A source
// hands out the same list as long as nothing in it has changed, so the long
// ones need not be read.
func sameWorld(a, b Snapshot) bool {
	same := a.Config.Hash != "" && a.Config.Hash == b.Config.Hash &&
		sameList(a.Services, b.Services) && sameList(a.Nodes, b.Nodes)
	if !same {
		return false
	}
	for _, s := range []*Snapshot{&a, &b} {
		s.Services, s.Nodes, s.Config = nil, nil, config.Config{}
	}
	return reflect.DeepEqual(a, b)
}

// sameList tells whether two lists are one in memory.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
