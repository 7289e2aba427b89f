package ipam

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// linear is how it would be done without thinking: it goes through the
// addresses from the first one on until one is free.
type linear struct {
	first, last netip.Addr
	held        map[netip.Addr]Key
}

func (l *linear) allocate(key Key) (netip.Addr, bool) {
	for addr := l.first; ; addr = addr.Next() {
		if _, taken := l.held[addr]; !taken {
			l.held[addr] = key
			return addr, true
		}
		if addr == l.last {
			return addr, false
		}
	}
}

func wishes(n int) []Request {
	out := make([]Request, 0, n)
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		out = append(out, Request{Key: Key("shop/" + name), Namespace: "shop", Name: name, Created: epoch.Add(time.Duration(i) * time.Second),
			Families: []Family{IPv4}, Policy: SingleStack, Ports: []Port{{"TCP", 80}}})
	}
	return out
}

func slash16(order string) string {
	return "- {addresses: [10.1.0.0/16], order: " + order + "}\n"
}

func filled(b testing.TB, pools string, requests []Request) *Allocator {
	b.Helper()
	a := New()
	a.Configure(document(b, pools), Cluster{})
	for _, r := range requests {
		if d := a.Decide(r, epoch); len(d.Addresses) == 0 {
			b.Fatalf("%s: %+v", r.Key, d)
		}
	}
	return a
}

// BenchmarkAllocate10000 gives out 10,000 addresses of a /16, in each order
// and, to compare, by a linear scan.
func BenchmarkAllocate10000(b *testing.B) {
	requests := wishes(10000)
	for _, order := range []string{"lowest", "highest", "hash"} {
		b.Run(order, func(b *testing.B) {
			for b.Loop() {
				filled(b, slash16(order), requests)
			}
		})
	}
	b.Run("linear scan", func(b *testing.B) {
		for b.Loop() {
			l := &linear{netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("10.1.255.255"), map[netip.Addr]Key{}}
			for _, r := range requests {
				l.allocate(r.Key)
			}
		}
	})
}

// BenchmarkFail asks for an address of a /16 that is full.
func BenchmarkFail(b *testing.B) {
	requests := wishes(1<<16 + 1)
	last := requests[1<<16]
	b.Run("allocator", func(b *testing.B) {
		a := filled(b, slash16("lowest"), requests[:1<<16])
		for b.Loop() {
			if d := a.Decide(last, epoch); d.Reason != PoolExhausted {
				b.Fatalf("%+v", d)
			}
		}
	})
	b.Run("linear scan", func(b *testing.B) {
		l := &linear{netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("10.1.255.255"), map[netip.Addr]Key{}}
		for addr := l.first; addr != l.last.Next(); addr = addr.Next() {
			l.held[addr] = "shop/s"
		}
		for b.Loop() {
			if _, ok := l.allocate(last.Key); ok {
				b.Fatal("there is an address left")
			}
		}
	})
}

// BenchmarkPoolSize gives one address and takes it back, in pools of all
// sizes of which some addresses are held.
func BenchmarkPoolSize(b *testing.B) {
	for _, prefix := range []string{"10.1.0.0/28", "10.1.0.0/16", "10.0.0.0/8", "2001:db8::/112", "2001:db8::/64", "2001:db8::/48"} {
		b.Run(prefix, func(b *testing.B) {
			requests := wishes(11)
			if netip.MustParsePrefix(prefix).Addr().Is6() {
				for i := range requests {
					requests[i].Families = []Family{IPv6}
				}
			}
			a := filled(b, "- {addresses: [\""+prefix+"\"], order: hash}\n", requests[:10])
			for b.Loop() {
				if d := a.Decide(requests[10], epoch); len(d.Addresses) != 1 {
					b.Fatalf("%+v", d)
				}
				a.Release(requests[10].Key, epoch)
			}
		})
	}
}

// BenchmarkHeld gives one address and takes it back, with ever more of them
// held in a pool that is as fragmented as can be.
func BenchmarkHeld(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			requests := wishes(2*n + 1)
			a := filled(b, slash16("lowest"), requests[:2*n])
			for i := 0; i < 2*n; i += 2 {
				a.Release(requests[i].Key, epoch)
			}
			now := epoch.Add(time.Minute)
			for b.Loop() {
				if d := a.Decide(requests[2*n], now); len(d.Addresses) != 1 {
					b.Fatalf("%+v", d)
				}
				a.Release(requests[2*n].Key, now)
				now = now.Add(time.Minute)
			}
		})
	}
}

// BenchmarkRestore20000 starts with 20,000 Services that hold addresses, and
// decides about each once.
func BenchmarkRestore20000(b *testing.B) {
	requests, pools := restored(b, 20000)
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			a := New()
			a.Configure(pools, Cluster{})
			a.Restore(requests)
		}
	})
	b.Run("restore and decide", func(b *testing.B) {
		for b.Loop() {
			a := New()
			a.Configure(pools, Cluster{})
			a.Restore(requests)
			for _, r := range requests {
				if d := a.Decide(r, epoch); d.Reason != Allocated {
					b.Fatalf("%+v", d)
				}
			}
		}
	})
	b.Run("configure", func(b *testing.B) {
		a := New()
		a.Restore(requests)
		for b.Loop() {
			a.Configure(pools, Cluster{})
		}
	})
	b.Run("losses", func(b *testing.B) {
		a := New()
		a.Configure(pools, Cluster{})
		a.Restore(requests)
		for b.Loop() {
			if lost := a.Losses(pools); len(lost) != 0 {
				b.Fatal(lost)
			}
		}
	})
}

// restored makes Services that show addresses, every other one of a /16.
func restored(b testing.TB, n int) ([]Request, []config.Pool) {
	requests := wishes(n)
	addr := netip.MustParseAddr("10.1.0.0")
	for i := range requests {
		requests[i].Held, requests[i].Given = []netip.Addr{addr}, []config.Confirmation{{Address: addr, Pool: "default"}}
		requests[i].HeldSince = epoch.Add(time.Duration(i) * time.Second)
		addr = addr.Next().Next()
	}
	return requests, document(b, slash16("lowest"))
}

// BenchmarkMemory reports how much of the heap an Allocator takes per held
// address, besides the Requests: those stand for the objects of an informer.
func BenchmarkMemory(b *testing.B) {
	const n = 20000
	requests, pools := restored(b, n)
	var perAddress float64
	for b.Loop() {
		before := heap()
		a := New()
		a.Configure(pools, Cluster{})
		a.Restore(requests)
		for _, r := range requests {
			a.Decide(r, epoch)
		}
		perAddress = float64(heap()-before) / n
		runtime.KeepAlive(a)
	}
	runtime.KeepAlive(requests)
	b.ReportMetric(perAddress, "B/address")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkWake frees one address before many that wait for it.
func BenchmarkWake(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			requests := wishes(n + 2)
			a := filled(b, "- {addresses: [192.0.2.1]}\n", requests[:1])
			for _, r := range requests[1:] {
				a.Decide(r, epoch)
			}
			holder, next := 0, 1
			for b.Loop() {
				a.Release(requests[holder].Key, epoch)
				woken := a.Wake()
				if len(woken) != 1 || woken[0] != requests[next].Key {
					b.Fatalf("%v woken, not %s", woken, requests[next].Key)
				}
				// Who was served first waits again, as the last one.
				late := requests[holder]
				late.Created = late.Created.Add(time.Duration(len(requests)) * time.Second)
				requests[holder] = late
				a.Decide(late, epoch)
				holder, next = next, (next+1)%len(requests)
			}
		})
	}
}

// BenchmarkSharing lets Services with one key and one port each look for an
// address to share: there is none, so that each gets its own.
func BenchmarkSharing(b *testing.B) {
	requests := wishes(10000)
	for i := range requests {
		requests[i].SharingKey = "k"
	}
	for b.Loop() {
		filled(b, slash16("lowest"), requests)
	}
}
