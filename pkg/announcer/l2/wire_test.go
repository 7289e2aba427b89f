package l2

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// pair is a node with a speaker and a client, on one cable.
type pair struct {
	node, client *host
	speaker      *Speaker
	station      *station // of the client
}

func newPair(t testing.TB) pair {
	t.Helper()
	p := pair{node: newHost(t, "node"), client: newHost(t, "client")}
	cable(p.node, "eth0", p.client, "eth0")
	p.node.sysctl("net/ipv4/ip_forward", "1") // as on every node
	p.node.address("eth0", "192.0.2.1/24")
	p.client.address("eth0", "192.0.2.200/24")
	p.speaker = p.node.speaker()
	p.station = newStation(p.client, "eth0", clientIP, etherTypeARP)
	return p
}

// own is an announcement on the node's link as it is now.
func (p pair) own(a netip.Addr) plan.Announcement { return own(a, p.node.link("eth0")) }

// A client that forgets the entry again and again is answered every time, long
// after the announcements of the take-over.
func TestB084EveryRequestIsAnswered(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	set(t, p.speaker, p.own(vip))
	talk := newTalker(p.client)
	stop := time.Now().Add(6 * time.Second)
	asked, node := 0, p.node.mac("eth0")
	for time.Now().Before(stop) {
		p.client.forgetNeighbour("eth0", vip)
		talk.resolves("eth0", vip, node)
		for range 10 { // another one asks as well
			asked++
			p.station.send(p.station.request(vip).appendTo(nil))
			time.Sleep(2 * time.Millisecond)
		}
	}
	// The kernel of the client asks with the same MAC.
	eventually(t, "an answer to each request", func() bool { return len(p.station.replies(vip)) >= asked })
	stats := p.speaker.Stats()
	if stats.ARP.Replies != stats.ARP.Requests || stats.ARP.Unsent != 0 {
		t.Errorf("stats %+v", stats.ARP)
	}
	t.Logf("%d requests, %d replies", stats.ARP.Requests, stats.ARP.Replies)
}

// Each form of announcement reaches the receivers that understand only it, and
// a Linux host that does not accept unknown announcements updates what it knows.
func TestB086EveryReceiverFollowsATakeOver(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	n1, n2, client := newHost(t, "n1"), newHost(t, "n2"), newHost(t, "client")
	for _, h := range []*host{n1, n2, client} {
		sw.plug(h, "eth0")
	}
	client.address("eth0", "192.0.2.200/24")
	client.sysctl("net/ipv4/conf/eth0/arp_accept", "0")
	listener := newStation(client, "eth0", clientIP, etherTypeARP)
	s1, s2 := n1.speaker(), n2.speaker()

	set(t, s1, own(vip, n1.link("eth0")))
	talk := newTalker(client)
	talk.resolves("eth0", vip, n1.mac("eth0"))

	s1.Close() // dies without a word
	winner := n2.mac("eth0")
	start := time.Now()
	set(t, s2, own(vip, n2.link("eth0")))
	client.eventually("the entry to change", func() bool {
		got, _ := client.neighbour("eth0", vip)
		return got == winner
	})
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("took %s, want less than 3 s (twice that here)", took)
	} else {
		t.Logf("the kernel's entry followed in %s", took)
	}

	// Two strict receivers: each knows one form only.
	eventually(t, "both forms", func() bool { return len(listener.announcements(vip, winner)) >= 4 })
	forms := map[uint16]int{}
	for _, a := range listener.announcements(vip, winner) {
		want := arpPacket{
			dst: broadcast, src: winner, operation: arpRequest,
			senderMAC: winner, senderIP: vip, targetIP: vip,
		}
		if a.operation == arpReply {
			want.operation, want.targetMAC = arpReply, winner
		}
		if a != want {
			t.Errorf("announced %+v, want %+v", a, want)
		}
		forms[a.operation]++
	}
	if forms[arpRequest] == 0 || forms[arpReply] == 0 {
		t.Errorf("forms %v, want both", forms)
	}
}

// Linux lets go of an owner that it has heard a moment ago for either form.
func TestEachFormMovesAFreshKernelEntry(t *testing.T) {
	for name, k := range map[string]kind{"request": request, "reply": reply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
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

// vlan puts an 802.1Q tag into a frame.
func vlan(id uint16, frame []byte) []byte {
	out := append([]byte{}, frame[:12]...)
	out = append(out, 0x81, 0x00, byte(id>>8), byte(id))
	return append(out, frame[12:]...)
}

// Each kind of request, unusual but legal or plain garbage, ten times.
func TestB094UnusualRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	node := p.node.mac("eth0")
	set(t, p.speaker, p.own(vip), p.own(vip2))
	edit := func(f func(q *arpPacket)) []byte {
		q := p.station.request(vip)
		f(&q)
		return q.appendTo(nil)
	}
	base := edit(func(*arpPacket) {})
	patch := func(at int, v byte) []byte {
		b := append([]byte{}, base...)
		b[at] = v
		return b
	}
	for _, c := range []struct {
		name  string
		frame []byte
		want  int
	}{
		{"broadcast", base, 10},
		{"unicast", edit(func(q *arpPacket) { q.dst, q.targetMAC = node, node }), 10},
		{"probe", edit(func(q *arpPacket) { q.senderIP = netip.IPv4Unspecified() }), 10},
		{"padded", append(append([]byte{}, base...), make([]byte, 18)...), 10},
		{"long padding", append(append([]byte{}, base...), make([]byte, 1400)...), 10},
		{"priority tag, VID 0", vlan(0, base), 10},
		{"priority tag, VID 0, priority 5", vlan(5<<13, base), 10},
		{"from another subnet", edit(func(q *arpPacket) { q.senderIP = addr("203.0.113.3") }), 10},
		{"foreign VLAN", vlan(5, base), 0},
		{"unicast to another station", edit(func(q *arpPacket) { q.dst = winnerMAC }), 0},
		{"reply", edit(func(q *arpPacket) { q.operation = arpReply }), 0},
		{"operation 3", edit(func(q *arpPacket) { q.operation = 3 }), 0},
		{"operation 65535", edit(func(q *arpPacket) { q.operation = 65535 }), 0},
		{"truncated", base[:35], 0},
		{"header only", base[:14], 0},
		{"hardware type 6", patch(15, 6), 0},
		{"protocol type IPv6", patch(16, 0x86), 0},
		{"hardware length 8", patch(18, 8), 0},
		{"hardware length 7", patch(18, 7), 0},
		{"protocol length 16", patch(19, 16), 0},
		{"sender is a group", edit(func(q *arpPacket) { q.senderMAC = broadcast }), 0},
		{"for an address next to it", p.station.request(addr("192.0.2.12")).appendTo(nil), 0},
	} {
		before := p.station.count(node, vip)
		for range 10 {
			p.station.send(c.frame)
		}
		p.station.arping(vip2) // there was time for an answer
		if got := p.station.count(node, vip) - before; got != c.want {
			t.Errorf("%s: %d replies, want %d", c.name, got, c.want)
		}
	}
	if got := p.speaker.Conflicts(); len(got) != 0 {
		t.Errorf("conflicts %+v", got)
	}

	// A foreign host announces the address: a conflict, defended once.
	before := len(p.station.announcements(vip, node))
	for range 10 {
		p.station.send(edit(func(q *arpPacket) { q.senderIP, q.targetIP = vip, vip }))
	}
	p.station.arping(vip2)
	eventually(t, "a conflict", func() bool { return len(p.speaker.Conflicts()) == 1 })
	if got := p.speaker.Conflicts()[0]; got.MAC != p.station.mac.String() || got.Address != vip || got.Link != "eth0" {
		t.Errorf("conflict %+v", got)
	}
	eventually(t, "a defence", func() bool { return len(p.station.announcements(vip, node)) > before })
	if p.station.arping(vip) != node {
		t.Error("the owner gave up")
	}
}

// count counts the replies about an address by one MAC, to whomever.
func (s *station) count(by mac, about netip.Addr) int {
	n := 0
	for _, p := range s.arps() {
		if p.operation == arpReply && p.dst != broadcast && p.src == by && p.senderMAC == by && p.senderIP == about {
			n++
		}
	}
	return n
}

// What the filter keeps away does not wake us, and what belongs to us comes
// through while the filter is replaced over and over.
func TestFilterIsReplacedWithoutLosingRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	set(t, p.speaker, p.own(vip))
	for range 200 {
		p.station.send(p.station.request(addr("198.51.100.9")).appendTo(nil))
	}
	p.station.arping(vip)
	if st := p.speaker.Stats().ARP; st.Dropped[NotClaimed] != 0 {
		t.Errorf("unrelated requests woke us: %+v", st)
	}
	asked := len(p.station.replies(vip))
	node := p.own(vip)
	for i := range 300 {
		want := []plan.Announcement{node}
		for j := range i % 40 {
			want = append(want, own(netip.AddrFrom4([4]byte{198, 18, byte(j), byte(i)}), node.Links...))
		}
		p.station.send(p.station.request(vip).appendTo(nil))
		set(t, p.speaker, want...)
		p.station.send(p.station.request(vip).appendTo(nil))
		asked += 2
	}
	eventually(t, "an answer to each request", func() bool { return len(p.station.replies(vip)) == asked })
}
