package config

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"
)

// The sweep finds what comparing each pair finds.
func TestOverlapsFindsEveryPair(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		spans := make([]netipx.IPRange, random.IntN(12))
		for i := range spans {
			first := byte(random.IntN(60))
			spans[i] = netipx.IPRangeFrom(v4(first), v4(first+byte(random.IntN(12))))
		}
		got := overlaps(spans)
		slices.SortFunc(got, func(a, b overlap) int { return slices.Compare([]int{a.first, a.second}, []int{b.first, b.second}) })
		want := overlapsOneByOne(spans)
		same := cmp.Options{cmp.AllowUnexported(overlap{}), cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Fatalf("%v: -want +got\n%s", spans, diff)
		}
	}
}

// overlapsOneByOne is overlaps in the plainest way.
func overlapsOneByOne(spans []netipx.IPRange) []overlap {
	var out []overlap
	for i, a := range spans {
		for j := i + 1; j < len(spans); j++ {
			b := spans[j]
			from, to := max4(a.From(), b.From()), lesser(a.To(), b.To())
			if !to.Less(from) {
				out = append(out, overlap{i, j, netipx.IPRangeFrom(from, to)})
			}
		}
	}
	return out
}

func v4(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, last}) }

func max4(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}
