package l2

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

// An Ethernet frame with a neighbour solicitation or advertisement (RFC 4861,
// 4.3 and 4.4): no IPv6 extension headers, as every stack sends them.
const (
	ipv6Len = 40
	icmpAt  = ethernetLen + ipv6Len

	// Where the fields are.
	versionAt    = 14
	payloadAt    = 18 // length of what follows the IPv6 header
	nextHeaderAt = 20
	hopLimitAt   = 21
	sourceIPAt   = 22
	destIPAt     = 38
	icmpTypeAt   = 54
	icmpCodeAt   = 55
	icmpSumAt    = 56
	flagsAt      = 58
	targetAt     = 62
	optionsAt    = 78

	icmpv6                = 58
	hopLimit              = 255
	neighborSolicitation  = 135
	neighborAdvertisement = 136

	solicited = 1 << 6
	override  = 1 << 5

	optionSourceMAC = 1
	optionTargetMAC = 2
)

var allNodes = netip.MustParseAddr("ff02::1")

// ndpPacket is a neighbour solicitation or advertisement with the headers
// around it.
type ndpPacket struct {
	dst, src         mac
	sourceIP, destIP netip.Addr
	kind             byte // of ICMPv6 message
	flags            byte // of an advertisement
	target           netip.Addr

	// option is the source link-layer address of a solicitation, the target
	// link-layer address of an advertisement; all zero without one.
	option mac
}

// parseNDP reads a frame, which may be padded. It refuses what RFC 4861, 7.1.1
// and 7.1.2, tells to discard, and senders that are no single station.
func parseNDP(b []byte) (ndpPacket, Cause) {
	if len(b) < optionsAt || binary.BigEndian.Uint16(b[12:]) != etherTypeIPv6 ||
		b[versionAt]>>4 != 6 || b[nextHeaderAt] != icmpv6 {
		return ndpPacket{}, Malformed
	}
	end := icmpAt + int(binary.BigEndian.Uint16(b[payloadAt:]))
	if end < optionsAt || end > len(b) {
		return ndpPacket{}, Malformed
	}
	b = b[:end]
	p := ndpPacket{
		dst: mac(b[0:6]), src: mac(b[6:12]),
		sourceIP: netip.AddrFrom16([16]byte(b[sourceIPAt:])),
		destIP:   netip.AddrFrom16([16]byte(b[destIPAt:])),
		kind:     b[icmpTypeAt],
		flags:    b[flagsAt],
		target:   netip.AddrFrom16([16]byte(b[targetAt:])),
	}
	switch {
	case p.kind != neighborSolicitation && p.kind != neighborAdvertisement:
		return p, OtherOperation
	case b[hopLimitAt] != hopLimit:
		return p, HopLimit
	case checksum(b) != 0:
		return p, Checksum
	case b[icmpCodeAt] != 0 || !p.readOptions(b[optionsAt:]) || !p.plausible():
		return p, Malformed
	}
	return p, accepted
}

// readOptions finds the link-layer address. It returns false if an option has
// no length or exceeds the packet, or if the address is no single station's.
func (p *ndpPacket) readOptions(b []byte) bool {
	wanted := byte(optionSourceMAC)
	if p.kind == neighborAdvertisement {
		wanted = optionTargetMAC
	}
	for len(b) > 0 {
		if len(b) < 2 || b[1] == 0 || len(b) < int(b[1])*8 {
			return false
		}
		if b[0] == wanted && p.option == (mac{}) {
			p.option = mac(b[2:8])
			if b[1] != 1 || !p.option.unicast() {
				return false
			}
		}
		b = b[int(b[1])*8:]
	}
	return true
}

// plausible tells whether the addresses fit each other.
func (p *ndpPacket) plausible() bool {
	if p.target.IsMulticast() || p.sourceIP.IsMulticast() || p.sourceIP.IsLoopback() || !p.src.unicast() {
		return false
	}
	if p.kind == neighborAdvertisement {
		return !p.destIP.IsMulticast() || p.flags&solicited == 0
	}
	if p.sourceIP.IsUnspecified() {
		return p.destIP == solicitedNode(p.target) && p.option == mac{}
	}
	return true
}

// station returns the link-layer address that the sender gave, or else the one
// that it sent from.
func (p *ndpPacket) station() mac {
	if p.option != (mac{}) {
		return p.option
	}
	return p.src
}

// appendTo writes the frame.
func (p *ndpPacket) appendTo(b []byte) []byte {
	start := len(b)
	payload := optionsAt - icmpAt
	if p.option != (mac{}) {
		payload += 8
	}
	b = append(b, p.dst[:]...)
	b = append(b, p.src[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv6)
	b = append(b, 6<<4, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(payload))
	b = append(b, icmpv6, hopLimit)
	b = appendIPv6(b, p.sourceIP)
	b = appendIPv6(b, p.destIP)
	b = append(b, p.kind, 0, 0, 0, p.flags, 0, 0, 0)
	b = appendIPv6(b, p.target)
	if p.option != (mac{}) {
		option := byte(optionSourceMAC)
		if p.kind == neighborAdvertisement {
			option = optionTargetMAC
		}
		b = append(b, option, 1)
		b = append(b, p.option[:]...)
	}
	binary.BigEndian.PutUint16(b[start+icmpSumAt:], checksum(b[start:]))
	return b
}

func appendIPv6(b []byte, a netip.Addr) []byte {
	sixteen := a.As16()
	return append(b, sixteen[:]...)
}

// checksum sums up a frame as RFC 4443, 2.3, says: zero if the checksum in it
// is right, the checksum itself if that is zero.
func checksum(frame []byte) uint16 {
	sum := uint32(len(frame)-icmpAt) + icmpv6
	for b := frame[sourceIPAt:]; len(b) > 0; b = b[2:] {
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
			break
		}
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// solicitedNode returns the group in which an address is asked for (RFC 4291, 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	group := [16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}
	sixteen := a.As16()
	copy(group[13:], sixteen[13:])
	return netip.AddrFrom16(group)
}

// groupMAC returns the Ethernet address of an IPv6 multicast group (RFC 2464, 7).
func groupMAC(group netip.Addr) mac {
	sixteen := group.As16()
	out := mac{0x33, 0x33}
	copy(out[2:], sixteen[12:])
	return out
}

// ndpProtocol is the protocol for IPv6.
type ndpProtocol struct{}

func (ndpProtocol) name() string { return "NDP" }

func (ndpProtocol) etherType() int { return etherTypeIPv6 }

func (ndpProtocol) steps() steps { return ndpSteps }

func (ndpProtocol) group(a netip.Addr) (netip.Addr, bool) { return solicitedNode(a), true }

// judge implements protocol.
func (ndpProtocol) judge(t *table, frame, buf []byte) verdict {
	p, cause := parseNDP(frame)
	switch {
	case cause != accepted:
		return verdict{cause: cause}
	case t.own(p.src) || t.own(p.option):
		return verdict{cause: OwnFrame}
	case p.dst != t.mac && !p.dst.group():
		return verdict{cause: OtherStation}
	}
	c := t.claims[p.target]
	switch {
	case c == nil:
		return verdict{cause: NotClaimed}
	case p.kind == neighborAdvertisement:
		return verdict{seen: c, by: p.station(), announced: p.destIP.IsMulticast()}
	case p.sourceIP == p.target:
		return verdict{seen: c, by: p.station()}
	case !c.answers():
		return verdict{cause: NotClaimed}
	}
	a := p.answer(t.mac)
	return verdict{reply: a.appendTo(buf[:0])}
}

// answer makes the advertisement that answers a solicitation out of our own
// fields. Its source is the address itself, so that the link needs none.
//
// RFC 4861, 7.2.4: if the source of the solicitation is the unspecified
// address, the Solicited flag is zero and the advertisement goes to all nodes;
// otherwise the flag is one and it goes to that source. Override is one.
func (p *ndpPacket) answer(own mac) ndpPacket {
	a := ndpPacket{
		dst: p.station(), src: own,
		sourceIP: p.target, destIP: p.sourceIP,
		kind: neighborAdvertisement, flags: solicited | override,
		target: p.target, option: own,
	}
	if p.sourceIP.IsUnspecified() {
		a.dst, a.destIP, a.flags = groupMAC(allNodes), allNodes, override
	}
	return a
}

// frame implements protocol.
func (ndpProtocol) frame(k kind, own mac, address netip.Addr) []byte {
	p := ndpPacket{
		dst: groupMAC(allNodes), src: own,
		sourceIP: address, destIP: allNodes,
		kind: neighborAdvertisement, flags: override,
		target: address, option: own,
	}
	if k == probe {
		// Like duplicate address detection (RFC 4862, 5.4.2), so that nobody
		// learns from it.
		group := solicitedNode(address)
		p = ndpPacket{
			dst: groupMAC(group), src: own,
			sourceIP: netip.IPv6Unspecified(), destIP: group,
			kind: neighborSolicitation, target: address,
		}
	}
	return p.appendTo(make([]byte, 0, replyRoom))
}

// filter implements protocol.
func (ndpProtocol) filter(own mac, prefixes []netip.Prefix) []bpf.Instruction {
	return slices.Concat(
		dropUnless(bpf.LoadAbsolute{Off: nextHeaderAt, Size: 1}, icmpv6),
		dropUnless(bpf.LoadAbsolute{Off: hopLimitAt, Size: 1}, hopLimit),
		dropUnless(bpf.LoadAbsolute{Off: icmpTypeAt, Size: 1}, neighborSolicitation, neighborAdvertisement),
		dropFrom(own),
		acceptIn(targetAt, prefixes),
		[]bpf.Instruction{drop},
	)
}
