package l2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"

	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

// describeARP reads a frame with a codec that is not ours.
func describeARP(t *testing.T, frame []byte) string {
	t.Helper()
	var f ethernet.Frame
	var p arp.Packet
	if err := f.UnmarshalBinary(frame); err != nil {
		t.Fatal(err)
	}
	if err := p.UnmarshalBinary(f.Payload); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`ethernet %s -> %s type %#04x
arp hardware %d/%d protocol %#04x/%d operation %d
sender %s %s
target %s %s
%x
`, f.Source, f.Destination, uint16(f.EtherType),
		p.HardwareType, p.HardwareAddrLength, p.ProtocolType, p.IPLength, p.Operation,
		p.SenderHardwareAddr, p.SenderIP, p.TargetHardwareAddr, p.TargetIP, frame)
}

func TestARPFramesGolden(t *testing.T) {
	var out bytes.Buffer
	for _, f := range []struct {
		name string
		kind kind
	}{{"announcement, request form", request}, {"announcement, reply form", reply}, {"probe", probe}} {
		fmt.Fprintf(&out, "-- %s --\n%s", f.name, describeARP(t, arpProtocol{}.frame(f.kind, ourMAC, vip)))
	}
	probing := asks(vip)
	probing.senderIP = netip.IPv4Unspecified()
	for _, f := range []struct {
		name    string
		request arpPacket
	}{{"reply to a request", asks(vip)}, {"reply to a probe", probing}} {
		v := arpProtocol{}.judge(testTable(), f.request.appendTo(nil), nil)
		fmt.Fprintf(&out, "-- %s --\n%s", f.name, describeARP(t, v.reply))
	}
	golden.Check(t, filepath.Join("testdata", "arp-frames.txt"), out.String())
}

func TestProgrammeGolden(t *testing.T) {
	var out bytes.Buffer
	for _, p := range []protocol{arpProtocol{}, ndpProtocol{}} {
		fmt.Fprintf(&out, "-- %s --\n", p.name())
		for i, s := range p.steps() {
			fmt.Fprintf(&out, "%2d %-7s after %-5s rank %d\n", i, [...]string{"request", "reply", "probe"}[s.kind], s.gap, s.rank)
		}
		fmt.Fprintf(&out, "refresh from step %d, once more from step %d\n", p.steps().refresh(), p.steps().lastRound())
	}
	golden.Check(t, filepath.Join("testdata", "programme.txt"), out.String())
}

func arpCases() []judgeCase {
	edit := func(f func(p *arpPacket)) []byte {
		p := asks(vip)
		f(&p)
		return p.appendTo(nil)
	}
	raw := func(f func(b []byte) []byte) []byte { return f(requestFor(vip)) }
	foreign := func(k kind) []byte { return announcementOf(vip, foreignMAC, k) }
	return []judgeCase{
		{name: "broadcast request", frame: requestFor(vip), reply: true},
		{name: "unicast request", frame: edit(func(p *arpPacket) { p.dst = ourMAC }), reply: true},
		{name: "request that names our hardware address", frame: edit(func(p *arpPacket) { p.targetMAC = ourMAC }), reply: true},
		{name: "probe", frame: edit(func(p *arpPacket) { p.senderIP = netip.IPv4Unspecified() }), reply: true},
		{name: "padded request", frame: append(requestFor(vip), make([]byte, 18)...), reply: true},
		{name: "request padded with noise", frame: append(requestFor(vip), bytes.Repeat([]byte{0xa5}, 80)...), reply: true},
		{name: "request from another subnet", frame: edit(func(p *arpPacket) { p.senderIP = addr("203.0.113.7") }), reply: true},
		{name: "request passed on by a bridge", frame: edit(func(p *arpPacket) { p.src = winnerMAC }), reply: true},
		{name: "request during a hand-over", frame: requestFor(addr("192.0.2.11")), reply: true},

		{name: "request for an address that is asked for", frame: requestFor(addr("192.0.2.12")), cause: NotClaimed},
		{name: "request for an address that was handed over", frame: requestFor(addr("192.0.2.13")), cause: NotClaimed},
		{name: "request for another address", frame: requestFor(addr("192.0.2.14")), cause: NotClaimed},
		{name: "request to another station", frame: edit(func(p *arpPacket) { p.dst = winnerMAC }), cause: OtherStation},
		{name: "request to a multicast group", frame: edit(func(p *arpPacket) { p.dst = mac{1, 0, 0x5e, 0, 0, 1} }), cause: OtherStation},
		{name: "reply about another address", frame: edit(func(p *arpPacket) { p.operation, p.dst = arpReply, ourMAC }), cause: NotClaimed},
		{name: "reverse request", frame: edit(func(p *arpPacket) { p.operation = 3 }), cause: OtherOperation},
		{name: "operation 0", frame: edit(func(p *arpPacket) { p.operation = 0 }), cause: OtherOperation},
		{name: "own source", frame: edit(func(p *arpPacket) { p.src = ourMAC }), cause: OwnFrame},
		{name: "own sender", frame: edit(func(p *arpPacket) { p.senderMAC = ourMAC }), cause: OwnFrame},
		{name: "other link of this node", frame: edit(func(p *arpPacket) { p.src, p.senderMAC = ourMAC2, ourMAC2 }), cause: OwnFrame},
		{name: "own announcement that came back", frame: announcementOf(vip, ourMAC, request), cause: OwnFrame},
		{name: "sender is a group", frame: edit(func(p *arpPacket) { p.senderMAC = broadcast }), cause: Malformed},
		{name: "sender is nobody", frame: edit(func(p *arpPacket) { p.senderMAC = mac{} }), cause: Malformed},
		{name: "sender has a group address", frame: edit(func(p *arpPacket) { p.senderIP = addr("224.0.0.1") }), cause: Malformed},
		{name: "sender has a loopback address", frame: edit(func(p *arpPacket) { p.senderIP = addr("127.0.0.1") }), cause: Malformed},
		{name: "truncated", frame: requestFor(vip)[:arpLen-1], cause: Malformed},
		{name: "header only", frame: requestFor(vip)[:ethernetLen], cause: Malformed},
		{name: "empty", frame: nil, cause: Malformed},
		{name: "other EtherType", frame: raw(func(b []byte) []byte { b[12] = 0x86; return b }), cause: Malformed},
		{name: "other hardware type", frame: raw(func(b []byte) []byte { b[15] = 6; return b }), cause: Malformed},
		{name: "other protocol type", frame: raw(func(b []byte) []byte { b[16] = 0x86; return b }), cause: Malformed},
		{name: "odd hardware length", frame: raw(func(b []byte) []byte { b[18] = 7; return b }), cause: Malformed},
		{name: "odd protocol length", frame: raw(func(b []byte) []byte { b[19] = 16; return b }), cause: Malformed},

		{name: "foreign announcement, request form", frame: foreign(request), seen: "192.0.2.10", all: true},
		{name: "foreign announcement, reply form", frame: foreign(reply), seen: "192.0.2.10", all: true},
		{name: "foreign reply to us", frame: edit(func(p *arpPacket) {
			p.operation, p.dst, p.senderMAC, p.senderIP, p.targetIP = arpReply, ourMAC, foreignMAC, vip, clientIP
		}), seen: "192.0.2.10"},
		{name: "foreign use as a source", frame: edit(func(p *arpPacket) { p.senderIP, p.targetIP = vip, clientIP }), seen: "192.0.2.10"},
		{name: "claims one, asks for another", frame: edit(func(p *arpPacket) { p.senderIP = addr("192.0.2.12") }), seen: "192.0.2.12", reply: true},
		{name: "winner's announcement", frame: announcementOf(addr("192.0.2.11"), winnerMAC, request), seen: "192.0.2.11", all: true},
	}
}

func TestJudgeARP(t *testing.T) {
	for _, c := range arpCases() {
		t.Run(c.name, func(t *testing.T) { checkJudge(t, arpProtocol{}, testTable(), c) })
	}
}

func TestARPFilterLetsThroughWhatCounts(t *testing.T) {
	checkFilter(t, arpProtocol{}, testTable(), arpCases(), OtherOperation)
}

func TestARPFilterDropsTheRest(t *testing.T) {
	vm := filterOf(t, arpProtocol{}, vip, addr("198.51.100.7"))
	edit := func(f func(p *arpPacket)) []byte {
		p := asks(vip)
		f(&p)
		return p.appendTo(nil)
	}
	for name, c := range map[string]struct {
		frame []byte
		want  bool
	}{
		"for one address":                {requestFor(vip), true},
		"for the other":                  {requestFor(addr("198.51.100.7")), true},
		"for the one next to it":         {requestFor(addr("198.51.100.6")), false},
		"for an unrelated address":       {requestFor(addr("203.0.113.9")), false},
		"from one address":               {edit(func(p *arpPacket) { p.senderIP, p.targetIP = vip, clientIP }), true},
		"from an unrelated, to another":  {edit(func(p *arpPacket) { p.targetIP = clientIP }), false},
		"own source":                     {edit(func(p *arpPacket) { p.src = ourMAC }), false},
		"source that begins like ours":   {edit(func(p *arpPacket) { p.src = mac{2, 0, 0, 0, 0, 9} }), true},
		"source that ends like ours":     {edit(func(p *arpPacket) { p.src = mac{2, 9, 0, 0, 0, 1} }), true},
		"other operation":                {edit(func(p *arpPacket) { p.operation = 8 }), false},
		"truncated before the target IP": {requestFor(vip)[:arpTargetIPAt+3], false},
		"no frame at all":                {[]byte{1}, false},
	} {
		if got := passes(t, vm, c.frame); got != c.want {
			t.Errorf("%s: passes %v, want %v", name, got, c.want)
		}
	}
}

// FuzzJudgeARP holds our reading of a frame against that of another codec: we
// answer requests for our addresses and nothing else, and never panic.
func FuzzJudgeARP(f *testing.F) {
	for _, c := range arpCases() {
		f.Add(c.frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		buf := make([]byte, 0, replyRoom)
		v := arpProtocol{}.judge(testTable(), frame, buf)
		if v.seen != nil && (!v.by.unicast() || v.by == ourMAC) {
			t.Errorf("heard %s", v.by)
		}
		if v.reply == nil {
			return
		}
		if v.cause != accepted || len(v.reply) != arpLen || &v.reply[0] != &buf[:1][0] {
			t.Errorf("cause %s, %d bytes", v.cause, len(v.reply))
		}
		var e ethernet.Frame
		var p, r arp.Packet
		if err := e.UnmarshalBinary(frame[:ethernetLen+28]); err != nil {
			t.Fatalf("answered what is no frame: %v", err)
		}
		if err := p.UnmarshalBinary(e.Payload); err != nil {
			t.Fatalf("answered what is no ARP packet: %v", err)
		}
		if err := r.UnmarshalBinary(v.reply[ethernetLen:]); err != nil {
			t.Fatal(err)
		}
		want := arp.Packet{
			HardwareType: 1, ProtocolType: 0x0800, HardwareAddrLength: 6, IPLength: 4, Operation: arp.OperationReply,
			SenderHardwareAddr: ourMAC[:], SenderIP: p.TargetIP,
			TargetHardwareAddr: p.SenderHardwareAddr, TargetIP: p.SenderIP,
		}
		if diff := cmp.Diff(want, r, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("reply (-want +got):\n%s", diff)
		}
		if p.Operation != arp.OperationRequest || binary.BigEndian.Uint16(frame[12:]) != etherTypeARP {
			t.Errorf("answered operation %d", p.Operation)
		}
	})
}
