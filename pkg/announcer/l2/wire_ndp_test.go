package l2

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// newPair6 is newPair for IPv6.
func newPair6(t testing.TB) pair {
	t.Helper()
	p := pair{node: newHost(t, "node"), client: newHost(t, "client")}
	cable(p.node, "eth0", p.client, "eth0")
	p.node.sysctl("net/ipv6/conf/all/forwarding", "1") // as on every node
	p.node.address("eth0", "2001:db8::1/64")
	p.client.address("eth0", "2001:db8::c1/64")
	p.speaker = p.node.speaker()
	p.station = newStation(p.client, "eth0", clientIP6, etherTypeIPv6)
	return p
}

// ndps returns the solicitations and advertisements heard so far.
func (s *station) ndps() []ndpPacket {
	var out []ndpPacket
	for _, f := range s.all() {
		if p, cause := parseNDP(f.frame); cause == accepted {
			out = append(out, p)
		}
	}
	return out
}

// adverts returns the advertisements of an address by a MAC, those to this
// station or those to all.
func (s *station) adverts(a netip.Addr, by mac, toAll bool) []ndpPacket {
	var out []ndpPacket
	for _, p := range s.ndps() {
		if p.kind == neighborAdvertisement && p.target == a && p.option == by && p.src == by && p.dst.group() == toAll {
			out = append(out, p)
		}
	}
	return out
}

// answered returns the advertisements of an address to this station by whomever.
func (s *station) answered(a netip.Addr) []ndpPacket {
	var out []ndpPacket
	for _, p := range s.ndps() {
		if p.kind == neighborAdvertisement && p.target == a && p.dst == s.mac {
			out = append(out, p)
		}
	}
	return out
}

func (s *station) solicitation(a netip.Addr) ndpPacket {
	p := solicits(a)
	p.src, p.option, p.sourceIP = s.mac, s.mac, s.ip
	return p
}

func (s *station) solicit(a netip.Addr) {
	p := s.solicitation(a)
	s.send(p.appendTo(nil))
}

// ndping solicits an address until it is answered, and returns by which MAC.
func (s *station) ndping(a netip.Addr) mac {
	s.host.t.Helper()
	before := len(s.answered(a))
	s.asks(a, func() { s.solicit(a) }, func() bool { return len(s.answered(a)) > before })
	return s.answered(a)[before].option
}

// A router that checks by unicast whether the address is still there keeps its
// entry: it goes from PROBE to REACHABLE, from a global and from a link-local
// source.
func TestB096UnicastReachabilityProbesAreAnswered(t *testing.T) {
	t.Parallel()
	p := newPair6(t)
	node := p.node.mac("eth0")
	set(t, p.speaker, p.own(vip6))
	p.client.sysctl("net/ipv6/neigh/eth0/delay_first_probe_time", "1")
	talk := newTalker(p.client)
	talk.resolves("eth0", vip6, node)
	heard := len(p.station.adverts(vip6, node, false))
	p.client.must(p.client.nl.NeighSet(&netlink.Neigh{
		LinkIndex: p.client.byName("eth0").Attrs().Index, Family: netlink.FAMILY_V6,
		IP: vip6.AsSlice(), HardwareAddr: node[:], State: netlink.NUD_STALE,
	}))
	states := map[int]bool{}
	p.client.eventually("REACHABLE after a unicast probe", func() bool {
		talk.talkTo(vip6)
		got, state := p.client.neighbour("eth0", vip6)
		states[state] = true
		return got == node && state == netlink.NUD_REACHABLE && len(p.station.adverts(vip6, node, false)) > heard
	})
	if states[netlink.NUD_FAILED] || states[netlink.NUD_INCOMPLETE] {
		t.Errorf("the entry went through %v", states)
	}

	// Both kinds of source, each ten times, without the help of the kernel.
	for _, source := range []netip.Addr{clientIP6, addr("fe80::c1"), addr("2001:db8:77::1")} {
		q := p.station.solicitation(vip6)
		q.dst, q.destIP, q.sourceIP = node, vip6, source
		answers := func() int {
			n := 0
			for _, a := range p.station.adverts(vip6, node, false) {
				if a.destIP == source && a.flags == solicited|override && a.sourceIP == vip6 {
					n++
				}
			}
			return n
		}
		before := answers()
		for range 10 {
			p.station.send(q.appendTo(nil))
		}
		eventually(t, fmt.Sprintf("ten answers to %s", source), func() bool { return answers() >= before+10 })
	}
}

// A client with a REACHABLE entry follows a fail-over by the announcement alone.
func TestB099EntryFollowsAFailOver(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	n1, n2, client := newHost(t, "n1"), newHost(t, "n2"), newHost(t, "client")
	for _, h := range []*host{n1, n2, client} {
		sw.plug(h, "eth0")
	}
	client.address("eth0", "2001:db8::c1/64")
	listener := newStation(client, "eth0", clientIP6, etherTypeIPv6)
	s1, s2 := n1.speaker(), n2.speaker()
	set(t, s1, own(vip6, n1.link("eth0")))
	newTalker(client).resolves("eth0", vip6, n1.mac("eth0"))
	s1.Close()
	winner := n2.mac("eth0")
	start := time.Now()
	set(t, s2, own(vip6, n2.link("eth0")))
	client.eventually("the entry to change", func() bool {
		got, _ := client.neighbour("eth0", vip6)
		return got == winner
	})
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("took %s, want less than 3 s (twice that here)", took)
	}
	eventually(t, "announcements", func() bool { return len(listener.adverts(vip6, winner, true)) >= 2 })
	want := ndpPacket{
		dst: groupMAC(allNodes), src: winner, sourceIP: vip6, destIP: allNodes,
		kind: neighborAdvertisement, flags: override, target: vip6, option: winner,
	}
	for _, a := range listener.adverts(vip6, winner, true) {
		if a != want {
			t.Errorf("announced %+v, want %+v", a, want)
		}
	}
}

// A link without any address, not even a link-local one, answers both families.
func TestB101LinkWithoutAnyAddress(t *testing.T) {
	t.Parallel()
	node, client := newHost(t, "node"), newHost(t, "client")
	node.sysctl("net/ipv6/conf/default/addr_gen_mode", "1")
	cable(node, "eth1", client, "eth0")
	client.address("eth0", "192.0.2.200/24")
	client.address("eth0", "2001:db8::c1/64")
	before, err := node.nl.AddrList(node.byName("eth1"), netlink.FAMILY_ALL)
	node.must(err)
	if len(before) != 0 {
		t.Fatalf("the link has addresses: %v", before)
	}
	s := node.speaker()
	set(t, s, own(vip, node.link("eth1")), own(vip6, node.link("eth1")))
	talk := newTalker(client)
	talk.resolves("eth0", vip, node.mac("eth1"))
	talk.resolves("eth0", vip6, node.mac("eth1"))
}

// IPv6 is switched off on the link: the kernel joins nothing, we still answer.
func TestLinkWithIPv6SwitchedOff(t *testing.T) {
	t.Parallel()
	p := newPair6(t)
	p.node.sysctl("net/ipv6/conf/eth0/disable_ipv6", "1")
	if err := p.speaker.Set(t.Context(), []plan.Announcement{p.own(vip6)}); err != nil {
		t.Logf("Set: %v", err)
	}
	newTalker(p.client).resolves("eth0", vip6, p.node.mac("eth0"))
}

// Each kind of solicitation, unusual but legal or plain garbage, ten times.
func TestUnusualSolicitations(t *testing.T) {
	t.Parallel()
	p := newPair6(t)
	node := p.node.mac("eth0")
	sentinel := addr("2001:db8::11")
	set(t, p.speaker, p.own(vip6), p.own(sentinel))
	edit := func(f func(q *ndpPacket)) []byte {
		q := p.station.solicitation(vip6)
		f(&q)
		return q.appendTo(nil)
	}
	base := edit(func(*ndpPacket) {})
	patch := func(at int, v byte) []byte {
		b := append([]byte{}, base...)
		b[at] = v
		return seal(b)
	}
	broken := append([]byte{}, base...)
	broken[icmpSumAt] ^= 0xff
	for _, c := range []struct {
		name  string
		frame []byte
		want  int
	}{
		{"multicast", base, 10},
		{"priority tag, VID 0", vlan(0, base), 10},
		{"to all nodes", edit(func(q *ndpPacket) { q.dst, q.destIP = groupMAC(allNodes), allNodes }), 10},
		{"foreign VLAN", vlan(5, base), 0},
		{"hop limit 254", patch(hopLimitAt, 254), 0},
		{"hop limit 64", patch(hopLimitAt, 64), 0},
		{"wrong checksum", broken, 0},
		{"code 1", patch(icmpCodeAt, 1), 0},
		{"truncated", base[:70], 0},
		{"option without length", patch(optionsAt+1, 0), 0},
		{"another address in the group", edit(func(q *ndpPacket) { q.target = addr("2001:db8:1::10") }), 0},
		{"to another station", edit(func(q *ndpPacket) { q.dst = winnerMAC }), 0},
	} {
		before := len(p.station.adverts(vip6, node, false))
		for range 10 {
			p.station.send(c.frame)
		}
		p.station.ndping(sentinel)
		if got := len(p.station.adverts(vip6, node, false)) - before; got != c.want {
			t.Errorf("%s: %d answers, want %d", c.name, got, c.want)
		}
	}
	if n := len(p.station.answered(addr("2001:db8:1::10"))); n != 0 {
		t.Errorf("%d answers for another address", n)
	}
}

// A host that gives itself our address finds out that it is taken.
func TestDuplicateAddressDetectionFindsUs(t *testing.T) {
	t.Parallel()
	p := newPair6(t)
	set(t, p.speaker, p.own(vip6))
	p.station.ndping(vip6)
	p.client.sysctl("net/ipv6/conf/eth0/accept_dad", "1")
	p.client.sysctl("net/ipv6/conf/all/accept_dad", "1")
	a, err := netlink.ParseAddr(vip6.String() + "/64")
	p.client.must(err)
	p.client.must(p.client.nl.AddrAdd(p.client.byName("eth0"), a))
	p.client.eventually("the kernel to find the duplicate", func() bool {
		all, err := p.client.nl.AddrList(p.client.byName("eth0"), netlink.FAMILY_V6)
		p.client.must(err)
		for _, x := range all {
			if x.IP.Equal(a.IP) && x.Flags&unix.IFA_F_DADFAILED != 0 {
				return true
			}
		}
		return false
	})
}

// A planned move by NDP: every solicitation is answered by somebody, in the end
// by the winner.
func TestHandOverLosesNoSolicitationOnTheWire(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	n1, n2, client := newHost(t, "n1"), newHost(t, "n2"), newHost(t, "client")
	for _, h := range []*host{n1, n2, client} {
		sw.plug(h, "eth0")
	}
	st := newStation(client, "eth0", clientIP6, etherTypeIPv6)
	speakers, links := []*Speaker{n1.speaker(), n2.speaker()}, []plan.Link{n1.link("eth0"), n2.link("eth0")}
	set(t, speakers[0], own(vip6, links[0]))
	st.ndping(vip6)
	for move := range 4 {
		loser, winner := move%2, (move+1)%2
		before, asked := len(st.answered(vip6)), 0
		ask := func(n int) {
			for range n {
				st.solicit(vip6)
				asked++
				time.Sleep(time.Millisecond)
			}
		}
		ask(20)
		set(t, speakers[loser], yielded(own(vip6, links[loser]), n1.mac("eth0"), n2.mac("eth0")))
		ask(50)
		set(t, speakers[winner], own(vip6, links[winner]))
		ask(50)
		eventually(t, "the loser to end", func() bool { return len(speakers[loser].Answering()) == 0 })
		ask(20)
		eventually(t, "an answer to each solicitation", func() bool { return len(st.answered(vip6))-before >= asked })
		if got := st.ndping(vip6); got.String() != links[winner].MAC {
			t.Errorf("move %d: answered by %s, want the winner", move, got)
		}
	}
}
