package ipam

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"

	"go4.org/netipx"
)

// most is where the counters of addresses stop: an IPv6 pool may hold more
// than a number can say.
const most = math.MaxInt64

// halves returns an address as a number of 128 bits.
func halves(addr netip.Addr) (high, low uint64) {
	b := addr.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// size returns how many addresses a range holds, at most most.
func size(r netipx.IPRange) uint64 {
	fromHigh, fromLow := halves(r.From())
	toHigh, toLow := halves(r.To())
	low, borrow := bits.Sub64(toLow, fromLow, 0)
	high, _ := bits.Sub64(toHigh, fromHigh, borrow)
	if high > 0 || low >= most {
		return most
	}
	return low + 1
}

// plus adds two sizes, up to most.
func plus(a, b uint64) uint64 {
	return min(a+b, most) // both are at most most, so that the sum cannot wrap
}

// sizes returns how many addresses some ranges hold together, at most most.
func sizes(ranges []netipx.IPRange) uint64 {
	var sum uint64
	for _, r := range ranges {
		sum = plus(sum, size(r))
	}
	return sum
}

// offset returns the address that lies n after addr. It must exist.
func offset(addr netip.Addr, n uint64) netip.Addr {
	high, low := halves(addr)
	low, carry := bits.Add64(low, n, 0)
	high += carry
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	out := netip.AddrFrom16(b)
	if addr.Is4() {
		return out.Unmap()
	}
	return out
}

// edge tells whether an address ends in .0 or .255, which some old software
// takes for the address of a network or a broadcast address.
func edge(addr netip.Addr) bool {
	if !addr.Is4() {
		return false
	}
	last := addr.As4()[3]
	return last == 0 || last == 255
}

// edges returns how many addresses of a range end in .0 or .255.
func edges(r netipx.IPRange) uint64 {
	if !r.From().Is4() {
		return 0
	}
	_, from := halves(r.From())
	_, to := halves(r.To())
	below := func(n uint64) uint64 { return (n+255)/256 + n/256 } // of the numbers under n
	return below(to+1) - below(from)
}
