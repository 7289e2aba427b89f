package l2

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func TestCover(t *testing.T) {
	for _, c := range []struct {
		addresses string
		limit     int
		want      string
	}{
		{"", 16, ""},
		{"192.0.2.10", 16, "192.0.2.10/32"},
		{"192.0.2.10 192.0.2.10", 16, "192.0.2.10/32"},
		{"192.0.2.10 192.0.2.11", 16, "192.0.2.10/32 192.0.2.11/32"},
		{"192.0.2.10 192.0.2.11", 1, "192.0.2.10/31"},
		{"192.0.2.10 192.0.2.12 198.51.100.3", 2, "192.0.2.8/29 198.51.100.3/32"},
		{"0.0.0.1 255.255.255.255", 1, "0.0.0.0/0"},
		{"2001:db8::1 2001:db8::2 2001:db8:1::1", 2, "2001:db8::/126 2001:db8:1::1/128"},
	} {
		var addresses []netip.Addr
		for _, a := range strings.Fields(c.addresses) {
			addresses = append(addresses, addr(a))
		}
		var got []string
		for _, p := range cover(addresses, c.limit) {
			got = append(got, p.String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("cover of %q with %d prefixes: %q, want %q", c.addresses, c.limit, s, c.want)
		}
	}
}

// Whatever the addresses are, the prefixes hold all of them, are few and
// disjoint, and their filter lets every one through.
func TestCoverHoldsEveryAddress(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		v6 := r.IntN(2) == 0
		var addresses []netip.Addr
		for range 1 + r.IntN(200) {
			addresses = append(addresses, randomAddress(r, v6))
		}
		prefixes := cover(addresses, maxPrefixes)
		if len(prefixes) > maxPrefixes {
			t.Fatalf("%d prefixes", len(prefixes))
		}
		for i, p := range prefixes {
			if p != p.Masked() {
				t.Fatalf("%s has host bits", p)
			}
			for _, q := range prefixes[i+1:] {
				if p.Overlaps(q) {
					t.Fatalf("%s overlaps %s", p, q)
				}
			}
		}
		for _, a := range addresses {
			held := 0
			for _, p := range prefixes {
				if p.Contains(a) {
					held++
				}
			}
			if held != 1 {
				t.Fatalf("%s is in %d of %v", a, held, prefixes)
			}
		}
	}
}

// However many addresses are announced, a frame meets no longer filter.
func TestFilterIsNoLongerForManyAddresses(t *testing.T) {
	for _, f := range families {
		length := func(n int) int {
			var addresses []netip.Addr
			a := f.offSubnet
			for range n {
				a = a.Next().Next().Next()
				addresses = append(addresses, a)
			}
			raw, err := program(f.protocol, ourMAC, cover(addresses, maxPrefixes))
			must(t, err)
			return len(raw)
		}
		if few, many := length(100), length(10000); many > few {
			t.Errorf("%s: %d instructions for 10,000 addresses, %d for 100", f.name, many, few)
		}
	}
}

// randomAddress draws from several clusters, so that long and short prefixes occur.
func randomAddress(r *rand.Rand, v6 bool) netip.Addr {
	host := r.Uint32() >> r.IntN(32)
	if v6 {
		return addr(fmt.Sprintf("2001:db8:%x::%x:%x", r.IntN(3), host>>16, host&0xffff))
	}
	return netip.AddrFrom4([4]byte{byte(host >> 24), byte(host >> 16), byte(host >> 8), byte(host)})
}

// The filter of a prefix lets through exactly the addresses in it.
func TestFilterIsExactlyItsPrefixes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var addresses []netip.Addr
		for range 1 + r.IntN(40) {
			addresses = append(addresses, randomAddress(r, false))
		}
		prefixes := cover(addresses, maxPrefixes)
		vm := filterOf(t, arpProtocol{}, addresses...)
		for range 50 {
			a := randomAddress(r, false)
			want := false
			for _, p := range prefixes {
				want = want || p.Contains(a)
			}
			q := asks(a)
			q.senderIP = netip.IPv4Unspecified()
			for _, p := range prefixes {
				want = want || p.Contains(q.senderIP)
			}
			if got := passes(t, vm, q.appendTo(nil)); got != want {
				t.Fatalf("%s: passes %v, want %v for %v", a, got, want, prefixes)
			}
		}
	}
}
