package ipam

import (
	"maps"
	"net/netip"
	"slices"
)

// wait is what there is to know of a waiting Service.
type wait struct {
	answer   Decision
	blockers []blocker
	open     []blocker
}

// blocker is one thing that stands between a Service and what it asks for. A
// waiting Service is looked at again when one of its blockers lifts, and
// only then: every way to serve it is barred by at least one of them.
type blocker struct {
	kind blockerKind
	pool string
	name string
	addr netip.Addr
}

type blockerKind int8

const (
	onPools   blockerKind = iota // pools and cluster are as they are; blocks everybody who waits
	onFree                       // no address of family name is free in the pool
	onQuota                      // namespace name has its share of the pool
	onMoving                     // the same, for a Service that gives back an address for another
	onAddress                    // others hold addr
	onSharing                    // no address is held under sharing key name that the Service could share
)

// await remembers a Service as waiting, or as served if it got all that it
// asked for.
func (a *Allocator) await(s *service, d Decision, p passage) {
	a.settled(s)
	if d.Reason.OK() && d.Unmet == "" {
		return
	}
	s.wait = &wait{
		answer:   d,
		blockers: enlist(a.waiting, s, append(p.blockers, blocker{kind: onPools})),
		open:     enlist(a.doors, s, p.open),
	}
}

// settled forgets that a Service waits.
func (a *Allocator) settled(s *service) {
	if s.wait == nil {
		return
	}
	discharge(a.waiting, s, s.wait.blockers)
	discharge(a.doors, s, s.wait.open)
	s.wait = nil
}

// enlist enters a Service in the lists of some blockers, and returns those
// where it was not entered yet.
func enlist(lists map[blocker][]*service, s *service, blockers []blocker) []blocker {
	var entered []blocker
	for _, b := range blockers {
		list := lists[b]
		if i, found := slices.BinarySearchFunc(list, s, byAge); !found {
			lists[b] = slices.Insert(list, i, s)
			entered = append(entered, b)
		}
	}
	return entered
}

// discharge undoes enlist.
func discharge(lists map[blocker][]*service, s *service, blockers []blocker) {
	for _, b := range blockers {
		list := lists[b]
		if i, found := slices.BinarySearchFunc(list, s, byAge); found {
			list = slices.Delete(list, i, i+1)
		}
		if lists[b] = list; len(list) == 0 {
			delete(lists, b)
		}
	}
}

// notice has Services that wait looked at again: not because they may get
// something, but because what they are told may not be all any more.
func (a *Allocator) notice(services []*service) {
	for _, s := range services {
		a.due[s] = struct{}{}
	}
}

// lift notes that a blocker may block no more.
func (a *Allocator) lift(b blocker) {
	if len(a.waiting[b]) > 0 {
		a.lifted[b] = struct{}{}
	}
}

// hurry notes that a Service, if it waits, may be served now.
func (a *Allocator) hurry(key Key) {
	if s := a.services[key]; s != nil && s.wait != nil {
		a.due[s] = struct{}{}
	}
}

// serve decides anew about those who wait and may profit from what has
// changed, oldest first, until nothing is left for them. It ends, because
// whoever changes something for others gets closer to what it asked for.
func (a *Allocator) serve() {
	for len(a.lifted)+len(a.due) > 0 {
		lifted, due := a.lifted, slices.SortedFunc(maps.Keys(a.due), byAge)
		a.lifted, a.due = map[blocker]struct{}{}, map[*service]struct{}{}
		for s := a.next(lifted, due, nil); s != nil; s = a.next(lifted, due, s) {
			a.retry(s)
		}
	}
}

// next returns the oldest waiting Service younger than last that one of the
// blockers held up, or that is due. It forgets blockers that block again.
func (a *Allocator) next(lifted map[blocker]struct{}, due []*service, last *service) *service {
	oldest := after(due, last)
	for b := range lifted {
		s := after(a.waiting[b], last)
		if s == nil || a.blocks(b) {
			delete(lifted, b)
			continue
		}
		if oldest == nil || byAge(s, oldest) < 0 {
			oldest = s
		}
	}
	return oldest
}

// after returns the first Service of a list by age that is younger than last,
// nil if there is none; the very first if last is nil.
func after(list []*service, last *service) *service {
	i := 0
	if last != nil {
		var found bool
		if i, found = slices.BinarySearchFunc(list, last, byAge); found {
			i++
		}
	}
	if i == len(list) {
		return nil
	}
	return list[i]
}

// blocks tells whether what a blocker stands for is used up again. What does
// not run out blocks nobody once it is lifted.
func (a *Allocator) blocks(b blocker) bool {
	p := a.byName[b.pool]
	switch b.kind {
	case onFree:
		if p == nil {
			return true
		}
		f := Family(b.name)
		_, free := p.pick(p.general[f.index()], f, "")
		return !free
	case onQuota:
		return p == nil || p.full(b.name, 0)
	}
	return false
}

// retry decides anew about a waiting Service.
func (a *Allocator) retry(s *service) {
	if s.wait == nil {
		return
	}
	before := s.wait.answer
	if now := a.decide(s); !now.equal(before) {
		a.woken[s.key] = struct{}{}
	}
}

func (d Decision) equal(other Decision) bool {
	return d.Reason == other.Reason && d.Unmet == other.Unmet && d.Message == other.Message &&
		slices.Equal(d.Addresses, other.Addresses)
}

// Wake returns the waiting Services, oldest first, whose answer may have
// changed by what was freed, configured or released since the last call, and
// only those. It is how waiting Services are served without polling. What
// they are to get is kept for them from then on, so that each of them, and
// nobody else, gets it with its next Decide. Who lost an address to a Service
// that has held it longer is also among them.
func (a *Allocator) Wake() []Key {
	a.serve()
	woken := make([]*service, 0, len(a.woken))
	for key := range a.woken {
		if s := a.services[key]; s != nil {
			woken = append(woken, s)
		}
	}
	clear(a.woken)
	slices.SortFunc(woken, byAge)
	keys := make([]Key, 0, len(woken))
	for _, s := range woken {
		keys = append(keys, s.key)
	}
	return keys
}

// Waiting returns how many Services wait, by reason: that of the answer, or,
// if a newer request or a move waits beside a valid address, what is unmet.
func (a *Allocator) Waiting() map[Reason]int {
	out := map[Reason]int{}
	for _, s := range a.waiting[blocker{kind: onPools}] {
		d := s.wait.answer
		if d.Reason.OK() && d.Reason != PartialFamilies {
			out[d.Unmet]++
			continue
		}
		out[d.Reason]++
	}
	return out
}
