package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Herald is a node as far as telling routers of an address is concerned.
type Herald struct {
	Node   string
	Peers  []string // that it tells, in the order of the document
	Reason Reason   // why it tells none; empty if it tells one
}

// Heralds returns what each node that is known tells routers of an address, by
// name. It is empty if no node may: no Service on the address has a usable
// endpoint and is selected by an advertisement by BGP. Nodes with the same view
// say the same. A node that is about to leave counts as one that has left.
func Heralds(s Snapshot, address netip.Addr) []Herald {
	if len(s.Config.BGP.Peers) == 0 {
		return nil
	}
	s.Services = slices.DeleteFunc(slices.Clone(s.Services), func(svc Service) bool {
		return !slices.Contains(svc.Addresses, address)
	})
	v := newView(s, 0)
	everywhere := make([]bool, len(s.Config.Advertisements))
	for i, a := range s.Config.Advertisements {
		everywhere[i] = a.BGP != nil
	}
	if len(v.claims(address, everywhere)) == 0 {
		return nil
	}
	out := make([]Herald, len(v.nodes))
	for place := range v.nodes {
		v.self = place
		out[place] = v.herald(address)
	}
	return out
}

// Routed returns which nodes tell routers of each address that any tells of,
// sorted by name, as Heralds does.
func Routed(s Snapshot) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	if len(s.Config.BGP.Peers) == 0 {
		return out
	}
	v := newView(s, 0)
	for place := range v.nodes {
		v.self = place
		voice, ok := v.nodes[place].voice()
		if !ok {
			continue
		}
		for _, a := range v.advertised(voice) {
			if len(v.hearers(a)) > 0 {
				out[a.address] = append(out[a.address], v.names[place])
			}
		}
	}
	return out
}

// herald is what the node at v.self tells of an address that some node may
// tell of.
func (v *view) herald(address netip.Addr) Herald {
	h := Herald{Node: v.names[v.self]}
	self := &v.nodes[v.self]
	voice, ok := self.voice()
	if !ok {
		h.Reason = self.fault
		return h
	}
	claims := v.claims(address, v.selectedHere())
	if len(claims) == 0 {
		h.Reason = NotSelected
		return h
	}
	if claims = v.served(address, claims, voice); len(claims) == 0 {
		h.Reason = cmp.Or(self.member.Unfit, NoLocalEndpoint)
		return h
	}
	if h.Peers = v.hearers(advertised{address: address, claims: claims}); len(h.Peers) == 0 {
		h.Reason = NoPeer
	}
	return h
}

// hearers names the peers that the node at v.self tells of an address.
func (v *view) hearers(a advertised) []string {
	var out []string
	labels := v.nodes[v.self].labels()
	for _, p := range v.config.BGP.Peers {
		if p.NodeSelector.Matches(labels) && slices.Contains(p.Families, config.FamilyOf(a.address)) && v.concerns(p, a) {
			out = append(out, p.Name)
		}
	}
	return out
}

// concerns tells whether an advertisement that selects an address is for a peer.
func (v *view) concerns(p config.Peer, a advertised) bool {
	return slices.ContainsFunc(a.claims, func(c claim) bool {
		return slices.ContainsFunc(c.advertisements, func(i int) bool { return isFor(v.config.Advertisements[i], p) })
	})
}

// isFor tells whether a peer is told of what an advertisement selects.
func isFor(a config.Advertisement, p config.Peer) bool {
	return a.BGP != nil && (len(a.BGP.Peers) == 0 || slices.Contains(a.BGP.Peers, p.Name))
}
