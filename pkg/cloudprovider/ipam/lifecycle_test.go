package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// given is what a condition says that confirms addresses.
func given(list ...netip.Addr) []config.Confirmation {
	var out []config.Confirmation
	for _, addr := range list {
		out = append(out, config.Confirmation{Address: addr})
	}
	return out
}

// TestRestoreSettlesDuplicates restores Services that show one address: who
// has held it longest keeps it, in whatever order they are listed, and whether
// the pools are known before or after.
func TestRestoreSettlesDuplicates(t *testing.T) {
	show := func(name string, since, created time.Duration) Request {
		r := wish(t, "shop/"+name)
		r.Held = addresses("192.0.2.10")
		r.Created = epoch.Add(created)
		if since > 0 {
			r.Given, r.HeldSince = given(r.Held...), epoch.Add(since)
		}
		return r
	}
	const h = time.Hour
	for _, tc := range []struct {
		name   string
		keeper Key
		shown  []Request
	}{
		{"the longer holder", "shop/b", []Request{show("a", 3*h, 0), show("b", 2*h, h), show("c", 4*h, 0)}},
		{"of equal ones the older", "shop/c", []Request{show("a", 2*h, h), show("b", 2*h, 2*h), show("c", 2*h, 0)}},
		{"of equal ones the first by name", "shop/a", []Request{show("b", 2*h, h), show("a", 2*h, h)}},
		{"who has it from us", "shop/b", []Request{show("a", 0, 0), show("b", 9*h, 8*h)}},
		{"of strangers the older", "shop/b", []Request{show("a", 0, h), show("b", 0, 0)}},
	} {
		for seed := range uint64(12) {
			r := rand.New(rand.NewPCG(seed, 1))
			pools := document(t, "- addresses: [192.0.2.10-192.0.2.19]\n")
			r.Shuffle(len(tc.shown), func(i, j int) { tc.shown[i], tc.shown[j] = tc.shown[j], tc.shown[i] })
			a := New()
			if seed%2 == 0 {
				a.Configure(pools, Cluster{})
			}
			a.Restore(tc.shown)
			a.Configure(pools, Cluster{})
			r.Shuffle(len(tc.shown), func(i, j int) { tc.shown[i], tc.shown[j] = tc.shown[j], tc.shown[i] })
			for _, request := range tc.shown {
				d := a.Decide(request, epoch.Add(24*h))
				kept := slices.Equal(d.Addresses, request.Held)
				if kept != (request.Key == tc.keeper) || len(d.Addresses) != 1 || d.Reason != Allocated {
					t.Errorf("%s, seed %d: %s is answered %+v", tc.name, seed, request.Key, d)
				}
			}
		}
	}
}

// TestLateDuplicateEvictsTheJunior shows a Service that appears after the
// start and has held an address of another one for longer.
func TestLateDuplicateEvictsTheJunior(t *testing.T) {
	a := New()
	a.Configure(document(t, "- addresses: [192.0.2.10-192.0.2.19]\n"), Cluster{})
	junior := wish(t, "shop/junior")
	d := a.Decide(junior, epoch)
	senior := wish(t, "shop/senior")
	senior.Held, senior.Given, senior.HeldSince = d.Addresses, given(d.Addresses...), epoch.Add(-time.Hour)
	if got := a.Decide(senior, epoch.Add(time.Second)); !slices.Equal(got.Addresses, d.Addresses) {
		t.Errorf("the senior holder is answered %+v", got)
	}
	if woken := a.Wake(); !slices.Equal(woken, []Key{"shop/junior"}) {
		t.Errorf("woken is %v", woken)
	}
	junior.Held, junior.Given, junior.HeldSince = d.Addresses, given(d.Addresses...), epoch
	got := a.Decide(junior, epoch.Add(2*time.Second))
	if len(got.Addresses) != 1 || slices.Equal(got.Addresses, d.Addresses) {
		t.Errorf("the junior holder is answered %+v", got)
	}
}

// TestWakeIsPrecise frees one address before many waiting Services: only the
// one that gets it is woken, and after that nobody.
func TestWakeIsPrecise(t *testing.T) {
	a := New()
	a.Configure(document(t, "- addresses: [192.0.2.10-192.0.2.11]\n- {name: other, addresses: [198.51.100.1], namespaces: [web]}\n"), Cluster{})
	for i := range 100 {
		r := wish(t, fmt.Sprintf("shop/s%02d", i))
		r.Created = epoch.Add(time.Duration(i) * time.Second)
		a.Decide(r, epoch)
	}
	if woken := a.Wake(); len(woken) != 0 {
		t.Errorf("nothing was freed, but woken is %v", woken)
	}
	a.Release("shop/s01", epoch)
	a.Release("shop/s50", epoch) // which waits
	if woken := a.Wake(); !slices.Equal(woken, []Key{"shop/s02"}) {
		t.Errorf("woken is %v", woken)
	}
	a.Configure(document(t, "- addresses: [192.0.2.10-192.0.2.13]\n"), Cluster{})
	if woken := a.Wake(); len(woken) != 96 || woken[0] != "shop/s03" || woken[1] != "shop/s04" {
		t.Errorf("by a wider pool two are served and the others learn its size, but woken is %v", woken)
	}
	a.Configure(document(t, "- addresses: [192.0.2.10-192.0.2.13]\n"), Cluster{})
	if woken := a.Wake(); len(woken) != 0 {
		t.Errorf("the same pools again, but woken is %v", woken)
	}
}

// TestNewcomerComesAfterTheWaiting has a new Service ask before those that
// wait have been told of an address that became free.
func TestNewcomerComesAfterTheWaiting(t *testing.T) {
	a := New()
	a.Configure(document(t, "- addresses: [192.0.2.10]\n"), Cluster{})
	for i, name := range []string{"shop/first", "shop/waits"} {
		r := wish(t, name)
		r.Created = epoch.Add(time.Duration(i) * time.Minute)
		a.Decide(r, epoch)
	}
	a.Release("shop/first", epoch)
	late := wish(t, "shop/late")
	late.Created = epoch.Add(time.Hour)
	if d := a.Decide(late, epoch); len(d.Addresses) != 0 {
		t.Errorf("the newcomer is answered %+v", d)
	}
	if got := a.Assigned("shop/waits"); len(got) != 1 {
		t.Errorf("who waited has %v", got)
	}
}

// TestLossesForetellWhatHappens compares what is foretold of random pools with
// what they do when they come into force.
func TestLossesForetellWhatHappens(t *testing.T) {
	for seed := range 150 {
		l := &life{model: newModel(newWorld(t)), rand: rand.New(rand.NewPCG(uint64(seed), 99))}
		for range 3 {
			l.pools = l.somePools()
			l.reconfigure()
			for len(l.order) < 12 {
				l.create(l.wish())
			}
			next := l.somePools()
			before, waiting, usage := l.a.Holdings(), l.a.Waiting(), l.a.Usage(l.now)
			foretold := map[string]bool{}
			for _, loss := range l.a.Losses(next) {
				foretold[fmt.Sprint(loss.Key, loss.Address)] = true
			}
			if !reflect.DeepEqual(before, l.a.Holdings()) || !reflect.DeepEqual(waiting, l.a.Waiting()) ||
				!reflect.DeepEqual(usage, l.a.Usage(l.now)) {
				t.Fatalf("seed %d: to ask for losses has changed something", seed)
			}
			had := l.statuses()
			l.configure(next)
			lost := map[string]bool{}
			for key, list := range had {
				for _, addr := range list {
					if !slices.Contains(l.objects[key].status, addr) {
						lost[fmt.Sprint(key, addr)] = true
					}
				}
			}
			if !reflect.DeepEqual(foretold, lost) {
				t.Errorf("seed %d: foretold %v, lost %v", seed, foretold, lost)
			}
		}
	}
}

// TestClockThatJumpsBack must not keep freed addresses cooling for longer.
func TestClockThatJumpsBack(t *testing.T) {
	a := New()
	a.Configure(document(t, "- addresses: [192.0.2.10-192.0.2.11]\n"), Cluster{})
	a.Decide(wish(t, "shop/a"), epoch)
	a.Release("shop/a", epoch)
	back := epoch.Add(-time.Hour)
	if d := a.Decide(wish(t, "shop/b"), back); !slices.Equal(d.Addresses, addresses("192.0.2.10")) {
		t.Errorf("an hour earlier: %+v", d)
	}
	if u := a.Usage(back); u[0].Cooling != 0 {
		t.Errorf("still cooling: %+v", u)
	}
}
