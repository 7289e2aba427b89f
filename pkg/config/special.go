package config

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"
)

// special are the blocks that no Service may get an address of.
var special = []struct {
	block netip.Prefix
	use   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network (RFC 791)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback (RFC 1122)"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (RFC 3927)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 5771)"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved, and 255.255.255.255 broadcast (RFC 1112, RFC 919)"},
	{netip.MustParsePrefix("::/128"), "the unspecified address (RFC 4291)"},
	{netip.MustParsePrefix("::1/128"), "loopback (RFC 4291)"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4-mapped (RFC 4291)"},
	{netip.MustParsePrefix("fe80::/10"), "link-local (RFC 4291)"},
	{netip.MustParsePrefix("ff00::/8"), "multicast (RFC 4291)"},
}

// SpecialPurpose says what an address is set aside for that can never be a
// Service's: loopback, link-local, multicast and the like. It returns "" for
// an address that may be given out.
func SpecialPurpose(addr netip.Addr) string {
	addr = addr.WithZone("")
	for _, s := range special {
		if s.block.Contains(addr) {
			return s.use
		}
	}
	return ""
}

// ordinary tells whether a range may be given out.
func ordinary(r netipx.IPRange) error {
	for _, s := range special {
		block := netipx.RangeOfPrefix(s.block)
		switch {
		case !r.Overlaps(block):
		case r.From().Compare(block.From()) >= 0 && r.To().Compare(block.To()) <= 0:
			return fmt.Errorf("lies in %s: %s", s.block, s.use)
		default:
			return fmt.Errorf("contains addresses of %s: %s", s.block, s.use)
		}
	}
	return nil
}
