package l2

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

// An Ethernet frame with an ARP packet for IPv4 (RFC 826).
const (
	arpLen = ethernetLen + 28

	hardwareEthernet = 1
	arpRequest       = 1
	arpReply         = 2

	// Where the filter looks.
	arpTypesAt     = 14 // hardware type, protocol type
	arpSizesAt     = 18 // length of a hardware address, of a protocol address
	arpOperationAt = 20
	arpSenderIPAt  = 28
	arpTargetIPAt  = 38

	arpTypes = hardwareEthernet<<16 | etherTypeIPv4
	arpSizes = 6<<8 | 4
)

// arpPacket is an ARP packet with the Ethernet header around it.
type arpPacket struct {
	dst, src             mac
	operation            uint16
	senderMAC, targetMAC mac
	senderIP, targetIP   netip.Addr
}

// parseARP reads a frame, which may be padded. It refuses whatever cannot be
// answered: other types and sizes, and senders that are no single station.
func parseARP(b []byte) (arpPacket, bool) {
	if len(b) < arpLen ||
		binary.BigEndian.Uint16(b[12:]) != etherTypeARP ||
		binary.BigEndian.Uint32(b[arpTypesAt:]) != arpTypes ||
		binary.BigEndian.Uint16(b[arpSizesAt:]) != arpSizes {
		return arpPacket{}, false
	}
	p := arpPacket{
		dst:       mac(b[0:6]),
		src:       mac(b[6:12]),
		operation: binary.BigEndian.Uint16(b[arpOperationAt:]),
		senderMAC: mac(b[22:28]),
		senderIP:  netip.AddrFrom4([4]byte(b[arpSenderIPAt:])),
		targetMAC: mac(b[32:38]),
		targetIP:  netip.AddrFrom4([4]byte(b[arpTargetIPAt:])),
	}
	return p, p.senderMAC.unicast() && !p.senderIP.IsMulticast() && !p.senderIP.IsLoopback()
}

// appendTo writes the frame. Linux pads it on links that need it.
func (p arpPacket) appendTo(b []byte) []byte {
	b = append(b, p.dst[:]...)
	b = append(b, p.src[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeARP)
	b = binary.BigEndian.AppendUint32(b, arpTypes)
	b = binary.BigEndian.AppendUint16(b, arpSizes)
	b = binary.BigEndian.AppendUint16(b, p.operation)
	b = append(b, p.senderMAC[:]...)
	b = appendIPv4(b, p.senderIP)
	b = append(b, p.targetMAC[:]...)
	return appendIPv4(b, p.targetIP)
}

func appendIPv4(b []byte, a netip.Addr) []byte {
	four := a.As4()
	return append(b, four[:]...)
}

// arpProtocol is the protocol for IPv4.
type arpProtocol struct{}

func (arpProtocol) name() string { return "ARP" }

func (arpProtocol) etherType() int { return etherTypeARP }

func (arpProtocol) steps() steps { return arpSteps }

func (arpProtocol) group(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }

// judge implements protocol. An ARP packet can be two things at once: whoever
// asks for one address says that it has another.
func (arpProtocol) judge(t *table, frame, buf []byte) verdict {
	p, ok := parseARP(frame)
	switch {
	case !ok:
		return verdict{cause: Malformed}
	case p.operation != arpRequest && p.operation != arpReply:
		return verdict{cause: OtherOperation}
	case t.own(p.src) || t.own(p.senderMAC):
		return verdict{cause: OwnFrame}
	case p.dst != t.mac && p.dst != broadcast:
		return verdict{cause: OtherStation}
	}
	v := verdict{cause: NotClaimed}
	if c := t.claims[p.senderIP]; c != nil {
		v = verdict{seen: c, by: p.senderMAC, announced: p.senderIP == p.targetIP}
	}
	// RFC 5227, 1.1: a request for the sender's own address announces it and
	// wants no answer.
	if p.operation == arpRequest && p.senderIP != p.targetIP && t.claims[p.targetIP].answers() {
		v.cause = accepted
		v.reply = p.answer(t.mac).appendTo(buf[:0])
	}
	return v
}

// answer makes the reply to a request out of our own fields (RFC 826): to the
// one who asks, by the hardware address that it gave.
func (p arpPacket) answer(own mac) arpPacket {
	return arpPacket{
		dst: p.senderMAC, src: own,
		operation: arpReply,
		senderMAC: own, senderIP: p.targetIP,
		targetMAC: p.senderMAC, targetIP: p.senderIP,
	}
}

// frame implements protocol.
func (arpProtocol) frame(k kind, own mac, address netip.Addr) []byte {
	p := arpPacket{
		dst: broadcast, src: own,
		operation: arpRequest,
		senderMAC: own, senderIP: address,
		targetIP: address,
	}
	switch k {
	case reply:
		// Linux takes a reply for an announcement, and so lets go of an old
		// owner that it has just heard, only if the target hardware address
		// is the sender's.
		p.operation = arpReply
		p.targetMAC = own
	case probe:
		// RFC 5227, 2.1.1: so that nobody learns from it.
		p.senderIP = netip.IPv4Unspecified()
	}
	return p.appendTo(make([]byte, 0, arpLen))
}

// filter implements protocol.
func (arpProtocol) filter(own mac, prefixes []netip.Prefix) []bpf.Instruction {
	return slices.Concat(
		dropUnless(bpf.LoadAbsolute{Off: arpTypesAt, Size: 4}, arpTypes),
		dropUnless(bpf.LoadAbsolute{Off: arpSizesAt, Size: 2}, arpSizes),
		dropUnless(bpf.LoadAbsolute{Off: arpOperationAt, Size: 2}, arpRequest, arpReply),
		dropFrom(own),
		acceptIn(arpTargetIPAt, prefixes),
		acceptIn(arpSenderIPAt, prefixes),
		[]bpf.Instruction{drop},
	)
}
