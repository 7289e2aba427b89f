package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// These tests are named after faults that users of comparable systems met.

func TestB010GrownOrSplitPoolMovesNobody(t *testing.T) {
	for _, order := range []string{"lowest", "highest", "hash"} {
		for _, mismatch := range []string{"keep", "reassign"} {
			t.Run(order+" "+mismatch, func(t *testing.T) {
				pool := func(addresses string) string {
					return fmt.Sprintf("- {addresses: [%s], order: %s, onMismatch: %s}\n", addresses, order, mismatch)
				}
				w := newWorld(t)
				w.configure(document(t, pool("198.51.100.120-198.51.100.127")))
				for i := range 5 {
					w.create(wish(t, fmt.Sprintf("shop/s%d", i)))
				}
				before, writes := w.statuses(), w.writes
				w.configure(document(t, pool("198.51.100.117-198.51.100.127")))
				w.restart(w.order)
				w.configure(document(t, pool(withHole(before))))
				w.restart(w.order)
				if after := w.statuses(); !reflect.DeepEqual(before, after) || w.writes != writes {
					t.Errorf("%v became %v with %d writes", before, after, w.writes-writes)
				}
			})
		}
	}
}

// withHole is what is left of 198.51.100.117 to .127 when an unused address is
// cut out of the middle.
func withHole(held map[Key][]netip.Addr) string {
	for addr := netip.MustParseAddr("198.51.100.121"); ; addr = addr.Next() {
		used := false
		for _, list := range held {
			used = used || slices.Contains(list, addr)
		}
		if !used {
			return fmt.Sprintf("198.51.100.117-%s, %s-198.51.100.127", addr.Prev(), addr.Next())
		}
	}
}

func TestB013GlobalPoolGivesEachServiceItsOwnAddress(t *testing.T) {
	w := newWorld(t)
	w.configure(document(t, "- addresses: [198.51.100.32-198.51.100.71]\n"))
	// The allocator is called by one at a time; in which order is up to chance.
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("a/s%d", i), fmt.Sprintf("b/s%d", i))
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	holder := map[netip.Addr]Key{}
	for _, key := range keys {
		w.create(wish(t, key))
		status := w.objects[Key(key)].status
		if len(status) != 1 {
			t.Fatalf("%s has %v", key, status)
		}
		if other, taken := holder[status[0]]; taken {
			t.Errorf("%s and %s both have %s", other, key, status[0])
		}
		holder[status[0]] = Key(key)
	}
	if len(holder) != 40 {
		t.Errorf("40 Services have %d addresses", len(holder))
	}
}

func TestB015RequestOutsideThePoolsIsRefused(t *testing.T) {
	w := newWorld(t)
	w.configure(document(t, "- addresses: [198.51.100.32-198.51.100.63, \"2001:db8::/120\"]\n"))
	w.cluster.NodeAddresses[netip.MustParseAddr("198.51.100.11")] = "n1"
	w.cluster.NodeAddresses[netip.MustParseAddr("198.51.100.40")] = "n2"
	w.cluster.Reserved = addresses("198.51.100.41")
	w.reconfigure()
	outside := []string{"198.51.100.111", "198.51.100.1", "198.51.100.11", "0.0.0.0", "127.0.0.1", "224.0.0.1",
		"255.255.255.255", "fe80::1", "::1", "::", "ff02::1", "fe80::1%eth0", "2001:db8::1%eth0", "::ffff:198.51.100.50"}
	for i, address := range outside {
		r := wish(t, fmt.Sprintf("shop/s%d", i), "families=v4")
		if strings.Contains(address, ":") {
			r.Families = []Family{IPv6}
		}
		r.Addresses = addresses(address)
		w.create(r)
		o := w.objects[r.Key]
		if len(o.status) != 0 || o.reason != AddressNotInPool || !strings.Contains(o.answer.Message, "not in any pool") {
			t.Errorf("%s was requested: %+v", address, o.answer)
		}
	}
	for address, reason := range map[string]Reason{"198.51.100.40": NodeAddress, "198.51.100.41": AddressInUse} {
		w.create(wish(t, "shop/"+address, "addresses="+address))
		if o := w.objects[Key("shop/"+address)]; len(o.status) != 0 || o.reason != reason {
			t.Errorf("%s was requested: %+v", address, o.answer)
		}
	}
	// Put into a status by hand, such an address is left alone and never
	// announced: the reason is not OK.
	w.create(wish(t, "shop/by-hand"), netip.MustParseAddr("198.51.100.111"))
	if o := w.objects["shop/by-hand"]; o.reason != ForeignAddress || o.reason.OK() || len(w.a.Assigned("shop/by-hand")) != 0 {
		t.Errorf("a status with a foreign address: %+v", o.answer)
	}
}

func TestB023RestartMovesNobodyAndServesNobodyOutOfTurn(t *testing.T) {
	for _, variant := range []struct {
		name           string
		pool           string
		held, services int
	}{
		{"two addresses, a waits", "- addresses: [192.0.2.10-192.0.2.11]\n", 2, 3},
		{"forty addresses, fifty Services", "- addresses: [192.0.2.10-192.0.2.49]\n", 40, 50},
	} {
		t.Run(variant.name, func(t *testing.T) {
			w := newWorld(t)
			w.configure(document(t, variant.pool))
			// Those that come last sort first by name.
			for i := range variant.services {
				w.create(wish(t, fmt.Sprintf("shop/s%02d", variant.services-i)))
				w.now = w.now.Add(time.Second)
			}
			before, writes := w.statuses(), w.writes
			if n := served(before); n != variant.held {
				t.Fatalf("%d Services have an address, not %d", n, variant.held)
			}
			r := rand.New(rand.NewPCG(23, 23))
			for range 20 {
				order := slices.Clone(w.order)
				r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				w.restart(order)
				if after := w.statuses(); !reflect.DeepEqual(before, after) || w.writes != writes {
					t.Fatalf("restart in the order %v: %v became %v with %d writes", order, before, after, w.writes-writes)
				}
			}
		})
	}
}

func served(statuses map[Key][]netip.Addr) int {
	n := 0
	for _, list := range statuses {
		if len(list) > 0 {
			n++
		}
	}
	return n
}

func TestB016EqualPortOnOneAddressIsRefused(t *testing.T) {
	w := newWorld(t)
	w.configure(document(t, "- addresses: [198.51.100.40-198.51.100.41]\n"))
	w.create(wish(t, "shop/s1", "addresses=198.51.100.40", "key=k"))
	w.create(wish(t, "shop/s2", "addresses=198.51.100.40"))
	w.create(wish(t, "shop/s3", "addresses=198.51.100.40", "key=k"))
	for key, reason := range map[Key]Reason{"shop/s2": AddressInUse, "shop/s3": SharingRefused} {
		o := w.objects[key]
		if len(o.status) != 0 || o.reason != reason {
			t.Errorf("%s: %+v", key, o.answer)
		}
		for _, word := range []string{"shop/s1", "TCP 80"} {
			if !strings.Contains(o.answer.Message, word) {
				t.Errorf("the message to %s does not name %s: %s", key, word, o.answer.Message)
			}
		}
	}
}

func TestB020ManualPoolKeepsItsServices(t *testing.T) {
	w := newWorld(t)
	for _, pools := range []string{
		"- {name: build, addresses: [198.51.100.32/28]}\n",
		"- {name: build, addresses: [198.51.100.32/28], autoAssign: false}\n- {name: qa, addresses: [198.51.100.64/28], autoAssign: false}\n",
		"- {name: build, addresses: [198.51.100.32/28], onMismatch: reassign, autoAssign: false}\n",
		"- {name: build, addresses: [198.51.100.32/28]}\n",
	} {
		w.configure(document(t, pools))
		if len(w.order) == 0 {
			for i := range 3 {
				w.create(wish(t, fmt.Sprintf("shop/s%d", i)))
			}
		}
		before, writes := w.statuses(), w.writes
		w.restart(w.order)
		if after := w.statuses(); served(after) != 3 || !reflect.DeepEqual(before, after) || w.writes != writes {
			t.Errorf("with %s%v became %v", pools, before, after)
		}
	}
	if w.writes != 3 {
		t.Errorf("%d writes for three Services", w.writes)
	}
}

func TestB162LargePoolsCostNoMoreThanSmallOnes(t *testing.T) {
	w := newWorld(t)
	w.configure(document(t, `- {name: large, addresses: ["2001:db8:100::/64", "203.0.113.0/24"], avoidBuggyIPs: true}
- {name: larger, addresses: ["2001:db8:8000::/48"], autoAssign: false}
`))
	for i := range 5000 {
		w.create(wish(t, fmt.Sprintf("shop/s%d", i), "families=v6"))
	}
	w.create(wish(t, "shop/last", "families=v6", "addresses=2001:db8:100::ffff:ffff:ffff:ffff"))
	if got := w.objects["shop/last"].status; len(got) != 1 {
		t.Errorf("the last address of a /64: %+v", w.objects["shop/last"].answer)
	}
	for _, u := range w.a.Usage(w.now) {
		switch {
		case u.Family == IPv6 && u.Size != most:
			t.Errorf("%+v: the size does not saturate", u)
		case u.Pool == "large" && u.Family == IPv6 && u.Held != 5001:
			t.Errorf("%+v: 5001 are held", u)
		case u.Family == IPv4 && u.Size != 254:
			t.Errorf("%+v: 254 can be given out", u)
		}
	}
	// What is free of the /64 is one range, and what a pool avoids is no part of the cost.
	if n := len(w.a.byName["large"].general[1].rested.ranges()); n != 1 {
		t.Errorf("the free addresses of a /64 are kept in %d pieces", n)
	}
}
