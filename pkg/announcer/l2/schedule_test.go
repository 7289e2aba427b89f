package l2

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestScheduleServesDueClaimsByRank(t *testing.T) {
	s := newSchedule()
	start := time.Unix(0, 0)
	places := map[string]*place{}
	put := func(name string, due time.Duration, rank int) {
		if places[name] == nil {
			places[name] = &place{claim: &claim{address: addr(name)}}
		}
		s.put(places[name], start.Add(due), rank)
	}
	put("192.0.2.1", time.Second, 0)
	put("192.0.2.2", 0, 3)
	put("192.0.2.3", 0, 1)
	put("192.0.2.4", 0, 1)
	put("192.0.2.5", 0, 0)
	put("192.0.2.5", 3*time.Second, 0) // moved
	put("192.0.2.6", 0, 0)
	s.remove(places["192.0.2.6"])
	s.remove(places["192.0.2.6"])

	var got []string
	for now := start; now.Before(start.Add(5 * time.Second)); now = now.Add(time.Second) {
		for c := s.next(now); c != nil; c = s.next(now) {
			got = append(got, fmt.Sprint(now.Sub(start), " ", c.address))
			s.remove(places[c.address.String()])
		}
	}
	want := "[0s 192.0.2.3 0s 192.0.2.4 0s 192.0.2.2 1s 192.0.2.1 3s 192.0.2.5]"
	if fmt.Sprint(got) != want {
		t.Errorf("served %v, want %s", got, want)
	}
	if !s.wake().IsZero() {
		t.Errorf("an empty schedule wakes at %s", s.wake())
	}
}

// Any sequence of puts and removes leaves the heaps in order.
func TestScheduleStaysInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	s := newSchedule()
	places := make([]*place, 50)
	for i := range places {
		places[i] = &place{claim: &claim{}}
		places[i].claim.place = *places[i]
	}
	now := time.Unix(0, 0)
	for range 20000 {
		p := places[r.IntN(len(places))]
		switch r.IntN(4) {
		case 0:
			s.remove(p)
		default:
			s.put(p, now.Add(time.Duration(r.IntN(1000))*time.Millisecond), r.IntN(5))
		}
		now = now.Add(time.Duration(r.IntN(20)) * time.Millisecond)
		s.next(now)
		for _, q := range []*queue{&s.later, &s.ready} {
			for i, p := range q.places {
				if p.slot != i || p.queue != q || i > 0 && q.Less(i, (i-1)/2) {
					t.Fatalf("place %d is out of order", i)
				}
			}
		}
		if w := s.wake(); !w.IsZero() && !w.After(now) {
			t.Fatal("something that is due was not made ready")
		}
	}
}
