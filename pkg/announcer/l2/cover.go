package l2

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
)

// maxPrefixes bounds the length of a filter, and so what an unrelated frame
// costs, whatever number of addresses there is.
const maxPrefixes = 16

// cover returns at most limit disjoint prefixes that hold all addresses, which
// must be of one family, sorted. Seen as a binary tree the addresses are cut
// apart where they part highest up, so that a prefix spans no wide gap while a
// narrower one could be spanned instead.
func cover(addresses []netip.Addr, limit int) []netip.Prefix {
	sorted := slices.Clone(addresses)
	slices.SortFunc(sorted, netip.Addr.Compare)
	sorted = slices.Compact(sorted)
	if len(sorted) == 0 {
		return nil
	}
	var out []netip.Prefix
	from := 0
	for _, to := range append(cuts(sorted, limit-1), len(sorted)) {
		first, last := sorted[from], sorted[to-1]
		out = append(out, netip.PrefixFrom(first, commonBits(first, last)).Masked())
		from = to
	}
	return out
}

// cuts returns, ascending, the n places in sorted before which a new prefix
// starts. Two neighbours part at an inner node of the tree, each pair at
// another one, and the smaller what they share the higher the node. A node's
// ancestors therefore come before it, and the pieces are whole subtrees.
func cuts(sorted []netip.Addr, n int) []int {
	type place struct{ at, shared int }
	places := make([]place, 0, len(sorted))
	for i := 1; i < len(sorted); i++ {
		places = append(places, place{i, commonBits(sorted[i-1], sorted[i])})
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.shared, b.shared) })
	out := make([]int, 0, n+1)
	for _, p := range places[:min(n, len(places))] {
		out = append(out, p.at)
	}
	slices.Sort(out)
	return out
}

// commonBits returns the length of the longest prefix that holds both addresses.
func commonBits(a, b netip.Addr) int {
	x, y := a.As16(), b.As16()
	for i := range x {
		if differ := x[i] ^ y[i]; differ != 0 {
			return i*8 + bits.LeadingZeros8(differ) - (128 - a.BitLen())
		}
	}
	return a.BitLen()
}
