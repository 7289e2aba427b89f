package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// TestIntervalsAgreeWithASet compares intervals with a plain set of addresses
// over random additions and cuts, at both ends of the address space as well.
func TestIntervalsAgreeWithASet(t *testing.T) {
	for _, first := range []string{"0.0.0.0", "192.0.2.200", "255.255.255.192", "::", "2001:db8::ffc0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0"} {
		t.Run(first, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 7))
			at := func(n int) netip.Addr { return offset(netip.MustParseAddr(first), uint64(n)) }
			var s intervals
			var plain [64]bool
			for range 3000 {
				from := r.IntN(64)
				to := from + r.IntN(min(64-from, 1+r.IntN(12)))
				span := netipx.IPRangeFrom(at(from), at(to))
				if add := r.IntN(2) == 0; !add {
					s.cut(span)
					clear(plain[from : to+1])
				} else if !slices.Contains(plain[from:to+1], true) {
					s.add(span)
					for i := from; i <= to; i++ {
						plain[i] = true
					}
				}
				compareSets(t, &s, plain, at, r.IntN(64))
				if t.Failed() {
					return
				}
			}
		})
	}
}

func compareSets(t *testing.T, s *intervals, plain [64]bool, at func(int) netip.Addr, start int) {
	t.Helper()
	var want []netip.Addr
	for i, in := range plain {
		if in {
			want = append(want, at(i))
		}
	}
	var got []netip.Addr
	ranges := s.ranges()
	for i, r := range ranges {
		for addr := r.From(); ; addr = addr.Next() {
			got = append(got, addr)
			if addr == r.To() {
				break
			}
		}
		if i > 0 && ranges[i-1].To().Next() == r.From() {
			t.Errorf("%v and %v touch", ranges[i-1], r)
		}
	}
	if !slices.Equal(want, got) {
		t.Errorf("the set is %v instead of %v", got, want)
	}
	picks := map[config.Order]netip.Addr{}
	if len(want) > 0 {
		picks[config.Lowest], picks[config.Highest], picks[config.Hashed] = want[0], want[len(want)-1], want[0]
		if i := slices.IndexFunc(want, func(a netip.Addr) bool { return !a.Less(at(start)) }); i >= 0 {
			picks[config.Hashed] = want[i]
		}
	}
	for _, order := range []config.Order{config.Lowest, config.Highest, config.Hashed} {
		addr, ok := s.pick(order, at(start))
		if ok != (len(want) > 0) || addr != picks[order] {
			t.Errorf("next in the order %s from %s is %s, not %s", order, at(start), addr, picks[order])
		}
	}
}

func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		span  string
		size  uint64
		edges uint64
	}{
		{"192.0.2.1-192.0.2.1", 1, 0},
		{"192.0.2.255-192.0.2.255", 1, 1},
		{"192.0.2.255-192.0.3.0", 2, 2},
		{"192.0.2.0-192.0.2.255", 256, 2},
		{"192.0.2.1-192.0.3.254", 510, 2},
		{"0.0.0.0-255.255.255.255", 1 << 32, 1 << 25},
		{"2001:db8::-2001:db8::1", 2, 0},
		{"2001:db8::-2001:db8::ffff:ffff:ffff:ffff", most, 0},
		{"2001:db8::-2001:db8::7fff:ffff:ffff:fffe", most, 0},
		{"2001:db8::-2001:db8::7fff:ffff:ffff:fffd", most - 1, 0},
		{"::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", most, 0},
	} {
		r := netipx.MustParseIPRange(tc.span)
		if got := size(r); got != tc.size {
			t.Errorf("%s holds %d addresses, not %d", tc.span, got, tc.size)
		}
		if got := edges(r); got != tc.edges {
			t.Errorf("%s holds %d addresses that end in .0 or .255, not %d", tc.span, got, tc.edges)
		}
	}
	if got := plus(most, most); got != most {
		t.Errorf("the sum of two full counters is %d", got)
	}
}

func TestOffset(t *testing.T) {
	for _, tc := range []struct {
		from string
		n    uint64
		want string
	}{
		{"192.0.2.255", 1, "192.0.3.0"},
		{"192.0.2.0", 0, "192.0.2.0"},
		{"2001:db8::ffff:ffff:ffff:ffff", 1, "2001:db8:0:1::"},
		{"2001:db8::1", 1 << 63, "2001:db8::8000:0:0:1"},
	} {
		if got := fmt.Sprint(offset(netip.MustParseAddr(tc.from), tc.n)); got != tc.want {
			t.Errorf("%s + %d is %s, not %s", tc.from, tc.n, got, tc.want)
		}
	}
}
