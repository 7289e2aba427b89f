package source

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Cause says why a link never carries an announcement. Changing one is an API change.
type Cause string

// The causes.
const (
	Loopback    Cause = "Loopback"
	NotEthernet Cause = "NotEthernet" // no Ethernet frames, or no Ethernet address
	NoARP       Cause = "NoARP"       // its owner says that nobody is to be asked on it
	Enslaved    Cause = "Enslaved"    // member of a bond, bridge or team: its master has the address
	Virtual     Cause = "Virtual"     // of a container network or the like, and no advertisement names it
)

// linkTable is one reading of all links. It is immutable.
type linkTable struct {
	links   []link // by name
	leftOut map[string]Cause
}

// link is a link that may carry announcements, with its own addresses.
type link struct {
	plan.Link
	mtu       int
	addresses []netip.Addr
}

// readLinks asks the kernel for everything.
func readLinks() (*linkTable, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var routes []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		some, err := netlink.RouteList(nil, family) // of the main table
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		routes = append(routes, some...)
	}
	return newLinkTable(links, addresses, routes), nil
}

func newLinkTable(links []netlink.Link, addresses []netlink.Addr, routes []netlink.Route) *linkTable {
	t := &linkTable{leftOut: map[string]Cause{}}
	kinds := map[int]string{}
	for _, l := range links {
		kinds[l.Attrs().Index] = l.Type()
	}
	for _, l := range links {
		attrs := l.Attrs()
		if cause := leaveOut(attrs, kinds[attrs.MasterIndex]); cause != "" {
			t.leftOut[attrs.Name] = cause
			continue
		}
		t.links = append(t.links, link{mtu: attrs.MTU, Link: plan.Link{
			Name:  attrs.Name,
			Index: attrs.Index,
			MAC:   attrs.HardwareAddr.String(),
			Up:    up(attrs),
		}})
	}
	for i := range t.links {
		t.links[i].addAddresses(addresses)
		t.links[i].addRoutes(routes)
	}
	slices.SortFunc(t.links, func(a, b link) int { return cmp.Compare(a.Name, b.Name) })
	return t
}

// leaveOut returns the cause for which a link is left out, or nothing. master
// is the kind of the link that it is enslaved to: a VRF only groups links that
// keep their own addresses.
func leaveOut(attrs *netlink.LinkAttrs, master string) Cause {
	switch {
	case attrs.RawFlags&unix.IFF_LOOPBACK != 0:
		return Loopback
	case attrs.EncapType != "ether", len(attrs.HardwareAddr) != 6, bytes.Equal(attrs.HardwareAddr, make([]byte, 6)):
		return NotEthernet
	case attrs.RawFlags&unix.IFF_NOARP != 0:
		return NoARP
	case attrs.MasterIndex != 0 && master != "vrf":
		return Enslaved
	default:
		return ""
	}
}

// up tells whether frames can pass. Drivers that keep no operational state
// (RFC 2863 unknown) still say whether there is a carrier.
func up(attrs *netlink.LinkAttrs) bool {
	if attrs.RawFlags&unix.IFF_UP == 0 {
		return false
	}
	switch attrs.OperState {
	case netlink.OperUp:
		return true
	case netlink.OperUnknown:
		return attrs.RawFlags&unix.IFF_LOWER_UP != 0
	default:
		return false
	}
}

// addAddresses adds the link's own addresses and the subnets that they span.
// Link-local ones say nothing about what is reachable.
func (l *link) addAddresses(all []netlink.Addr) {
	for _, a := range all {
		prefix, ok := toPrefix(a.IPNet)
		if a.LinkIndex != l.Index || !ok || prefix.Addr().IsLinkLocalUnicast() || a.Flags&unix.IFA_F_DADFAILED != 0 {
			continue
		}
		l.addresses = append(l.addresses, prefix.Addr())
		l.Prefixes = append(l.Prefixes, prefix.Masked())
	}
	slices.SortFunc(l.addresses, netip.Addr.Compare)
	slices.SortFunc(l.Prefixes, netip.Prefix.Compare)
	l.Prefixes = slices.Compact(l.Prefixes)
}

// addRoutes finds the default route and the lowest metric, which is how an
// administrator says which of several links is meant to be used.
func (l *link) addRoutes(all []netlink.Route) {
	first := true
	for _, r := range all {
		prefix, ok := toPrefix(r.Dst)
		isDefault := r.Dst == nil || ok && prefix.Bits() == 0
		if !isDefault && (!ok || prefix.Addr().IsLinkLocalUnicast()) || !through(r, l.Index) {
			continue
		}
		l.Default = l.Default || isDefault
		if first || r.Priority < l.Metric {
			l.Metric, first = r.Priority, false
		}
	}
}

// through tells whether a unicast route leaves by the link.
func through(r netlink.Route, index int) bool {
	if r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_UNSPEC {
		return false
	}
	return r.LinkIndex == index || slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool {
		return hop.LinkIndex == index
	})
}

func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	address, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	address = address.Unmap()
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(address, min(bits, address.BitLen())), true
}
