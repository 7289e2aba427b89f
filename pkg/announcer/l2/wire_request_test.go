package l2

import (
	"net/netip"
	"testing"
)

// vlan puts an 802.1Q tag into a frame.
func vlan(id uint16, frame []byte) []byte {
	out := append([]byte{}, frame[:12]...)
	out = append(out, 0x81, 0x00, byte(id>>8), byte(id))
	return append(out, frame[12:]...)
}

// Each kind of request, unusual but legal or plain garbage, ten times. Frames
// with a tag stand in for a VLAN sub-interface, which not every kernel has: a
// priority tag is answered, a foreign VLAN is not.
func TestB094UnusualRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[0])
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
		p.station.resolve(vip2) // there was time for an answer
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
	p.station.resolve(vip2)
	eventually(t, "a conflict", func() bool { return len(p.speaker.Conflicts()) == 1 })
	if got := p.speaker.Conflicts()[0]; got.MAC != p.station.mac.String() || got.Address != vip || got.Link != "eth0" {
		t.Errorf("conflict %+v", got)
	}
	eventually(t, "a defence", func() bool { return len(p.station.announcements(vip, node)) > before })
	if p.station.resolve(vip) != node {
		t.Error("the owner gave up")
	}
}
