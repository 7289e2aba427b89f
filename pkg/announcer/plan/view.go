package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// view is a Snapshot made ready for deciding: what does not depend on an
// address is worked out once, and what many addresses have in common when the
// first of them needs it.
type view struct {
	config         config.Config
	nodes          []node // Node objects and members together, by name
	names          []string
	node           string
	rules          int
	forbidden      bool // to announce anything
	minority       bool // there may be fit nodes that this one does not see
	shown          int  // how many candidates and excluded nodes a Verdict names at most
	self           int  // the place of this announcer's Node among them, -1 if it is not there
	advertisements []advertisement
	heralds        []heralds // by place of the advertisement in the document
	subnets        subnets
	taken          map[netip.Addr]bool // the Nodes' addresses and the reserved ones

	*tenancy

	reaches  map[string]*reach
	grounds  map[string]*ground
	outcomes map[string]*outcome
	parts    map[string]part
	room     []demand // memory for those of one address
}

func newView(s Snapshot, shown int) *view {
	v := newEmptyView(s, shown)
	v.tenancy = v.newTenancy(s.Services)
	return v
}

// newEmptyView returns a view without a tenancy.
func newEmptyView(s Snapshot, shown int) *view {
	v := &view{
		node:     s.Node,
		rules:    rulesOf(s.Members),
		shown:    shown,
		minority: s.Minority(),
		nodes:    newNodes(s),
		config:   s.Config,
		taken:    taken(s),
		reaches:  map[string]*reach{},
		grounds:  map[string]*ground{},
		outcomes: map[string]*outcome{},
		parts:    map[string]part{},
	}
	v.forbidden = v.minority && s.Config.Membership.Quorum == config.QuorumMajority
	v.names = make([]string, len(v.nodes))
	for i := range v.nodes {
		v.names[i] = v.nodes[i].name
	}
	v.self = v.index(s.Node)
	v.subnets = newSubnets(v.nodes)
	v.advertisements = newAdvertisements(s.Config, v.nodes)
	v.heralds = v.newHeralds()
	return v
}

// index returns the place of a node, -1 if it is not known.
func (v *view) index(name string) int {
	i, found := slices.BinarySearchFunc(v.nodes, name, func(n node, name string) int {
		return cmp.Compare(n.name, name)
	})
	if !found {
		return -1
	}
	return i
}

func taken(s Snapshot) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, n := range s.Nodes {
		for _, address := range n.Addresses {
			out[address] = true
		}
	}
	for _, address := range s.Reserved {
		out[address] = true
	}
	return out
}

// holder is a Service with all that does not depend on which of its addresses
// is looked at.
type holder struct {
	*Service
	key      string // namespace/name
	usable   bool   // it has an endpoint that counts
	eligible []int  // policy Local: the nodes whose endpoints count, ascending
	serving  []int  // policy Local: the nodes with any endpoint that serves, ascending
	selected []int  // the advertisements that select it, ascending
}

// tenancy says which Services hold which address. It changes with Services, with
// the configuration, and when a Node is known that was not, or the other way
// round; but not when an announcer comes or goes.
type tenancy struct {
	addresses []netip.Addr // all that Services hold, sorted
	held      map[netip.Addr]held
}

// held is by whom one address is.
type held struct {
	by       []holder // oldest first
	services []string // their keys, sorted
}

func (v *view) newTenancy(services []Service) *tenancy {
	t := &tenancy{held: make(map[netip.Addr]held, len(services))}
	for i := range services {
		h := v.newHolder(&services[i])
		for _, address := range distinct(h.Addresses) {
			t.held[address] = held{by: append(t.held[address].by, h)}
		}
	}
	for address, h := range t.held {
		slices.SortFunc(h.by, byAge)
		t.held[address] = held{h.by, keys(h.by)}
	}
	t.addresses = slices.SortedFunc(maps.Keys(t.held), netip.Addr.Compare)
	return t
}

func (v *view) newHolder(s *Service) holder {
	h := holder{Service: s, key: s.Namespace + "/" + s.Name}
	for i, ad := range v.advertisements {
		if ad.services.Matches(s.Labels) {
			h.selected = append(h.selected, i)
		}
	}
	h.usable = len(s.Endpoints.Ready)+len(s.Endpoints.Terminating) > 0
	if !s.Local {
		// Who has no node can only be reached by forwarding.
		h.usable = h.usable || s.Endpoints.Nodeless
		return h
	}
	counted := s.Endpoints.Ready
	if len(counted) == 0 {
		counted = s.Endpoints.Terminating
	}
	h.eligible = v.indices(counted)
	h.serving = v.indices(s.Endpoints.Ready, s.Endpoints.Terminating)
	return h
}

// indices returns the places of the known among some nodes, ascending.
func (v *view) indices(lists ...[]string) []int {
	var out []int
	for _, names := range lists {
		for _, name := range names {
			if i := v.index(name); i >= 0 {
				out = append(out, i)
			}
		}
	}
	return distinctOrdered(out)
}

func byAge(a, b holder) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.key, b.key))
}

func keys(holders []holder) []string {
	out := make([]string, len(holders))
	for i, h := range holders {
		out[i] = h.key
	}
	slices.Sort(out)
	return out
}

// distinct returns the few addresses of a Service without repetition.
func distinct(addresses []netip.Addr) []netip.Addr {
	if len(addresses) < 2 {
		return addresses
	}
	out := slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
	return slices.Compact(out)
}

func distinctOrdered(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
