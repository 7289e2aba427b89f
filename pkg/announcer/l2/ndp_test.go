package l2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"

	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

// describeNDP reads a frame with codecs that are not ours.
func describeNDP(t *testing.T, frame []byte) string {
	t.Helper()
	var e ethernet.Frame
	must(t, e.UnmarshalBinary(frame))
	h, err := ipv6.ParseHeader(e.Payload)
	must(t, err)
	icmp := frame[icmpAt:]
	m, err := ndp.ParseMessage(icmp)
	must(t, err)
	out := fmt.Sprintf("ethernet %s -> %s type %#04x\nipv6 %s -> %s next header %d hop limit %d length %d (%d)\n",
		e.Source, e.Destination, uint16(e.EtherType), h.Src, h.Dst, h.NextHeader, h.HopLimit, h.PayloadLen, len(icmp))
	switch m := m.(type) {
	case *ndp.NeighborSolicitation:
		out += fmt.Sprintf("solicitation target %s", m.TargetAddress)
		for _, o := range m.Options {
			out += fmt.Sprintf(" option %d %s", o.Code(), o.(*ndp.LinkLayerAddress).Addr)
		}
	case *ndp.NeighborAdvertisement:
		out += fmt.Sprintf("advertisement target %s router %v solicited %v override %v",
			m.TargetAddress, m.Router, m.Solicited, m.Override)
		for _, o := range m.Options {
			out += fmt.Sprintf(" option %d %s", o.Code(), o.(*ndp.LinkLayerAddress).Addr)
		}
	}
	again, err := ndp.MarshalMessageChecksum(m, frameIP(frame, sourceIPAt), frameIP(frame, destIPAt))
	must(t, err)
	out += fmt.Sprintf("\nthe same bytes as another codec writes: %v\n%x\n", bytes.Equal(again, icmp), frame)
	return out
}

func frameIP(frame []byte, at int) netip.Addr { return netip.AddrFrom16([16]byte(frame[at:])) }

func TestNDPFramesGolden(t *testing.T) {
	var out bytes.Buffer
	for _, f := range []struct {
		name string
		kind kind
	}{{"announcement", request}, {"probe", probe}} {
		fmt.Fprintf(&out, "-- %s --\n%s", f.name, describeNDP(t, ndpProtocol{}.frame(f.kind, ourMAC, vip6)))
	}
	for _, c := range ndpCases() {
		if v := (ndpProtocol{}).judge(testTable6(), c.frame, nil); v.reply != nil {
			fmt.Fprintf(&out, "-- answer to: %s --\n%s", c.name, describeNDP(t, v.reply))
		}
	}
	golden.Check(t, filepath.Join("testdata", "ndp-frames.txt"), out.String())
}

// seal corrects the checksum of a frame that was changed by hand.
func seal(frame []byte) []byte {
	binary.BigEndian.PutUint16(frame[icmpSumAt:], 0)
	binary.BigEndian.PutUint16(frame[icmpSumAt:], checksum(frame))
	return frame
}

func ndpCases() []judgeCase {
	edit := func(f func(p *ndpPacket)) []byte {
		p := solicits(vip6)
		f(&p)
		return p.appendTo(nil)
	}
	patch := func(at int, v byte) []byte {
		b := requestFor(vip6)
		b[at] = v
		return seal(b)
	}
	option := func(more ...byte) []byte {
		b := append(requestFor(vip6), more...)
		binary.BigEndian.PutUint16(b[payloadAt:], uint16(len(b)-icmpAt))
		return seal(b)
	}
	advert := func(f func(p *ndpPacket)) []byte {
		p := ndpPacket{
			dst: ourMAC, src: foreignMAC, sourceIP: clientIP6, destIP: addr("2001:db8::1"),
			kind: neighborAdvertisement, flags: solicited | override, target: vip6, option: foreignMAC,
		}
		f(&p)
		return p.appendTo(nil)
	}
	noise := bytes.Repeat([]byte{0xa5}, 40)
	return []judgeCase{
		{name: "multicast solicitation", frame: requestFor(vip6), reply: true},
		{name: "unicast solicitation from a global address", frame: edit(func(p *ndpPacket) { p.dst, p.destIP = ourMAC, vip6 }), reply: true},
		{name: "unicast solicitation from a link-local address", frame: edit(func(p *ndpPacket) {
			p.dst, p.destIP, p.sourceIP = ourMAC, vip6, addr("fe80::c1")
		}), reply: true},
		{name: "unicast solicitation without option", frame: edit(func(p *ndpPacket) { p.dst, p.destIP, p.option = ourMAC, vip6, mac{} }), reply: true},
		{name: "duplicate address detection", frame: edit(func(p *ndpPacket) { p.sourceIP, p.option = netip.IPv6Unspecified(), mac{} }), reply: true},
		{name: "solicitation to all nodes", frame: edit(func(p *ndpPacket) { p.dst, p.destIP = groupMAC(allNodes), allNodes }), reply: true},
		{name: "padded solicitation", frame: append(requestFor(vip6), noise...), reply: true},
		{name: "solicitation with an unknown option", frame: option(14, 1, 1, 2, 3, 4, 5, 6), reply: true},
		{name: "solicitation during a hand-over", frame: requestFor(addr("2001:db8::11")), reply: true},

		{name: "for an address that is asked for", frame: requestFor(addr("2001:db8::12")), cause: NotClaimed},
		{name: "for an address that was handed over", frame: requestFor(addr("2001:db8::13")), cause: NotClaimed},
		{name: "for another address", frame: requestFor(addr("2001:db8::14")), cause: NotClaimed},
		{name: "for another address in the same group", frame: requestFor(addr("2001:db8:1::10")), cause: NotClaimed},
		{name: "to another station", frame: edit(func(p *ndpPacket) { p.dst = winnerMAC }), cause: OtherStation},
		{name: "router solicitation", frame: patch(icmpTypeAt, 133), cause: OtherOperation},
		{name: "echo request", frame: patch(icmpTypeAt, 128), cause: OtherOperation},
		{name: "own source", frame: edit(func(p *ndpPacket) { p.src = ourMAC }), cause: OwnFrame},
		{name: "own option", frame: edit(func(p *ndpPacket) { p.option = ourMAC2 }), cause: OwnFrame},
		{name: "own announcement that came back", frame: announcementOf(vip6, ourMAC, request), cause: OwnFrame},
		{name: "hop limit 254", frame: patch(hopLimitAt, 254), cause: HopLimit},
		{name: "hop limit 64", frame: patch(hopLimitAt, 64), cause: HopLimit},
		{name: "wrong checksum", frame: func() []byte { b := requestFor(vip6); b[icmpSumAt] ^= 1; return b }(), cause: Checksum},
		{name: "code 1", frame: patch(icmpCodeAt, 1), cause: Malformed},
		{name: "extension header", frame: patch(nextHeaderAt, 0), cause: Malformed},
		{name: "IP version 4", frame: patch(versionAt, 0x45), cause: Malformed},
		{name: "other EtherType", frame: patch(13, 0), cause: Malformed},
		{name: "truncated", frame: requestFor(vip6)[:optionsAt+7], cause: Malformed},
		{name: "truncated before the target's end", frame: requestFor(vip6)[:optionsAt-1], cause: Malformed},
		{name: "length of 8", frame: patch(payloadAt+1, 8), cause: Malformed},
		{name: "length beyond the frame", frame: patch(payloadAt, 1), cause: Malformed},
		{name: "empty", frame: nil, cause: Malformed},
		{name: "option without length", frame: patch(optionsAt+1, 0), cause: Malformed},
		{name: "option beyond the packet", frame: patch(optionsAt+1, 2), cause: Malformed},
		{name: "half an option", frame: option(14), cause: Malformed},
		{name: "link-layer address of other length", frame: func() []byte {
			b := option(0, 0, 0, 0, 0, 0, 0, 0)
			b[optionsAt+1] = 2
			return seal(b)
		}(), cause: Malformed},
		{name: "link-layer address of a group", frame: edit(func(p *ndpPacket) { p.option = broadcast }), cause: Malformed},
		{name: "target is a group", frame: requestFor(addr("ff02::1")), cause: Malformed},
		{name: "sender has a group address", frame: edit(func(p *ndpPacket) { p.sourceIP = allNodes }), cause: Malformed},
		{name: "duplicate address detection to one station", frame: edit(func(p *ndpPacket) {
			p.dst, p.destIP, p.sourceIP, p.option = ourMAC, vip6, netip.IPv6Unspecified(), mac{}
		}), cause: Malformed},
		{name: "duplicate address detection with a source option", frame: edit(func(p *ndpPacket) { p.sourceIP = netip.IPv6Unspecified() }), cause: Malformed},
		{name: "solicited advertisement to all", frame: advert(func(p *ndpPacket) { p.dst, p.destIP = groupMAC(allNodes), allNodes }), cause: Malformed},

		{name: "foreign announcement", frame: announcementOf(vip6, foreignMAC, request), seen: "2001:db8::10", all: true},
		{name: "foreign answer to us", frame: advert(func(*ndpPacket) {}), seen: "2001:db8::10"},
		{name: "foreign answer without option", frame: advert(func(p *ndpPacket) { p.option = mac{} }), seen: "2001:db8::10"},
		{name: "solicitation from the address itself", frame: edit(func(p *ndpPacket) { p.sourceIP = vip6 }), seen: "2001:db8::10"},
		{name: "winner's announcement", frame: announcementOf(addr("2001:db8::11"), winnerMAC, request), seen: "2001:db8::11", all: true},
		{name: "advertisement of another address", frame: announcementOf(addr("2001:db8::14"), winnerMAC, request), cause: NotClaimed},
	}
}

func TestJudgeNDP(t *testing.T) {
	for _, c := range ndpCases() {
		t.Run(c.name, func(t *testing.T) { checkJudge(t, ndpProtocol{}, testTable6(), c) })
	}
}

func TestNDPFilter(t *testing.T) {
	tab := testTable6()
	checkFilter(t, ndpProtocol{}, tab, ndpCases(), OtherOperation, HopLimit)
	vm := filterOf(t, ndpProtocol{}, slices.Collect(maps.Keys(tab.claims))...)
	for a, want := range map[string]bool{
		"2001:db8::10": true, "2001:db8::14": false, "2001:db8:1::10": false, "fe80::10": false, "2001:db8::1:10": false,
	} {
		if got := passes(t, vm, requestFor(addr(a))); got != want {
			t.Errorf("%s: passes %v, want %v", a, got, want)
		}
	}
}

func TestGroupsOfAddresses(t *testing.T) {
	group := solicitedNode(addr("2001:db8:51:100::12ab:cdef"))
	if group != addr("ff02::1:ffab:cdef") {
		t.Errorf("group %s", group)
	}
	if m := groupMAC(group).String(); m != "33:33:ff:ab:cd:ef" {
		t.Errorf("MAC %s", m)
	}
}

// FuzzJudgeNDP holds our reading of a frame against that of another codec: we
// answer solicitations for our addresses and nothing else, and never panic.
func FuzzJudgeNDP(f *testing.F) {
	for _, c := range ndpCases() {
		f.Add(c.frame, false)
		f.Add(c.frame, true)
	}
	f.Fuzz(func(t *testing.T, frame []byte, mend bool) {
		if mend && len(frame) >= optionsAt { // or else no checksum is ever right
			frame = bytes.Clone(frame)
			frame[hopLimitAt] = hopLimit
			if end := icmpAt + int(binary.BigEndian.Uint16(frame[payloadAt:])); end >= optionsAt && end <= len(frame) {
				seal(frame[:end])
			}
		}
		buf := make([]byte, 0, replyRoom)
		v := ndpProtocol{}.judge(testTable6(), frame, buf)
		if v.seen != nil && (!v.by.unicast() || v.by == ourMAC) {
			t.Errorf("heard %s", v.by)
		}
		if v.reply == nil {
			return
		}
		if v.cause != accepted || &v.reply[0] != &buf[:1][0] {
			t.Errorf("cause %s", v.cause)
		}
		end := icmpAt + int(binary.BigEndian.Uint16(frame[payloadAt:]))
		ns, ok := parsed(t, frame[icmpAt:end]).(*ndp.NeighborSolicitation)
		if !ok {
			t.Fatalf("answered what is no solicitation")
		}
		na, ok := parsed(t, v.reply[icmpAt:]).(*ndp.NeighborAdvertisement)
		if !ok {
			t.Fatalf("answered by what is no advertisement")
		}
		probed := frameIP(frame, sourceIPAt).IsUnspecified()
		want := &ndp.NeighborAdvertisement{
			Solicited: !probed, Override: true, TargetAddress: ns.TargetAddress,
			Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: ourMAC[:]}},
		}
		if diff := cmp.Diff(want, na, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("reply (-want +got):\n%s", diff)
		}
		if _, cause := parseNDP(v.reply); cause != accepted {
			t.Errorf("we would not take our own reply: %s", cause)
		}
	})
}

// parsed reads a message. Options that the other codec knows better than
// RFC 4861 wants are none of our business.
func parsed(t *testing.T, b []byte) ndp.Message {
	t.Helper()
	m, err := ndp.ParseMessage(b)
	if err != nil {
		m, err = ndp.ParseMessage(b[:optionsAt-icmpAt])
		must(t, err)
	}
	return m
}
