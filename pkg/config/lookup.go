package config

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"sort"

	"go4.org/netipx"
)

// Family is an address family.
type Family string

// The families, by the names that Service.spec.ipFamilies uses.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyOf returns the family of a valid address.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// Contains tells whether addr is in the pool: in its addresses and not
// excluded. It takes time logarithmic in the number of ranges.
func (p Pool) Contains(addr netip.Addr) bool {
	return contains(p.Ranges, addr)
}

// PoolOf returns the pool that holds addr. It looks at each pool, and in each
// takes time logarithmic in the number of its ranges.
func (c Config) PoolOf(addr netip.Addr) (Pool, bool) {
	for i := range c.Pools {
		if contains(c.Pools[i].Ranges, addr) {
			return c.Pools[i], true
		}
	}
	return Pool{}, false
}

// Size returns how many addresses of a family the pool has. It saturates at
// the largest int64.
func (p Pool) Size(family Family) uint64 {
	var sum uint64
	for _, r := range p.Ranges {
		if FamilyOf(r.From()) == family {
			sum = min(sum+rangeSize(r), math.MaxInt64)
		}
	}
	return sum
}

// rangeSize counts the addresses of a range, up to the largest int64.
func rangeSize(r netipx.IPRange) uint64 {
	fromHigh, fromLow := halves(r.From())
	toHigh, toLow := halves(r.To())
	low, borrow := bits.Sub64(toLow, fromLow, 0)
	high, _ := bits.Sub64(toHigh, fromHigh, borrow)
	if high > 0 || low >= math.MaxInt64 {
		return math.MaxInt64
	}
	return low + 1
}

// contains looks for addr in ascending, disjoint ranges.
func contains(ranges []netipx.IPRange, addr netip.Addr) bool {
	i := search(ranges, addr)
	return i < len(ranges) && ranges[i].Contains(addr)
}

// search returns the index of the first range that does not end before addr.
func search(ranges []netipx.IPRange, addr netip.Addr) int {
	return sort.Search(len(ranges), func(i int) bool { return ranges[i].To().Compare(addr) >= 0 })
}

// outside returns the first address of span that is in none of the ranges,
// which are ascending and neither overlap nor touch.
func outside(ranges []netipx.IPRange, span netipx.IPRange) (netip.Addr, bool) {
	i := search(ranges, span.From())
	switch {
	case i == len(ranges) || !ranges[i].Contains(span.From()):
		return span.From(), true
	case ranges[i].To().Less(span.To()):
		return ranges[i].To().Next(), true
	default:
		return netip.Addr{}, false
	}
}

// halves returns an address as two numbers.
func halves(addr netip.Addr) (high, low uint64) {
	b := addr.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}
