package plan

import (
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// heralds are the nodes that could tell routers of addresses of a family by an
// advertisement, by place, ascending.
type heralds map[config.Family][]int

// newHeralds works them out for each advertisement; those that are not by BGP
// have nil.
func (v *view) newHeralds() []heralds {
	out := make([]heralds, len(v.config.Advertisements))
	if len(v.config.BGP.Peers) == 0 {
		return out
	}
	for i, a := range v.config.Advertisements {
		if a.BGP == nil {
			continue
		}
		out[i] = heralds{}
		for place := range v.nodes {
			n := &v.nodes[place]
			if _, ok := n.voice(); !ok || !a.NodeSelector.Matches(n.labels()) {
				continue
			}
			for _, f := range v.spoken(n, a) {
				out[i][f] = append(out[i][f], place)
			}
		}
	}
	return out
}

// spoken returns the families of the sessions of a node that an advertisement is
// for, each once.
func (v *view) spoken(n *node, a config.Advertisement) []config.Family {
	var out []config.Family
	for _, p := range v.config.BGP.Peers {
		if p.NodeSelector.Matches(n.labels()) && isFor(a, p) {
			out = append(out, p.Families...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// voices are the tiers of nodes that tell routers, in the order in which they
// are asked. Only fit nodes do where there may be some that are not seen.
func (v *view) voices() []tier {
	if v.minority {
		return []tier{normal}
	}
	return []tier{normal, notReady, pathDown}
}

// among returns those of some nodes that speak in a tier.
func (v *view) among(places []int, t tier) []int {
	var out []int
	for _, place := range places {
		if voice, ok := v.nodes[place].voice(); ok && voice == t {
			out = append(out, place)
		}
	}
	return out
}

// speaking returns those of some nodes that speak in the best tier that has any.
func (v *view) speaking(places []int) []int {
	for _, t := range v.voices() {
		if out := v.among(places, t); len(out) > 0 {
			return out
		}
	}
	return nil
}

// couldTell returns the nodes that could tell routers of an address for a
// Service that has it alone, ascending, and says whether any advertisement by
// BGP selects it at all.
func (v *view) couldTell(h holder, pool string, family config.Family) (places []int, selected bool) {
	for i, of := range v.heralds {
		a := v.config.Advertisements[i]
		if of == nil || !a.ServiceSelector.Matches(h.Labels) || !forPool(a, pool) {
			continue
		}
		selected = true
		for _, place := range of[family] {
			if !h.Local || contains(h.eligible, place) {
				places = append(places, place)
			}
		}
	}
	return distinctOrdered(places), selected
}

// tell fills in who tells routers of an address. A Service that only
// advertisements by BGP select has its say there.
func (v *view) tell(d *Verdict, address netip.Addr, holders []holder) {
	if len(v.config.BGP.Peers) == 0 {
		return
	}
	pool, _ := v.config.PoolOf(address)
	var together map[string]int
	local := func(h holder) bool { return h.Local }
	if len(holders) > 1 && slices.ContainsFunc(holders, local) {
		together = v.routedTogether(address)
	}
	for i, h := range holders {
		reason := &d.Holders[i].Reason
		if *reason != Honoured && *reason != NoAdvertisement {
			continue
		}
		places, selected := v.couldTell(h, pool.Name, config.FamilyOf(address))
		nodes := len(v.speaking(places))
		if together != nil {
			nodes = together[h.key]
		}
		switch {
		case nodes > 0:
			if d.Routed == nil {
				d.Routed = map[string]int{}
			}
			d.Routed[h.key] = nodes
			if *reason == NoAdvertisement {
				*reason = OnlyBGP
			}
		case selected && *reason == NoAdvertisement:
			*reason = NoEligibleNode
		}
	}
}

// routedTogether counts, by Service, the nodes that tell routers of an address
// that several Services share. A node that could tell of one of them alone may
// not be able to serve the others.
func (v *view) routedTogether(address netip.Addr) map[string]int {
	out := map[string]int{}
	there := *v
	for place := range v.nodes {
		there.self = place
		voice, ok := v.nodes[place].voice()
		if !ok {
			continue
		}
		for _, c := range there.served(address, there.claims(address, there.selectedHere()), voice) {
			if len(there.hearers(advertised{address: address, claims: []claim{c}})) > 0 {
				out[c.key]++
			}
		}
	}
	return out
}
