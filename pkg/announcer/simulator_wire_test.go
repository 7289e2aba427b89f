package announcer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// The simulated nodes' gossip and passes, the wire between them, and what must hold.

// publish gossips what a node says of itself now.
func (s *simulation) publish(n *simNode) {
	n.version++
	n.changed = true
	said, version, life := n.Member, n.version, n.life
	for _, o := range s.nodes {
		if o.group != n.group {
			continue
		}
		s.after(0, gossipLag, func() {
			if n.alive && n.life == life && o.group == n.group {
				s.learn(o, n, said, version)
			}
		})
	}
}

// learn tells n what o has said of itself. If n had taken o for dead, both
// count that as a return.
func (s *simulation) learn(n, o *simNode, said plan.Member, version int) {
	if !n.alive || n == o || n.versions[o.Name] >= version && n.members[o.Name].Name != "" {
		return
	}
	_, known := n.members[o.Name]
	if !known && !said.Passive {
		n.returns++ // a stranger
	}
	if !known && n.lives[o.Name] == o.life {
		n.returns++
		s.after(0, gossipLag, func() { o.returns, o.changed = o.returns+1, true })
	}
	n.members[o.Name], n.versions[o.Name], n.lives[o.Name], n.changed = said, version, o.life, true
}

func (n *simNode) forget(name string) {
	if _, known := n.members[name]; known {
		delete(n.members, name)
		n.changed = true
	}
}

func (n *simNode) snapshot(c config.Config) plan.Snapshot {
	s := plan.Snapshot{
		Node: n.Name, Config: c, Services: n.seen.services, Nodes: n.seen.nodes,
		Links: n.Links, Returns: n.returns, Members: []plan.Member{n.Member},
	}
	for _, name := range slices.Sorted(maps.Keys(n.members)) {
		s.Members = append(s.Members, n.members[name])
	}
	return s
}

// pass is what the loop and a speaker do.
func (s *simulation) pass(n *simNode) {
	if !n.alive {
		return
	}
	for address, a := range n.answers {
		if a.yieldUntil > 0 && a.yieldUntil <= s.now {
			delete(n.answers, address)
			s.moved = true
		}
	}
	s.activate(n)
	if !n.changed || n.Passive {
		return
	}
	s.obey(n)
	n.changed = false
	snapshot := n.snapshot(s.config)
	next := map[netip.Addr]answer{}
	for _, a := range plan.Announcements(n.planner.Decide(snapshot), snapshot) {
		was, answers := n.answers[a.Address]
		switch {
		case !a.Links[0].Up: // then all are down
		case !a.Yield:
			next[a.Address] = answer{}
			if !answers || was.yieldUntil > 0 || n.repeated != a.Returns {
				s.announce(n, a.Address)
			}
		case answers && was.yieldUntil == 0:
			next[a.Address] = answer{s.now + yieldLimit}
		case answers:
			next[a.Address] = was
		}
	}
	n.answers, n.repeated, s.moved = next, n.returns, true
}

// obey makes a node say that it drains when its Node object wants it to.
func (s *simulation) obey(n *simNode) {
	drains := n.leaving || plan.Leaving(n.snapshot(s.config))
	if n.Draining != drains {
		n.Draining = drains
		s.publish(n)
	}
}

// annotate sets or clears the drain annotation. What drains so goes on living.
func (s *simulation) annotate(n *simNode) {
	i := slices.IndexFunc(s.objects.nodes, func(o plan.Node) bool { return o.Name == n.Name })
	served := s.answered()
	s.change(func(o *objects) { o.nodes[i].Drain = !o.nodes[i].Drain })
	s.event("drain annotation of %s: %t", n.Name, s.objects.nodes[i].Drain)
	s.served = served
}

// answered returns what some node announces when all know all.
func (s *simulation) answered() []netip.Addr {
	var out []netip.Addr
	for _, v := range plan.Decide(s.truth(0)) {
		if heard(v) {
			out = append(out, v.Address)
		}
	}
	return out
}

func (s *simulation) parts() [2][]string {
	var out [2][]string
	for _, n := range s.nodes {
		out[n.group] = append(out[n.group], n.Name)
	}
	return out
}

// announce tells the wire that n has taken an address, several times.
func (s *simulation) announce(n *simNode, address netip.Addr) {
	life := n.life
	for _, wait := range burst {
		s.after(wait, wait, func() {
			if a, ok := n.answers[address]; ok && a.yieldUntil == 0 && n.life == life {
				s.hear(n, address)
			}
		})
	}
}

// hear is what an announcement does: who yields the address falls silent, and
// clients learn the MAC.
func (s *simulation) hear(n *simNode, address netip.Addr) {
	for _, c := range s.clients {
		if c.group == n.group {
			c.macs[address] = n.Name
		}
	}
	for _, o := range s.nodes {
		s.after(0, wireLag, func() {
			if o.alive && o != n && o.group == n.group && o.answers[address].yieldUntil > 0 {
				delete(o.answers, address)
				s.moved = true
			}
		})
	}
}

// answerers returns who answers in a part of the network.
func (s *simulation) answerers(group int) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for _, n := range s.nodes {
		for address := range n.answers {
			if n.group == group {
				out[address] = append(out[address], n.Name)
			}
		}
	}
	return out
}

func (s *simulation) check() string {
	for group := range s.groups {
		answerers := s.answerers(group)
		for _, n := range s.nodes {
			if n.Passive && len(n.answers) > 0 {
				return n.Name + " answers though it is passive"
			}
		}
		if s.now-s.lastEvent >= settled {
			if fault := s.checkRest(group, answerers); fault != "" {
				return fault
			}
		}
		for _, address := range s.served {
			if len(answerers[address]) == 0 {
				return fmt.Sprintf("nobody answers for %s during a planned move", address)
			}
		}
	}
	return ""
}

// checkRest compares with what one who knows everything would decide.
func (s *simulation) checkRest(group int, answerers map[netip.Addr][]string) string {
	for _, v := range plan.Decide(s.truth(group)) {
		var want []string
		if heard(v) {
			want = []string{v.Owner}
		}
		if got := answerers[v.Address]; !slices.Equal(got, want) {
			return fmt.Sprintf("%v answer for %s in part %d, want %v", got, v.Address, group, want)
		}
		if fault := s.checkClients(group, v); fault != "" {
			return fault
		}
	}
	return ""
}

// heard tells whether the address has an owner that can answer.
func heard(v plan.Verdict) bool {
	return v.Owner != "" && v.Behind[v.Owner] != plan.LinkDown
}

// checkClients looks for clients that were left with a wrong MAC. A node that
// acts on old news of objects or links may claim an address for a moment,
// behind the back of the owner. That is for the speaker to notice, and so it
// is left out here, except that a heal must put everything right.
func (s *simulation) checkClients(group int, v plan.Verdict) string {
	for i, c := range s.clients {
		mac := c.macs[v.Address]
		switch {
		case c.group != group:
		case !s.lives(mac, group):
			delete(c.macs, v.Address) // in vain, so it asks again
		case (s.healed || s.kinds < happenings) && heard(v) && mac != v.Owner:
			return fmt.Sprintf("client %d sends packets for %s to %s, the owner is %s", i, v.Address, mac, v.Owner)
		}
	}
	return ""
}

// lives tells whether a node is there to take packets.
func (s *simulation) lives(name string, group int) bool {
	return slices.ContainsFunc(s.nodes, func(n *simNode) bool {
		return n.Name == name && n.alive && n.group == group && n.Links[0].Up
	})
}

func (s *simulation) truth(group int) plan.Snapshot {
	truth := plan.Snapshot{Config: s.config, Services: s.objects.services, Nodes: s.objects.nodes}
	for _, n := range s.nodes {
		if n.alive && n.group == group {
			truth.Members = append(truth.Members, n.Member)
		}
	}
	return truth
}
