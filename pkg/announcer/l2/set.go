package l2

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// wanted is what Set wants on one link.
type wanted struct {
	link   plan.Link
	mac    mac
	claims map[netip.Addr]*plan.Announcement
}

// arrange sorts announcements by link index. What cannot be announced is left
// out and reported.
func arrange(want []plan.Announcement) (map[int]*wanted, error) {
	out := map[int]*wanted{}
	unfit := map[int]error{}
	var errs []error
	for i := range want {
		a := &want[i]
		if !a.Address.IsValid() {
			errs = append(errs, errors.New("announce an invalid address"))
			continue
		}
		for _, l := range a.Links {
			if out[l.Index] == nil && unfit[l.Index] == nil {
				address, err := parseMAC(l.MAC)
				if err != nil {
					unfit[l.Index] = fmt.Errorf("announce on %s: %w", l.Name, err)
					errs = append(errs, unfit[l.Index])
					continue
				}
				out[l.Index] = &wanted{link: l, mac: address, claims: make(map[netip.Addr]*plan.Announcement, len(want))}
			}
			if w := out[l.Index]; w != nil {
				w.claims[a.Address.Unmap()] = a
			}
		}
	}
	return out, errors.Join(errs...)
}

// set is Set, in the loop.
func (s *Speaker) set(now time.Time, want []plan.Announcement) error {
	targets, err := arrange(want)
	errs := []error{err}
	s.withdraw(now, targets)
	s.adopt(now, targets)
	for _, index := range slices.Sorted(maps.Keys(s.links)) {
		l := s.links[index]
		for _, r := range l.responders() {
			if r.changed {
				errs = append(errs, r.sync(now, l, s.owns))
			}
			errs = append(errs, s.tend(now, l, r))
		}
		s.listen(now, l) // from the beginning
	}
	return errors.Join(errs...)
}

// withdraw silences what is not wanted any more, and starts the hand-over of
// what another node owns.
func (s *Speaker) withdraw(now time.Time, targets map[int]*wanted) {
	for index, l := range s.links {
		w := targets[index]
		if w == nil {
			l.close()
			delete(s.links, index)
			continue
		}
		var lost []*claim
		for _, r := range l.responders() {
			for address, c := range r.claims {
				a, ok := w.claims[address]
				switch {
				case !ok || a.Yield && !c.answers() && c.state.Load() != released:
					l.remove(c)
				case a.Yield && c.announces():
					c.follow(*a)
					lost = append(lost, c)
				case a.Yield && c.answers():
					c.follow(*a) // it may know more members
				}
			}
		}
		l.yield(now, lost)
	}
}

// adopt takes over what is wanted now: links, claims and what is known of both.
func (s *Speaker) adopt(now time.Time, targets map[int]*wanted) {
	owns := ownMACs(targets)
	for index, w := range targets {
		l := s.links[index]
		if l == nil {
			l = newLink(&s.arp, &s.ndp)
			s.links[index] = l
		}
		l.follow(now, w.link, w.mac)
		for address, a := range w.claims {
			l.adopt(now, address, a)
		}
		for _, r := range l.responders() {
			r.changed = r.changed || !slices.Equal(owns, s.owns)
		}
	}
	s.owns = owns
}

// adopt makes or updates one claim. What is not claimed cannot be handed over.
func (l *link) adopt(now time.Time, address netip.Addr, a *plan.Announcement) {
	r := l.responder(address)
	c := r.claims[address]
	switch {
	case c == nil && !a.Yield:
		r.claims[address] = newClaim(l, address, *a)
		r.changed, r.fresh = true, true
	case c != nil && !a.Yield:
		delete(l.yielding, c)
		c.update(now, *a)
	}
}

func ownMACs(targets map[int]*wanted) []mac {
	var out []mac
	for _, w := range targets {
		out = append(out, w.mac)
	}
	slices.SortFunc(out, func(a, b mac) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}
