package observe

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
)

const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	arpRequest = 1

	icmpv6                = 58
	neighborSolicitation  = 135
	neighborAdvertisement = 136

	optionSourceMAC = 1
	optionTargetMAC = 2
)

const (
	etherLen = 14
	arpLen   = 28
	ipv6Len  = 40
	naLen    = 24 // of a solicitation or advertisement without options
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// An answer is one frame that says which MAC address has an IP address.
type answer struct {
	addr netip.Addr       // whose MAC address it tells
	mac  net.HardwareAddr // as its ARP or ND message says, not its frame
	to   netip.Addr       // who is told; addr itself or a group when nobody had asked
}

// ether puts a payload into a frame.
func ether(dst, src net.HardwareAddr, etherType uint16, payload []byte) []byte {
	frame := make([]byte, 0, etherLen+len(payload))
	frame = append(frame, dst...)
	frame = append(frame, src...)
	frame = binary.BigEndian.AppendUint16(frame, etherType)
	return append(frame, payload...)
}

// arpQuestion is a broadcast ARP request (RFC 826).
func arpQuestion(mac net.HardwareAddr, sender, target netip.Addr) []byte {
	arp := []byte{0, 1, 0x08, 0x00, 6, 4, 0, arpRequest}
	arp = append(arp, mac...)
	arp = append(arp, sender.AsSlice()...)
	arp = append(arp, make([]byte, 6)...)
	arp = append(arp, target.AsSlice()...)
	return ether(broadcast, mac, etherARP, arp)
}

// parseARP reads an ARP frame of either operation; both tell the sender's MAC
// address.
func parseARP(frame []byte) (answer, bool) {
	if len(frame) < etherLen+arpLen || binary.BigEndian.Uint16(frame[12:]) != etherARP {
		return answer{}, false
	}
	arp := frame[etherLen:]
	if !bytes.Equal(arp[:6], []byte{0, 1, 0x08, 0x00, 6, 4}) {
		return answer{}, false
	}
	return answer{
		addr: netip.AddrFrom4([4]byte(arp[14:18])),
		mac:  bytes.Clone(arp[8:14]),
		to:   netip.AddrFrom4([4]byte(arp[24:28])),
	}, true
}

// ndpQuestion is a Neighbor Solicitation to the solicited-node group of the
// target (RFC 4861, section 4.3).
func ndpQuestion(mac net.HardwareAddr, sender, target netip.Addr) []byte {
	group := solicitedNode(target)
	icmp := make([]byte, 8, naLen+8)
	icmp[0] = neighborSolicitation
	icmp = append(icmp, target.AsSlice()...)
	icmp = append(icmp, optionSourceMAC, 1)
	icmp = append(icmp, mac...)
	binary.BigEndian.PutUint16(icmp[2:], checksum(sender, group, icmp))

	ip := []byte{0x60, 0, 0, 0, 0, byte(len(icmp)), icmpv6, 255}
	ip = append(ip, sender.AsSlice()...)
	ip = append(ip, group.AsSlice()...)
	return ether(groupMAC(group), mac, etherIPv6, append(ip, icmp...))
}

// parseNDP reads a frame with a Neighbor Advertisement (RFC 4861, section 4.4).
func parseNDP(frame []byte) (answer, bool) {
	if len(frame) < etherLen+ipv6Len+naLen || binary.BigEndian.Uint16(frame[12:]) != etherIPv6 {
		return answer{}, false
	}
	ip, icmp := frame[etherLen:], frame[etherLen+ipv6Len:]
	if ip[6] != icmpv6 || ip[7] != 255 || icmp[0] != neighborAdvertisement {
		return answer{}, false
	}
	mac := net.HardwareAddr(frame[6:12])
	for options := icmp[naLen:]; len(options) >= 8 && options[1] > 0; {
		if options[0] == optionTargetMAC {
			mac = net.HardwareAddr(options[2:8])
		}
		options = options[min(8*int(options[1]), len(options)):]
	}
	return answer{
		addr: netip.AddrFrom16([16]byte(icmp[8:24])),
		mac:  bytes.Clone(mac),
		to:   netip.AddrFrom16([16]byte(ip[24:40])),
	}, true
}

// solicitedNode is the group that every holder of addr listens to.
func solicitedNode(addr netip.Addr) netip.Addr {
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	low := addr.As16()
	copy(group[13:], low[13:])
	return netip.AddrFrom16(group)
}

func groupMAC(group netip.Addr) net.HardwareAddr {
	low := group.As16()
	return append(net.HardwareAddr{0x33, 0x33}, low[12:]...)
}

// checksum is that of ICMPv6 (RFC 8200, section 8.1).
func checksum(src, dst netip.Addr, icmp []byte) uint16 {
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(icmp)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, icmpv6)
	data := append(pseudo, icmp...)
	if len(data)%2 == 1 {
		data = append(data, 0)
	}
	var sum uint32
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
