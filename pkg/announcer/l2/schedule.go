package l2

import (
	"cmp"
	"container/heap"
	"time"
)

// schedule holds the claims of one link by the time of their next frame. Those
// that are due wait for their turn by rank.
type schedule struct {
	later queue
	ready queue
	seq   uint64
}

func newSchedule() schedule {
	return schedule{
		later: queue{compare: byDue},
		ready: queue{compare: func(a, b *place) int { return cmp.Or(cmp.Compare(a.rank, b.rank), byDue(a, b)) }},
	}
}

func byDue(a, b *place) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq)) }

// place is a claim's place in a schedule.
type place struct {
	due  time.Time
	rank int
	seq  uint64 // the order among equals is the order of put

	claim *claim
	queue *queue // nil: in none
	slot  int
}

// put enters a claim, or moves it.
func (s *schedule) put(p *place, due time.Time, rank int) {
	s.remove(p)
	s.seq++
	p.due, p.rank, p.seq = due, rank, s.seq
	heap.Push(&s.later, p)
}

// remove takes a claim out, if it is in.
func (s *schedule) remove(p *place) {
	if p.queue != nil {
		heap.Remove(p.queue, p.slot)
	}
}

// next returns the claim whose turn it is, or nil if none is due. It stays in
// the schedule until it is moved or removed.
func (s *schedule) next(now time.Time) *claim {
	for len(s.later.places) > 0 && !s.later.places[0].due.After(now) {
		heap.Push(&s.ready, heap.Pop(&s.later))
	}
	if len(s.ready.places) == 0 {
		return nil
	}
	return s.ready.places[0].claim
}

// wake returns when the next claim that is not due yet will be, zero for never.
func (s *schedule) wake() time.Time {
	if len(s.later.places) == 0 {
		return time.Time{}
	}
	return s.later.places[0].due
}

// queue is a heap.Interface.
type queue struct {
	places  []*place
	compare func(a, b *place) int
}

func (q *queue) Len() int           { return len(q.places) }
func (q *queue) Less(i, j int) bool { return q.compare(q.places[i], q.places[j]) < 0 }

func (q *queue) Swap(i, j int) {
	q.places[i], q.places[j] = q.places[j], q.places[i]
	q.places[i].slot, q.places[j].slot = i, j
}

func (q *queue) Push(x any) {
	p := x.(*place)
	p.queue, p.slot = q, len(q.places)
	q.places = append(q.places, p)
}

func (q *queue) Pop() any {
	end := len(q.places) - 1
	p := q.places[end]
	q.places[end] = nil
	q.places = q.places[:end]
	p.queue = nil
	return p
}
