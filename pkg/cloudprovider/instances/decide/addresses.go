package decide

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

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
	Held     []netip.Addr // Services hold them, for certain
}

// Addresses returns the addresses that a Node should have, most important
// first and each once. Those that the kubelet was given come first, whatever
// else is known, and in their order. Without known addresses the Node keeps
// those that it has. Excluded addresses are left out; of those in pools a Node
// gets none, but keeps what is its own.
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
		if kind, ok := kindOf(addr, len(f.Provided) > 0, c.Nodes); ok && f.possible(addr, c) {
			known++
			add(Address{kind, addr})
		}
	}
	for _, a := range f.Current {
		if known == 0 && f.possible(a.Addr, c) {
			add(a)
		}
	}
	return out
}

// possible tells whether an address that the kubelet was not given can be the
// Node's. One of a pool that the Node has is its own, as no Node's address is
// ever given out, and it would be if the Node lost it; unless a Service holds
// it: then the kubelet found it on a link and took it for the Node's.
func (f AddressFacts) possible(addr netip.Addr, c config.Config) bool {
	if Excluded(addr, c) {
		return false
	}
	if _, pooled := c.PoolOf(addr); !pooled {
		return true
	}
	has := slices.ContainsFunc(f.Current, func(a Address) bool { return a.Addr == addr })
	return has && !slices.Contains(f.Held, addr)
}

// Excluded tells whether an address can never be a Node's: the configuration
// says so, or it is of a special purpose.
func Excluded(addr netip.Addr, c config.Config) bool {
	return config.SpecialPurpose(addr) != "" ||
		slices.ContainsFunc(c.Nodes.Exclude, func(r netipx.IPRange) bool { return r.Contains(addr) })
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
