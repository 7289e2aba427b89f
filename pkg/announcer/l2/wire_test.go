package l2

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// A client that forgets the entry again and again is answered every time, long
// after the announcements of the take-over.
func TestB084EveryRequestIsAnswered(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		p := newPair(t, f)
		set(t, p.speaker, p.own(f.vip))
		talk := newTalker(p.client)
		stop := time.Now().Add(6 * time.Second)
		asked, node := 0, p.node.mac("eth0")
		for time.Now().Before(stop) {
			p.client.forgetNeighbour("eth0", f.vip)
			talk.resolves("eth0", f.vip, node)
			for range 10 { // another one asks as well
				asked++
				p.station.send(p.station.question(f.vip))
				time.Sleep(2 * time.Millisecond)
			}
		}
		// The kernel of the client asks with the same MAC.
		eventually(t, "an answer to each request", func() bool { return len(p.station.answers(f.vip)) >= asked })
		eventually(t, "as many replies as requests", func() bool {
			st := p.speaker.Stats()
			return st.ARP.Replies == st.ARP.Requests && st.NDP.Replies == st.NDP.Requests && st.ARP.Unsent+st.NDP.Unsent == 0
		})
	})
}

// The owner dies without a word: a client that has just heard it follows the
// announcements of the next one alone.
func TestB086AndB099EntryFollowsAFailOver(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		s := newSegment(t, f)
		s.client.Sysctl("net/ipv4/conf/eth0/arp_accept", "0")
		set(t, s.s1, s.own(s.n1, f.vip))
		newTalker(s.client).resolves("eth0", f.vip, s.n1.mac("eth0"))
		s.s1.Close()
		winner := s.n2.mac("eth0")
		start := time.Now()
		set(t, s.s2, s.own(s.n2, f.vip))
		s.client.eventually("the entry to change", func() bool {
			got, _ := s.client.neighbour("eth0", f.vip)
			return got == winner
		})
		if took := time.Since(start); took > 9*time.Second {
			t.Errorf("took %s, want less than 3 s (three times that here)", took)
		}
	})
}

// Every field of the announcements, of both forms of ARP, so that a receiver
// that understands only one of them follows as well.
func TestB086AndB099FieldsOfAnnouncements(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		p := newPair(t, f)
		set(t, p.speaker, p.own(f.vip))
		node := p.node.mac("eth0")
		eventually(t, "two rounds", func() bool { return len(p.station.announcements(f.vip, node)) >= 4 })
		forms := map[uint16]bool{}
		for _, v := range p.station.announcements(f.vip, node) {
			arp := arpPacket{
				dst: broadcast, src: node, operation: v.arp.operation, senderMAC: node, senderIP: f.vip, targetIP: f.vip,
			}
			if v.arp.operation == arpReply {
				arp.targetMAC = node
			}
			ndp := ndpPacket{
				dst: groupMAC(allNodes), src: node, sourceIP: f.vip, destIP: allNodes,
				kind: neighborAdvertisement, flags: override, target: f.vip, option: node,
			}
			if f.vip.Is4() && v.arp != arp || f.vip.Is6() && v.ndp != ndp {
				t.Errorf("announced %+v", v)
			}
			forms[v.arp.operation] = true
		}
		if f.vip.Is4() && !(forms[arpRequest] && forms[arpReply]) {
			t.Errorf("forms %v, want both", forms)
		}
	})
}

// Linux lets go of an owner that it has heard a moment ago for either form.
func TestEachFormMovesAFreshKernelEntry(t *testing.T) {
	for name, k := range map[string]kind{"request": request, "reply": reply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, families[0])
			set(t, p.speaker, p.own(vip))
			newTalker(p.client).resolves("eth0", vip, p.node.mac("eth0"))
			p.speaker.Close()
			by := newStation(p.node, "eth0", vip, etherTypeARP)
			by.send(arpProtocol{}.frame(k, winnerMAC, vip))
			p.client.eventually("the entry to change", func() bool {
				got, _ := p.client.neighbour("eth0", vip)
				return got == winnerMAC
			})
		})
	}
}

// A neighbour that checks by unicast whether the address is still there keeps
// its entry, which goes from PROBE to REACHABLE and never through FAILED.
func TestB096EntryInProbeBecomesReachable(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		p := newPair(t, f)
		node := p.node.mac("eth0")
		set(t, p.speaker, p.own(f.vip))
		newTalker(p.client).resolves("eth0", f.vip, node)
		index := p.client.Link("eth0").Attrs().Index
		for range 3 {
			before := p.station.count(node, f.vip)
			p.client.Must(p.client.Net.NeighSet(&netlink.Neigh{
				LinkIndex: index, Family: f.number, IP: f.vip.AsSlice(), HardwareAddr: node[:], State: netlink.NUD_PROBE,
			}))
			p.client.eventually("REACHABLE", func() bool {
				got, state := p.client.neighbour("eth0", f.vip)
				if state == netlink.NUD_FAILED || state == netlink.NUD_INCOMPLETE {
					t.Fatalf("the entry is in state %#x", state)
				}
				return got == node && state == netlink.NUD_REACHABLE
			})
			eventually(t, "the answer", func() bool { return p.station.count(node, f.vip) > before })
		}
	})
}

// Hundreds of addresses move at once: all entries of a client follow in time.
func TestFourHundredEntriesFollowATakeOver(t *testing.T) {
	const addresses = 400
	f := families[0]
	s := newSegment(t, f)
	var before, after []plan.Announcement
	all := addressesFrom(addr("198.18.0.0"), addresses)
	link := s.client.Link("eth0")
	dead, winner := s.n1.mac("eth0"), s.n2.mac("eth0")
	for _, a := range all {
		before, after = append(before, s.own(s.n1, a)), append(after, s.own(s.n2, a))
		s.client.Must(s.client.Net.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, Family: f.number, IP: a.AsSlice(), HardwareAddr: dead[:], State: netlink.NUD_STALE,
		}))
	}
	set(t, s.s1, before...)
	s.s1.Close()
	start := time.Now()
	set(t, s.s2, after...)
	s.client.eventually("all entries to change", func() bool {
		entries, err := s.client.Net.NeighList(link.Attrs().Index, f.number)
		s.client.Must(err)
		moved := 0
		for _, n := range entries {
			if len(n.HardwareAddr) == 6 && mac(n.HardwareAddr) == winner {
				moved++
			}
		}
		return moved >= addresses
	})
	took := time.Since(start)
	t.Logf("%d entries followed in %s", addresses, took)
	if took > 5*time.Second {
		t.Errorf("took %s, want half a second and a bit, or ten times that on a busy machine", took)
	}
}

// A node that cannot know whether the owner is alive asks, leaves the address
// to it, and claims it when it is gone.
func TestDoubtfulTakeOverOnTheWire(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		s := newSegment(t, f)
		set(t, s.s1, s.own(s.n1, f.vip))
		owner := s.n1.mac("eth0")
		if got := s.station.resolve(f.vip); got != owner {
			t.Fatalf("answered by %s", got)
		}
		a, free := s.own(s.n2, f.vip), s.own(s.n2, f.vip2)
		a.Ask, free.Ask = true, true
		set(t, s.s2, a, free)
		if got := s.station.resolve(f.vip2); got != s.n2.mac("eth0") {
			t.Errorf("%s, which nobody has, is answered by %s", f.vip2, got)
		}
		eventually(t, "the address to be left", func() bool {
			got := s.s2.Withheld()
			return len(got) == 1 && got[0].MAC == owner.String() && got[0].Node == "n1" && got[0].Address == f.vip
		})
		for range 20 {
			if got := s.station.resolve(f.vip); got != owner {
				t.Errorf("answered by %s while the owner lives", got)
			}
		}
		s.s1.Close()
		eventually(t, "the address to be claimed", func() bool { return len(s.s2.Withheld()) == 0 })
		if got := s.station.resolve(f.vip); got != s.n2.mac("eth0") {
			t.Errorf("answered by %s", got)
		}
	})
}

// What the filter keeps away does not wake us but is counted, and what belongs
// to us comes through while the filter is replaced over and over.
func TestFilterIsReplacedWithoutLosingRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[0])
	set(t, p.speaker, p.own(vip))
	unrelated := p.station.request(addr("198.51.100.9"))
	odd := p.station.request(vip)
	odd.operation = 8
	for range 100 {
		p.station.send(unrelated.appendTo(nil))
		p.station.send(odd.appendTo(nil))
	}
	p.station.resolve(vip)
	st := p.speaker.Stats()
	if st.ARP.Dropped[NotClaimed]+st.ARP.Dropped[OtherOperation] != 0 || st.Links[0].Filtered < 200 || st.Links[0].Broadcasts <= st.Links[0].Filtered {
		t.Errorf("unrelated requests: %+v, want 200 of them filtered and none seen", st)
	}
	asked := len(p.station.answers(vip))
	node := p.own(vip)
	for i := range 300 {
		want := []plan.Announcement{node}
		for j := range i % 40 {
			want = append(want, own(netip.AddrFrom4([4]byte{198, 18, byte(j), byte(i)}), node.Links...))
		}
		p.station.send(p.station.question(vip))
		set(t, p.speaker, want...)
		p.station.send(p.station.question(vip))
		asked += 2
	}
	eventually(t, "an answer to each request", func() bool { return len(p.station.answers(vip)) == asked })
}

// The counter counts each broadcast of another station once, and nothing else.
func TestCounterOnTheWire(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[0])
	c := openCounter(t, p.node)
	own := newStation(p.node, "eth0", vip, etherTypeARP)
	for range 300 {
		p.station.send(p.station.request(addr("198.51.100.9")).appendTo(nil))
		unicast := p.station.request(vip)
		unicast.dst = p.node.mac("eth0")
		p.station.send(unicast.appendTo(nil))
		own.send(own.request(addr("198.51.100.9")).appendTo(nil))
	}
	if got := c.count(); got != 300 {
		t.Errorf("counted %d, want 300", got)
	}
	if got := c.count(); got != 0 {
		t.Errorf("counted %d more", got)
	}
	p.node.Down("eth0")
	p.node.Up("eth0")
	p.node.eventually("carrier", func() bool { return p.node.link("eth0").Up })
	p.station.send(p.station.request(addr("198.51.100.9")).appendTo(nil))
	if got := c.count(); got != 1 {
		t.Errorf("counted %d after the link was down, want 1", got)
	}
}

func openCounter(t *testing.T, h *host) counter {
	t.Helper()
	f, err := bpf.Assemble(hearing(h.mac("eth0")))
	must(t, err)
	c, err := h.counter(h.link("eth0"), etherTypeARP, f)
	must(t, err)
	t.Cleanup(c.close)
	return c
}
