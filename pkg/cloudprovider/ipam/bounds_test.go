package ipam

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// spent returns the least processor time of some runs. Unlike the time on
// the wall, it does not depend on what else the machine does.
func spent(t *testing.T, run func()) time.Duration {
	t.Helper()
	least := time.Duration(1<<63 - 1)
	runs := 3
	if slowdown > 1 {
		runs = 1
	}
	for range runs {
		runtime.GC()
		before := processorTime(t)
		run()
		least = min(least, processorTime(t)-before)
	}
	return least
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestBounds holds the Allocator to the figures that are promised for it, each
// accepted twice, and prints them beside those of a linear scan.
func TestBounds(t *testing.T) {
	requests := wishes(1<<16 + 1)
	within := func(what string, bound, got time.Duration, beside string) {
		t.Helper()
		t.Logf("%s: %v (promised: %v; %s)", what, got, bound, beside)
		if got > 2*slowdown*bound {
			t.Errorf("%s takes %v, promised are %v", what, got, bound)
		}
	}

	got := spent(t, func() { filled(t, slash16("lowest"), requests[:10000]) })
	l := &linear{netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("10.1.255.255"), map[netip.Addr]Key{}}
	const part = 2000 // of the linear scan, which takes the square of its number
	before := processorTime(t)
	for _, r := range requests[:part] {
		l.allocate(r.Key)
	}
	scan := (processorTime(t) - before) * (10000 / part) * (10000 / part)
	within("10,000 allocations from a /16", 100*time.Millisecond, got, "by a linear scan: "+scan.String())

	full := filled(t, slash16("lowest"), requests[:1<<16])
	const tries = 2000
	got = spent(t, func() {
		for range tries {
			full.Decide(requests[1<<16], epoch)
		}
	}) / tries
	for addr := l.first; addr != l.last.Next(); addr = addr.Next() {
		l.held[addr] = "shop/s"
	}
	scan = spent(t, func() { l.allocate("shop/one-more") })
	within("a failed allocation on a full /16", 10*time.Microsecond, got, "by a linear scan: "+scan.String())

	held, pools := restored(t, 20000)
	got = spent(t, func() {
		a := New()
		a.Configure(pools, Cluster{})
		a.Restore(held)
	})
	within("restore of 20,000 Services", 500*time.Millisecond, got, "each at its own address")
}

// TestSizeOfAPoolCostsNothing gives one address and takes it back, in a small
// and in a large pool of which a few addresses are held.
func TestSizeOfAPoolCostsNothing(t *testing.T) {
	cost := func(prefix string) time.Duration {
		requests := wishes(11)
		for i := range requests {
			requests[i].Families = []Family{IPv6}
		}
		a := filled(t, "- {addresses: [\""+prefix+"\"]}\n", requests[:10])
		const rounds = 2000
		return spent(t, func() {
			for range rounds {
				a.Decide(requests[10], epoch)
				a.Release(requests[10].Key, epoch)
			}
		}) / rounds
	}
	small, large := cost("2001:db8::/124"), cost("2001:db8::/64")
	t.Logf("an address of a /124: %v, of a /64: %v", small, large)
	if large > 3*small {
		t.Errorf("an address of a /64 takes %v, one of a /124 %v", large, small)
	}
}

// TestMemoryPerAddress counts what an Allocator takes of the heap for each
// address, in a pool that is as fragmented as can be.
func TestMemoryPerAddress(t *testing.T) {
	const n, bound = 20000, 500
	held, pools := restored(t, n)
	before := heap()
	a := New()
	a.Configure(pools, Cluster{})
	a.Restore(held)
	for _, r := range held {
		a.Decide(r, epoch)
	}
	got := (heap() - before) / n
	runtime.KeepAlive(a)
	runtime.KeepAlive(held)
	t.Logf("%d bytes per held address (promised: %d)", got, bound)
	if got > bound {
		t.Errorf("%d bytes per held address, promised are %d", got, bound)
	}
}
