package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// seat is what a decision works out for one family that a Service wants.
type seat struct {
	family  Family
	kept    []netip.Addr // what it holds and may go on holding
	asks    bool         // whether it asks for another address than it holds
	seeks   bool         // whether it has to look for an address, whatever the cause
	got     netip.Addr   // what it found, if it is valid
	refused *refusal     // why it found nothing
}

// addresses are what the Service has of the family in the end.
func (s seat) addresses() []netip.Addr {
	if s.got.IsValid() {
		return []netip.Addr{s.got}
	}
	return s.kept
}

// keeps tells whether the Service goes on holding an address of the family, or
// replaces it.
func (s seat) keeps() bool { return len(s.kept) > 0 }

func (s seat) empty() bool { return len(s.addresses()) == 0 }

// Decide answers a request and remembers the answer as held (assumed, until
// the Service's status shows it). It is idempotent: the same request in the
// same state gets the same answer. A Service that gets less than it asked for
// is remembered as waiting; those that wait already are served before a
// newcomer.
//
// What a Service is moved away from is not free at once: it stays taken until
// a request shows in Held just what was decided, or until Release. So a
// status that could not be written never shows an address that another
// Service has.
func (a *Allocator) Decide(r Request, now time.Time) Decision {
	a.rest(now)
	a.seen(r)
	a.serve()
	s := a.learn(r)
	d := a.decide(s)
	delete(a.woken, s.key)
	a.seen(r)
	return d
}

// seen frees what a Service was moved away from, if its status shows just
// what it holds now.
func (a *Allocator) seen(r Request) {
	if s := a.services[r.Key]; s != nil && sameAddresses(r.Held, s.held) {
		a.vacateAll(s)
	}
}

// decide works out what a Service gets and makes it hold just that.
func (a *Allocator) decide(s *service) Decision {
	if stray, foreign := a.foreign(s); foreign {
		d := a.leaveAlone(s, stray)
		a.await(s, d, passage{})
		return d
	}
	seats := a.review(s)
	passage := a.fill(s, seats)
	if s.require && !slices.ContainsFunc(seats, seat.keeps) && slices.ContainsFunc(seats, seat.empty) {
		for i := range seats {
			seats[i].got = netip.Addr{}
		}
	}
	a.hold(s, seats)
	d := a.answer(s, seats)
	a.await(s, d, passage)
	return d
}

// leaveAlone is the answer to a Service whose status others have written, with
// an address that is in no pool.
func (a *Allocator) leaveAlone(s *service, stray netip.Addr) Decision {
	d := Decision{Addresses: slices.Clone(s.held), Foreign: true, Reason: ForeignAddress,
		Message: config.Verdict(nil, fmt.Sprintf("%s was not given by this controller and is in no pool: left alone", stray))}
	for _, addr := range s.held {
		if b, barred := a.barred[addr]; barred && b.reason == NodeAddress {
			d.Reason = NodeAddress
			d.Message = config.Verdict(nil, fmt.Sprintf("%s was not given by this controller and is %s", addr, b.text))
			break
		}
	}
	return d
}

// foreign tells whether what the status shows was written by others and is
// none of our business, and by which address one can tell.
func (a *Allocator) foreign(s *service) (netip.Addr, bool) {
	if s.ours {
		return netip.Addr{}, false
	}
	for _, addr := range s.held {
		if a.holdings[addr].at == nil {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// review sorts what a Service holds by family, without what it cannot keep,
// and says for which families it has to look for an address.
func (a *Allocator) review(s *service) []seat {
	seats := make([]seat, 0, len(s.families))
	contradiction := s.contradiction() != nil
	for _, f := range s.families {
		t := seat{family: f}
		for _, addr := range s.held {
			if familyOf(addr) == f && !a.lost(s, addr) {
				t.kept = append(t.kept, addr)
			}
		}
		t.asks = contradiction || a.asksForOther(s, t)
		t.seeks = len(t.kept) == 0 || t.asks
		for _, addr := range t.kept {
			_, move := a.complaint(s, addr)
			t.seeks = t.seeks || move
		}
		seats = append(seats, t)
	}
	return seats
}

// lost tells whether a Service cannot keep an address because of others who
// hold it: it has changed so that they do not share any more, or its status
// showed an address that was theirs.
func (a *Allocator) lost(s *service, addr netip.Addr) bool {
	return slices.ContainsFunc(a.rivals(s, addr), func(u *service) bool {
		return u.ours || !s.ours && seniority(u.standing, s.standing) < 0
	})
}

// asksForOther tells whether a Service asks for another address, or for
// another pool, than it has in a family.
func (a *Allocator) asksForOther(s *service, t seat) bool {
	if addr, ok := s.wantsAddress(t.family); ok {
		return len(t.kept) != 1 || t.kept[0] != addr
	}
	names := s.wantsPools()
	return len(names) > 0 && slices.ContainsFunc(t.kept, func(addr netip.Addr) bool {
		at := a.holdings[addr].at
		return at == nil || !slices.Contains(names, at.pool.Name)
	})
}

// complaint says what is wrong with an address that a Service holds, "" if
// nothing, and whether the pool wants such an address replaced.
func (a *Allocator) complaint(s *service, addr netip.Addr) (text string, move bool) {
	h := a.holdings[addr]
	p := a.byName[a.origins[addr]]
	if h.at != nil {
		p = h.at.pool
	}
	move = p != nil && p.OnMismatch == config.Reassign
	if b, barred := a.barred[addr]; barred {
		return "it is " + b.text, move
	}
	if h.at == nil {
		return "it is in no pool any more", move
	}
	if text = a.misfit(s, addr, h.at); text == "" {
		return "", false
	}
	return text, move
}

// misfit says which rule of its pool an address offends that a Service holds,
// "" if none. Rules about what is given out next are none of them.
func (a *Allocator) misfit(s *service, addr netip.Addr, at *place) string {
	p := at.pool
	switch {
	case p.State == config.Disabled:
		return p.closed().text
	case p.avoids(addr):
		return fmt.Sprintf("pool %q avoids .0 and .255", p.Name)
	case at.owner == s.key:
		return ""
	case at.owner != "":
		return "it is reserved for " + string(at.owner)
	}
	requested, _ := s.wantsAddress(familyOf(addr))
	asked := requested == addr || slices.Contains(s.wantsPools(), p.Name)
	if no := p.serves(s, asked); no != nil {
		return no.text
	}
	return ""
}

// fill looks for an address for each seat that needs one, and returns what the
// outcome depends on.
func (a *Allocator) fill(s *service, seats []seat) passage {
	q := search{Allocator: a, s: s}
	var families []Family
	q.gone = slices.Clone(s.held)
	for _, t := range seats {
		q.gone = slices.DeleteFunc(q.gone, func(addr netip.Addr) bool { return slices.Contains(t.kept, addr) })
		if t.seeks {
			families = append(families, t.family)
			q.giving[t.family.index()] = t.kept
		} else if at := a.holdings[t.kept[0]].at; at != nil && q.anchor == nil {
			q.anchor = at.pool
		}
	}
	q.run(families)
	for i := range seats {
		t := &seats[i]
		t.got, t.refused = q.found[t.family.index()], q.refused[t.family.index()]
	}
	return q.passage
}

// hold makes a Service hold what is in its seats, in their order.
func (a *Allocator) hold(s *service, seats []seat) {
	var want []netip.Addr
	for _, t := range seats {
		want = append(want, t.addresses()...)
	}
	for _, addr := range slices.Clone(s.held) {
		if !slices.Contains(want, addr) {
			a.drop(s, addr)
		}
	}
	for _, addr := range want {
		if !slices.Contains(s.held, addr) {
			a.claim(s, addr)
		}
	}
	switch {
	case len(want) == 0:
		s.ours, s.since = false, 0
	case !s.ours:
		s.ours, s.since = true, microsOf(a.now)
		for _, addr := range want {
			a.stir(addr) // what was only written to a status may be shared from now on
		}
	}
	s.held = want
	for _, t := range seats {
		if t.got.IsValid() && t.keeps() {
			s.reassigned = !t.asks
		}
	}
}

func (a *Allocator) isBarred(addr netip.Addr) bool {
	_, barred := a.barred[addr]
	return barred
}
