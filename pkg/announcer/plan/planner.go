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

	nodes      []string // those that tenancy and favourites are of
	tenancy    *tenancy
	favourites []*election.Favourites // by place of the address in tenancy, nil without an election
}

// Decide returns Decide(s), and prepares what Peerings returns. Verdicts of
// passes share memory.
func (p *Planner) Decide(s Snapshot) []Verdict {
	if p.verdicts != nil && sameWorld(p.last, s) {
		return p.verdicts
	}
	v := p.view(s)
	verdicts := v.cases()
	favourites := p.follow(v, verdicts)
	inParallel(len(verdicts), func(i int) {
		favourites[i].bring(verdicts[i].Address)
		v.elect(&verdicts[i], favourites[i].Favourites)
	})
	v.nameLinks(verdicts)
	p.nodes, p.tenancy = v.names, v.tenancy
	p.last, p.verdicts, p.peerings = s, verdicts, v.peerings(s)
	return p.verdicts
}

// view returns newView(s, Ranked), with the tenancy of the last pass if it is
// the same.
func (p *Planner) view(s Snapshot) *view {
	v := newEmptyView(s, Ranked)
	v.tenancy = p.tenancy
	if p.tenancy == nil || !sameServices(p.last, s) || !slices.Equal(p.nodes, v.names) {
		v.tenancy = v.newTenancy(s.Services)
	}
	return v
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
func (p *Planner) follow(v *view, cases []Verdict) []favourites {
	var changed *election.Renumbering
	if !slices.Equal(p.nodes, v.names) {
		r := election.Renumber(p.nodes, v.names)
		changed = &r
	}
	fresh := election.Renumber(nil, v.names)
	known := p.known(v.addresses)
	out := make([]favourites, len(cases))
	for i := range cases {
		switch {
		case cases[i].Reason != "":
			known[i] = nil
		case known[i] == nil:
			known[i] = &election.Favourites{}
			out[i] = favourites{known[i], &fresh}
		default:
			out[i] = favourites{known[i], changed}
		}
	}
	p.favourites = known
	return out
}

// known returns the favourites for some addresses, sorted, by their place; nil
// for those that have none.
func (p *Planner) known(addresses []netip.Addr) []*election.Favourites {
	out := make([]*election.Favourites, len(addresses))
	j := 0
	for i, address := range addresses {
		for j < len(p.favourites) && p.tenancy.addresses[j].Less(address) {
			j++
		}
		if j < len(p.favourites) && p.tenancy.addresses[j] == address {
			out[i] = p.favourites[j]
		}
	}
	return out
}

// sameWorld tells whether two snapshots are known to decide alike. A source
// hands out the same list as long as nothing in it has changed, so the long
// ones need not be read.
func sameWorld(a, b Snapshot) bool {
	if !sameServices(a, b) || !sameList(a.Nodes, b.Nodes) {
		return false
	}
	for _, s := range []*Snapshot{&a, &b} {
		s.Services, s.Nodes, s.Config = nil, nil, config.Config{}
	}
	return reflect.DeepEqual(a, b)
}

// sameServices tells whether two snapshots have the same Services and documents.
func sameServices(a, b Snapshot) bool {
	return a.Config.Hash != "" && a.Config.Hash == b.Config.Hash && sameList(a.Services, b.Services)
}

// sameList tells whether two lists are one in memory.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
