package decide

import (
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// AddressType is the type of a Node's address.
type AddressType string

// The types, by the names that Node.status.addresses uses.
const (
	InternalIP AddressType = "InternalIP"
	ExternalIP AddressType = "ExternalIP"
)

// An Address is an address of a Node.
type Address struct {
	Type AddressType
	Addr netip.Addr
}

// AddressFacts is what is known about the addresses of a Node.
type AddressFacts struct {
	Provided []netip.Addr // the kubelet was given them, in this order
	Known    []netip.Addr // the inventory or the host has them
	Current  []Address    // the Node has them
}

// Addresses returns the addresses that a Node should have, most important
// first and each once. Those that the kubelet was given come first, whatever
// else is known, and in their order. Without known addresses the Node keeps
// those that it has. Addresses of pools and excluded ones are left out.
func Addresses(f AddressFacts, c config.Config) []Address {
	var out []Address
	add := func(a Address) {
		if !slices.ContainsFunc(out, func(b Address) bool { return a.Addr == b.Addr }) {
			out = append(out, a)
		}
	}
	for _, addr := range f.Provided {
		add(Address{InternalIP, addr})
	}
	known := 0
	for _, addr := range f.Known {
		if kind, ok := kindOf(addr, len(f.Provided) > 0, c.Nodes); ok && !Forbidden(addr, c) {
			known++
			add(Address{kind, addr})
		}
	}
	for _, a := range f.Current {
		if known == 0 && !Forbidden(a.Addr, c) {
			add(a)
		}
	}
	return out
}

// Forbidden tells whether an address can never be a Node's: it is in a pool,
// excluded, or of a special purpose.
func Forbidden(addr netip.Addr, c config.Config) bool {
	if _, pooled := c.PoolOf(addr); pooled || config.SpecialPurpose(addr) != "" {
		return true
	}
	for _, r := range c.Nodes.Exclude {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}

// kindOf returns the type of a known address, and false if it is filtered out.
// Next to addresses that the kubelet was given, no other one can be an
// InternalIP: the framework drops those.
func kindOf(addr netip.Addr, provided bool, n config.Nodes) (AddressType, bool) {
	in := func(prefixes []netip.Prefix) bool {
		return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	switch {
	case in(n.ExternalCIDRs):
		return ExternalIP, true
	case in(n.InternalCIDRs):
		return InternalIP, true
	case len(n.InternalCIDRs)+len(n.ExternalCIDRs) > 0:
		return "", false
	case provided:
		return ExternalIP, true
	}
	return InternalIP, true
}
