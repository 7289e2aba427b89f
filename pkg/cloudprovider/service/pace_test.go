package service

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

func TestPausesBetweenRepairsDouble(t *testing.T) {
	p, now := newPace(), noon
	if n := p.wrote("web/s", "a", now); n != 0 {
		t.Fatalf("the first write is no repair, but counts as %d", n)
	}
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if got := p.pause("web/s", "a", now); got != want {
			t.Fatalf("before repair %d: %s, want %s", i+1, got, want)
		}
		now = now.Add(want)
		if got := p.pause("web/s", "a", now); got != 0 {
			t.Fatalf("after the pause: %s", got)
		}
		if n := p.wrote("web/s", "a", now); n != i+1 {
			t.Fatalf("repair %d counts as %d", i+1, n)
		}
	}
	if got := p.pause("web/s", "b", now); got != 0 {
		t.Errorf("something new has to wait for %s", got)
	}
	for range 20 {
		p.wrote("web/s", "a", now)
	}
	if got := p.pause("web/s", "a", now); got != longPause {
		t.Errorf("the longest pause is %s", got)
	}
	if got := p.pause("web/s", "a", now.Add(peaceAfter+time.Second)); got != 0 {
		t.Errorf("after a long peace: %s", got)
	}
	if n := p.wrote("web/s", "a", now.Add(peaceAfter+time.Second)); n != 1 {
		t.Errorf("the first repair after a long peace counts as %d", n)
	}
	p.forget("web/s")
	if n := p.wrote("web/s", "a", now); n != 0 {
		t.Errorf("after it was forgotten: %d", n)
	}
}

func TestMovesTakeTurns(t *testing.T) {
	turns := newTurns()
	pause := func(key ipam.Key, at, want time.Duration) {
		t.Helper()
		if got := turns.pause(key, 10*time.Second, noon.Add(at)); got != want {
			t.Errorf("%s at %s: waits for %s, want %s", key, at, got, want)
		}
	}
	const s = time.Second
	pause("a", 0, 0)
	pause("b", 0, 10*s)
	pause("c", 1*s, 19*s)
	pause("b", 4*s, 6*s) // keeps its turn
	if got := turns.waiting(noon.Add(4 * s)); got != 2 {
		t.Errorf("%d wait", got)
	}
	turns.forget("a")
	pause("b", 10*s, 0)
	pause("b", 11*s, 0) // the write has failed
	turns.forget("b")
	turns.forget("c") // need not move any more
	pause("d", 12*s, 8*s)
	pause("d", 20*s, 0)
	turns.forget("d")
	pause("e", time.Hour, 0)
	pause("f", time.Hour, 10*s)
	pause("g", time.Hour, 20*s)
	// Another interval counts for those who wait as well.
	for interval, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 0: 0} {
		if got := turns.pause("g", interval, noon.Add(time.Hour)); got != want {
			t.Errorf("with an interval of %s: waits for %s", interval, got)
		}
	}
}

func TestReadsNeverGoBehindAnAnswer(t *testing.T) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	r := newReads(corelisters.NewServiceLister(store))
	at := func(version, uid string) *v1.Service {
		return lb("s", func(svc *v1.Service) { svc.ResourceVersion, svc.UID = version, types.UID(uid) })
	}
	listed := func(svc *v1.Service) {
		if err := store.Update(svc); err != nil {
			t.Fatal(err)
		}
	}
	version := func() string {
		if svc := r.get("web/s"); svc != nil {
			return svc.ResourceVersion
		}
		return "none"
	}
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"nothing known", func() {}, "none"},
		{"listed", func() { listed(at("9", "1")) }, "9"},
		{"an answer that is newer", func() { r.put(at("11", "1")) }, "11"},
		{"still newer", func() { listed(at("10", "1")) }, "11"},
		{"the informer has caught up", func() { listed(at("12", "1")) }, "12"},
		{"and is believed from then on", func() { listed(at("10", "1")) }, "10"},
		{"another of that name", func() { r.put(at("12", "1")); listed(at("13", "2")) }, "13"},
		{"versions that cannot be compared", func() { r.put(at("x", "2")) }, "13"},
		{"really gone", func() {
			r.put(at("14", "2"))
			if err := store.Delete(at("13", "2")); err != nil {
				t.Fatal(err)
			}
		}, "none"},
	}
	for _, s := range steps {
		s.do()
		if got := version(); got != s.want {
			t.Fatalf("%s: %s, want %s", s.name, got, s.want)
		}
	}
}
