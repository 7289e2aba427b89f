package ipam

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// learn takes in a request, and what the status shows where that counts: of
// a Service that holds nothing of ours. Else we know better.
func (a *Allocator) learn(r Request) *service {
	s := a.services[r.Key]
	if s == nil {
		s = &service{standing: standingOf(r), terms: termsOf(r)}
		a.services[r.Key] = s
		a.register(s, r)
		return s
	}
	a.agree(s, termsOf(r))
	switch {
	case s.ours && len(r.Given) > 0:
		s.since = microsOf(r.HeldSince)
	case !s.ours && len(s.leaving) == 0 && !slices.Equal(s.held, distinct(r.Held)):
		a.dropAll(s)
		a.vacateAll(s)
		// We know that we gave it nothing, whatever its condition says: that was
		// written by others, for instance by a leader that had been frozen.
		r.Given = nil
		a.register(s, r)
	}
	return s
}

// agree replaces the terms of a Service.
func (a *Allocator) agree(s *service, t terms) {
	if s.alike(&t) && slices.Equal(s.ports, t.ports) {
		s.terms = t
		return
	}
	for _, addr := range s.held {
		a.unshare(s, addr)
	}
	s.terms = t
	for _, addr := range s.held {
		a.share(s, addr)
	}
	for _, addr := range slices.Concat(s.held, s.leaving) {
		a.stir(addr)
	}
}

// register makes a Service hold what it was given or, if that is nothing, what
// its status shows. An address that another Service holds and does not share
// goes to the one that has held it longer. What we did not give is registered
// beside what we gave, and the next decision sorts it out; only what is about to
// become free is not for it.
func (a *Allocator) register(s *service, r Request) {
	s.standing = standingOf(r)
	shown := r.Held
	if s.ours {
		shown = addressesOf(r.Given)
	}
	for _, addr := range distinct(shown) {
		rivals := a.rivals(s, addr)
		late := !s.ours && len(rivals) == 0 && a.obstacle(s, addr) != nil
		a.claim(s, addr)
		if s.ours && slices.ContainsFunc(rivals, func(u *service) bool { return seniority(u.standing, s.standing) < 0 }) || late {
			a.drop(s, addr)
			continue
		}
		for _, u := range rivals {
			if s.ours && u.ours {
				a.drop(u, addr)
				a.woken[u.key] = struct{}{}
			}
		}
	}
	a.recall(r.Given)
}

// recall notes from which pools addresses were given that are in none now.
func (a *Allocator) recall(given []config.Confirmation) {
	for _, c := range given {
		if h := a.holdings[c.Address]; h != nil && h.at == nil && c.Pool != "" {
			a.origins[c.Address] = c.Pool
		}
	}
}

func addressesOf(given []config.Confirmation) []netip.Addr {
	out := make([]netip.Addr, 0, len(given))
	for _, c := range given {
		out = append(out, c.Address)
	}
	return out
}

// Restore registers what Services hold, before the first Decide. Of two that
// hold the same address and may not share it, the one that has held it longer
// (HeldSince, then Created, then Key) keeps it; the next Decide of the other
// gives it another one. It may also be called for a single Service later,
// after its Release.
func (a *Allocator) Restore(requests []Request) {
	oldest := slices.Clone(requests)
	slices.SortFunc(oldest, func(a, b Request) int { return seniority(standingOf(a), standingOf(b)) })
	for _, r := range oldest {
		a.learn(r)
	}
}

// Release forgets a Service: what it held is free (and for 30 s chosen last),
// and it waits no longer.
func (a *Allocator) Release(key Key, now time.Time) {
	a.rest(now)
	s := a.services[key]
	if s == nil {
		return
	}
	a.settled(s)
	delete(a.due, s)
	delete(a.woken, key)
	a.dropAll(s)
	a.vacateAll(s)
	delete(a.services, key)
}

// distinct returns the valid addresses of a list, each once.
func distinct(list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, addr := range list {
		if addr.IsValid() && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// sameAddresses tells whether two lists hold the same addresses.
func sameAddresses(a, b []netip.Addr) bool {
	missing := func(in []netip.Addr) func(netip.Addr) bool {
		return func(addr netip.Addr) bool { return !slices.Contains(in, addr) }
	}
	return !slices.ContainsFunc(a, missing(b)) && !slices.ContainsFunc(b, missing(a))
}
