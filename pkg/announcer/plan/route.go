package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Peering is what this node is to do about one router: have a session with it,
// and advertise routes on it. Peerings share memory: whoever gets one must not
// change it.
type Peering struct {
	Backend config.Backend // that has the session
	ASN     uint32         // the document's bgp.localASN, which may not be the session's; 0: it has none
	Peer    config.Peer
	Routes  []Route // sorted by prefix

	// Leaving is why this node is about to stop advertising anything, empty if
	// it is not. The routes are those that it still serves: routers are asked to
	// avoid them, and after a pause they are withdrawn and the session is closed.
	Leaving Reason
	Pause   time.Duration
}

// Route is one prefix as a router is told of it.
type Route struct {
	Prefix      netip.Prefix
	Communities []config.Community // sorted, each once
	LocalPref   uint32             // for internal peers

	// Services hold an address in the prefix that this node advertises;
	// Advertisements select one of them for this peer. Both are sorted.
	Services       []string
	Advertisements []string

	// Conflict names the advertisements whose local preference lost against
	// that of one which stands before them in the document.
	Conflict []string
}

// Same tells whether a router is told the same by both.
func (r Route) Same(other Route) bool {
	return r.Prefix == other.Prefix && r.LocalPref == other.LocalPref && slices.Equal(r.Communities, other.Communities)
}

// defaultLocalPref is the local preference of a route for which nobody asks
// for another.
const defaultLocalPref = 100

// Peerings returns what s.Node is to do about routers, in the order of the
// document. There is no election: a node advertises whatever it passes the
// filters for. That it is passive for the others, whom it does not know yet,
// does not count: a restarting node would withdraw what its routers have kept.
func Peerings(s Snapshot) []Peering {
	if len(s.Config.BGP.Peers) == 0 {
		return nil // without a look at the Services
	}
	return newView(s, 0).peerings(s)
}

// peerings is Peerings of the snapshot that the view was made of.
func (v *view) peerings(s Snapshot) []Peering {
	if len(s.Config.BGP.Peers) == 0 || v.self < 0 || v.nodes[v.self].object == nil {
		return nil
	}
	fault, leaving := v.advertising(s)
	var local []advertised
	if fault == "" || leaving {
		local = v.advertised(unfitness(s.Self.Unfit))
	}
	var out []Peering
	for _, p := range s.Config.BGP.Peers {
		if !p.NodeSelector.Matches(v.nodes[v.self].labels()) {
			continue
		}
		peering := Peering{Backend: s.Config.BGP.Backend, ASN: s.Config.BGP.LocalASN, Peer: p, Pause: s.Config.BGP.LeavePause, Routes: v.routes(p, local)}
		if leaving {
			peering.Leaving = fault
		}
		out = append(out, peering)
	}
	return out
}

// advertising returns the first filter that this node fails whatever the
// address, empty if none, and whether that leaves it time to leave. That it is
// unfit is none of them: it depends on who else can serve an address.
func (v *view) advertising(s Snapshot) (fault Reason, leaving bool) {
	self := v.nodes[v.self]
	draining := self.member != nil && self.member.Draining
	self.member = &Member{Name: s.Node}
	switch fault = self.filter(v.config.ExcludeLabel); fault {
	case "":
		if draining {
			return Draining, true
		}
	case ExcludeLabel, Tainted, NodeDeleting:
		return fault, true
	}
	return fault, false
}

// advertised is an address that this node serves, and for whom.
type advertised struct {
	address netip.Addr
	pooled  bool // it is in a pool
	claims  []claim
}

// claim is a Service that has an address advertised by this node.
type claim struct {
	holder
	advertisements []int // those that select it and this node, by place in the document
}

// advertised returns what this node serves, sorted by address. The node takes
// itself for as fit as the tier says.
func (v *view) advertised(own tier) []advertised {
	here := v.selectedHere()
	var out []advertised
	for _, address := range v.addresses {
		if claims := v.served(address, v.claims(address, here), own); len(claims) > 0 {
			_, pooled := v.config.PoolOf(address)
			out = append(out, advertised{address, pooled, claims})
		}
	}
	return out
}

// selectedHere says which advertisements by BGP select this node, by place.
func (v *view) selectedHere() []bool {
	here := make([]bool, len(v.config.Advertisements))
	for i, a := range v.config.Advertisements {
		here[i] = a.BGP != nil && a.NodeSelector.Matches(v.nodes[v.self].labels())
	}
	return here
}

// claims returns the Services on an address that may be told to routers, oldest
// first, by those advertisements that are here.
func (v *view) claims(address netip.Addr, here []bool) []claim {
	if v.ban(address) != "" {
		return nil
	}
	pool, _ := v.config.PoolOf(address)
	var claims []claim
	for _, h := range v.held[address].by {
		if h.Deleting || !h.Allocated || !h.usable {
			continue
		}
		if selected := v.selecting(h, pool.Name, here); len(selected) > 0 {
			claims = append(claims, claim{h, selected})
		}
	}
	return claims
}

// served returns the Services on one address that this node may attract
// packets for: all of them, if it can serve them all. If no node can, the
// oldest Service that any node can serve has its nodes advertise the address.
// A node that takes itself for unfit serves what no fitter one does: if all of
// them do, something is wrong with what they judge by.
func (v *view) served(address netip.Addr, claims []claim, own tier) []claim {
	if own == normal && v.serves(claims) {
		return claims // as for nearly all addresses
	}
	for _, t := range v.voices() {
		for _, group := range groups(claims) {
			if own == t && v.serves(group) {
				return group
			}
			if v.othersServe(address, group, t) {
				return nil
			}
		}
	}
	return nil
}

// groups returns those Services on one address that may decide together, in
// the order in which they may: all, then each alone.
func groups(claims []claim) [][]claim {
	if len(claims) < 2 {
		return [][]claim{claims}
	}
	out := [][]claim{claims}
	for i := range claims {
		out = append(out, claims[i:i+1])
	}
	return out
}

// serves tells whether this node has endpoints of all Services that want them
// where the packets arrive.
func (v *view) serves(claims []claim) bool {
	return !slices.ContainsFunc(claims, func(c claim) bool { return c.Local && !contains(c.eligible, v.self) })
}

// othersServe tells whether another node, one of a tier, could tell routers of
// the address for each of some Services. Where that is so, somebody does: that node, or one that
// it holds its peace for by the same rule.
func (v *view) othersServe(address netip.Addr, claims []claim, t tier) bool {
	pool, _ := v.config.PoolOf(address)
	var places []int
	for i, c := range claims {
		could, _ := v.couldTell(c.holder, pool.Name, config.FamilyOf(address))
		if i > 0 {
			could = intersect(places, could)
		}
		places = could
	}
	return slices.ContainsFunc(v.among(places, t), func(place int) bool { return place != v.self })
}

// selecting returns the advertisements for a Service's address in a pool, in
// none if that is empty, among those that are here: by place in the document.
func (v *view) selecting(h holder, pool string, here []bool) []int {
	var out []int
	for i, a := range v.config.Advertisements {
		if here[i] && a.ServiceSelector.Matches(h.Labels) && forPool(a, pool) {
			out = append(out, i)
		}
	}
	return out
}

func forPool(a config.Advertisement, pool string) bool {
	return pool == "" || len(a.Pools) == 0 || slices.Contains(a.Pools, pool)
}

// routes returns what a peer is told, sorted by prefix.
func (v *view) routes(p config.Peer, local []advertised) []Route {
	told := make([]bool, len(v.config.Advertisements))
	for i, a := range v.config.Advertisements {
		told[i] = isFor(a, p)
	}
	drafts := map[netip.Prefix]*draft{}
	for _, a := range local {
		if !slices.Contains(p.Families, config.FamilyOf(a.address)) {
			continue
		}
		for _, c := range a.claims {
			for _, i := range c.advertisements {
				if !told[i] {
					continue
				}
				prefix := prefixOf(a, *v.config.Advertisements[i].BGP)
				if drafts[prefix] == nil {
					drafts[prefix] = &draft{}
				}
				drafts[prefix].add(i, c.key)
			}
		}
	}
	out := make([]Route, 0, len(drafts))
	for prefix, d := range drafts {
		out = append(out, d.route(prefix, v.config.Advertisements))
	}
	slices.SortFunc(out, func(a, b Route) int { return ComparePrefixes(a.Prefix, b.Prefix) })
	return out
}

// ComparePrefixes orders prefixes by address, and shorter ones first.
func ComparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// prefixOf returns the prefix by which an advertisement announces an address.
// One that is in no pool any more has no neighbours that are ours for sure.
func prefixOf(a advertised, how config.BGPAdvertisement) netip.Prefix {
	length := how.Length(config.FamilyOf(a.address))
	if !a.pooled {
		length = a.address.BitLen()
	}
	return netip.PrefixFrom(a.address, length).Masked()
}

// draft is a Route in the making.
type draft struct {
	advertisements []int // by place, may repeat
	services       []string
}

func (d *draft) add(advertisement int, service string) {
	d.advertisements = append(d.advertisements, advertisement)
	if len(d.services) == 0 || d.services[len(d.services)-1] != service {
		d.services = append(d.services, service)
	}
}

// route unites what the advertisements say. Of several local preferences the
// first in the document counts.
func (d *draft) route(prefix netip.Prefix, all []config.Advertisement) Route {
	r := Route{Prefix: prefix, LocalPref: defaultLocalPref, Services: sortedOnce(d.services)}
	chosen := false
	for _, i := range distinctOrdered(d.advertisements) {
		a := all[i]
		r.Advertisements = append(r.Advertisements, a.Name)
		r.Communities = append(r.Communities, a.BGP.Communities...)
		switch pref := a.BGP.LocalPref; {
		case pref == nil:
		case !chosen:
			r.LocalPref, chosen = *pref, true
		case r.LocalPref != *pref:
			r.Conflict = append(r.Conflict, a.Name)
		}
	}
	slices.Sort(r.Advertisements)
	slices.SortFunc(r.Communities, config.Community.Compare)
	r.Communities = slices.Compact(r.Communities)
	return r
}

func sortedOnce(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
