package config_test

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestPoolOfFindsTheEdgesAndNothingBeyond(t *testing.T) {
	c := load(t, head+`pools:
- name: a
  addresses: [192.0.2.16/28, 192.0.2.64-192.0.2.70, 2001:db8::/64]
  exclude: [192.0.2.20-192.0.2.22]
- name: b
  addresses: [192.0.2.20, 192.0.2.71]
- name: empty
  addresses: [192.0.2.80]
  exclude: [192.0.2.80]
`)
	for addr, want := range map[string]string{
		"192.0.2.15": "", "192.0.2.16": "a", "192.0.2.19": "a", "192.0.2.20": "b", "192.0.2.21": "", "192.0.2.23": "a",
		"192.0.2.31": "a", "192.0.2.32": "", "192.0.2.63": "", "192.0.2.64": "a", "192.0.2.70": "a", "192.0.2.71": "b",
		"192.0.2.72": "", "192.0.2.80": "", "0.0.0.0": "", "255.255.255.255": "",
		"2001:db8::": "a", "2001:db8::ffff:ffff:ffff:ffff": "a", "2001:db8:0:1::": "", "::": "", "::ffff:192.0.2.16": "",
	} {
		pool, found := c.PoolOf(netip.MustParseAddr(addr))
		if pool.Name != want || found != (want != "") {
			t.Errorf("%s: got %q, %t, want %q", addr, pool.Name, found, want)
		}
		if found && !pool.Contains(netip.MustParseAddr(addr)) {
			t.Errorf("pool %s does not contain %s", pool.Name, addr)
		}
	}
	if _, found := c.PoolOf(netip.Addr{}); found {
		t.Error("the zero address is in a pool")
	}
}

func TestSizeSaturates(t *testing.T) {
	for items, want := range map[string]uint64{
		"2001:db8::/66":                                 1 << 62,
		"2001:db8::/66, 2001:db8::4000:0:0:0/66":        math.MaxInt64, // 2^63 is one too many
		"2001:db8::/65":                                 math.MaxInt64,
		"2001:db8::/64":                                 math.MaxInt64,
		"2001:db8::/64, 2001:db8:1::/64":                math.MaxInt64,
		"2001:db8::-2001:db8::7fff:ffff:ffff:fffe":      math.MaxInt64,
		"2001:db8::-2001:db8::7fff:ffff:ffff:fffd":      math.MaxInt64 - 1,
		"2001:db8::ffff:ffff:ffff:ffff-2001:db8:0:1::1": 3, // crosses the lower half
	} {
		if got := load(t, documentWith(items)).Pools[0].Size(config.IPv6); got != want {
			t.Errorf("%s: got %d, want %d", items, got, want)
		}
	}
}

func BenchmarkPoolOf(b *testing.B) {
	for _, pools := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(pools), func(b *testing.B) {
			c := load(b, manyPools(pools))
			addr := netip.AddrFrom4([4]byte{10, byte((pools - 1) >> 8), byte(pools - 1), 9})
			for b.Loop() {
				if _, found := c.PoolOf(addr); !found {
					b.Fatal("not found")
				}
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for name, document := range map[string]string{
		"smallest":       config.Smallest,
		"one /48":        documentWith("2001:db8::/48"),
		"1000 pools":     manyPools(1000),
		"10000 singles":  documentWith(singles(10000)...),
		"10000 excluded": documentWith("10.0.0.0/8") + "  exclude: [" + strings.Join(singles(10000), ",") + "]\n",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				load(b, document)
			}
		})
	}
}

func manyPools(n int) string {
	var b strings.Builder
	b.WriteString(head + "pools:\n")
	for i := range n {
		fmt.Fprintf(&b, "- name: pool-%d\n  addresses: [10.%d.%d.0/24]\n", i, i>>8, i&255)
	}
	return b.String()
}

// singles returns every other address of 10.0.0.0/8.
func singles(n int) []string {
	var out []string
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{10, byte(i >> 15), byte(i >> 7), byte(i << 1)}).String())
	}
	return out
}
