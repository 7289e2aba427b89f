package l2

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// answering is Answering, in the loop.
func (s *Speaker) answering() []plan.Announcement {
	found := map[netip.Addr]plan.Announcement{}
	for _, index := range slices.Sorted(maps.Keys(s.links)) {
		l := s.links[index]
		for c := range l.answered() {
			a, ok := found[c.address]
			if !ok {
				a = c.want
				a.Links = nil
			}
			a.Links = append(a.Links, l.Link)
			found[c.address] = a
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b plan.Announcement) int {
		return a.Address.Compare(b.Address)
	})
}

// linkStats is Stats.Links, in the loop.
func (s *Speaker) linkStats(now time.Time) []LinkStats {
	var out []LinkStats
	for _, l := range s.links {
		l.ears.count(now)
		st := LinkStats{
			Name: l.Name, Open: true, Errors: l.errors,
			Broadcasts: l.ears.heard, Filtered: l.ears.filtered(), Deaf: l.ears.deaf,
		}
		for _, r := range l.responders() {
			r.count()
			st.Errors += r.errors
			st.Overflow += r.overflow
			st.Open = st.Open && !r.incomplete()
			for _, c := range r.claims {
				if c.withheld() {
					st.Withheld++
				}
			}
		}
		for range l.answered() {
			st.Answers++
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b LinkStats) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// answered yields the claims that are really answered for: by an open socket,
// on a link that is up.
func (l *link) answered() iter.Seq[*claim] {
	return func(yield func(*claim) bool) {
		for _, r := range l.responders() {
			for _, c := range r.claims {
				if l.Up && r.open() && c.answers() && !yield(c) {
					return
				}
			}
		}
	}
}
