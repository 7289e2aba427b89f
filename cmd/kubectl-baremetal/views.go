package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/diagnose"
)

// views takes out of the pages what is to be compared.
func views(all []heard) []diagnose.View {
	var out []diagnose.View
	for _, h := range all {
		v := diagnose.View{Node: h.node, Config: map[string]string{}}
		if h.err != nil {
			v.Why = h.err.Error()
		}
		for _, m := range h.plan.World.Members {
			v.Members = append(v.Members, m.Name)
			v.Config[m.Name] = m.Config
		}
		v.Aside, v.ObserveOnly = aside(h.plan), h.plan.ObserveOnly
		v.ReversePath, v.MTU = settings(h.plan)
		v.Sessions = sessions(h.plan)
		v.Announces = announces(h.plan)
		out = append(out, v)
	}
	return out
}

// announces tells whether a node's announcer answers for any address, or has told
// a router of one. What it is to announce, and does not, does not count.
func announces(p status.Plan) bool {
	return !p.ObserveOnly && (len(p.Answering) > 0 ||
		slices.ContainsFunc(p.BGP, func(b status.BGPSession) bool { return len(b.Advertised) > 0 }))
}

// sessions returns what is wrong with a node's sessions. One that has taken leave
// is as it should be: the node serves nothing.
func sessions(p status.Plan) []diagnose.Session {
	var out []diagnose.Session
	for _, b := range p.BGP {
		s := diagnose.Session{Peer: b.Peer, Down: !slices.Contains([]string{"Established", "Leaving", "Left"}, b.State)}
		switch {
		case s.Down:
			s.Why = cmp.Or(b.Why, b.State)
		case b.State == "Established":
			var wrong []string
			for family, why := range b.Mute {
				wrong = append(wrong, string(family)+": "+why)
			}
			slices.Sort(wrong)
			if b.Why != "" {
				wrong = append([]string{b.Why}, wrong...)
			}
			s.Why = strings.Join(wrong, ", ")
		}
		out = append(out, s)
	}
	return out
}

// aside names the links of a node that it answers ARP on and that have no default
// route. IPv6 has no reverse path filter.
func aside(p status.Plan) []string {
	var out []string
	for _, a := range p.Answering {
		if !a.Address.Is4() {
			continue
		}
		for _, l := range a.Links {
			if !l.Default && !slices.Contains(out, l.Name) {
				out = append(out, l.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// settings returns what counts for each link of rp_filter, and the MTU of the
// one with the Node's address; 0 if the announcer does not say.
func settings(p status.Plan) (reversePath map[string]int, mtu int) {
	reversePath = map[string]int{}
	for _, l := range p.Host {
		if l.ReversePath >= 0 {
			reversePath[l.Name] = l.ReversePath
		}
		if slices.ContainsFunc(p.World.Links, func(known plan.Link) bool { return known.NodeIP && known.Name == l.Name }) {
			mtu = l.MTU
		}
	}
	return reversePath, mtu
}
