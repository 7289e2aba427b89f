package l2

import (
	"fmt"
	"net"
)

// Offsets and values of an Ethernet II header. Linux takes a VLAN tag off
// before a packet socket or its filter sees the frame.
const (
	ethernetLen = 14

	etherTypeIPv4 = 0x0800
	etherTypeARP  = 0x0806
	etherTypeIPv6 = 0x86dd
)

// mac is an Ethernet address.
type mac [6]byte

var broadcast = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// parseMAC reads what net.HardwareAddr prints. A link whose address is not an
// Ethernet unicast address can carry no announcement.
func parseMAC(s string) (mac, error) {
	a, err := net.ParseMAC(s)
	if err != nil {
		return mac{}, err
	}
	if len(a) != len(mac{}) || !mac(a).unicast() {
		return mac{}, fmt.Errorf("%s is no Ethernet unicast address", s)
	}
	return mac(a), nil
}

func (m mac) String() string { return net.HardwareAddr(m[:]).String() }

// unicast tells whether m can be the address of one station.
func (m mac) unicast() bool { return !m.group() && m != mac{} }

// group tells whether m is a multicast or the broadcast address.
func (m mac) group() bool { return m[0]&1 == 1 }
