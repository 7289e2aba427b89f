// Package settling decides for how long a node that has come back leaves
// addresses to others, from what it remembers of its own past. A node that
// comes and goes all the time would otherwise take its addresses with it each
// time. It is pure.
package settling

import "time"

const (
	// memory is how long a departure counts.
	memory = 6 * time.Hour

	// longest is the longest that a node settles.
	longest = time.Hour

	// growth is by what each further departure multiplies the time.
	growth = 4

	// Clean stops are what upgrades are made of, and count only when there are
	// more than freeStops within stopsWithin.
	freeStops   = 3
	stopsWithin = time.Hour

	// maxEvents bounds a History. Far fewer departures make the longest time.
	maxEvents = 64
)

// Kind says what happened to an announcer. It is written to disk: changing a
// value is a change of the format.
type Kind string

// The kinds.
const (
	Start Kind = "start" // it began to take part
	Stop  Kind = "stop"  // it ended in the orderly way
	Death Kind = "death" // it was taken for dead by others while it lived
)

// Event is one thing that happened.
type Event struct {
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
}

// History is what happened to a node's announcer, oldest first. The zero value
// is that of a newcomer.
type History []Event

// With returns the history with one more event, without the oldest if there
// are more than 64.
func (h History) With(e Event) History {
	kept := h[max(0, len(h)+1-maxEvents):]
	out := make(History, len(kept), len(kept)+1)
	copy(out, kept)
	return append(out, e)
}

// Sane returns the history as it can be believed at a time: what lies in the
// future happened now. The wall clock orders events over restarts, and it may
// jump: this way a clock that was wrong once costs six hours of memory at most,
// and never more than that.
func (h History) Sane(now time.Time) History {
	out := make(History, 0, len(h))
	for _, e := range h {
		if e.Kind != Start && e.Kind != Stop && e.Kind != Death {
			continue
		}
		if e.At.After(now) {
			e.At = now
		}
		out = append(out, e)
	}
	return out[max(0, len(out)-maxEvents):]
}

// Departures returns how many unplanned departures count at a time: starts
// that no clean stop came before, deaths, and clean stops from the fourth
// within an hour on. The first event of all is no departure.
func (h History) Departures(now time.Time) int {
	n := 0
	for i, e := range h {
		if now.Sub(e.At) < memory && h.unplanned(i) {
			n++
		}
	}
	return n
}

func (h History) unplanned(i int) bool {
	switch h[i].Kind {
	case Start:
		return i > 0 && h[i-1].Kind != Stop
	case Stop:
		return h.stopsBefore(i) >= freeStops
	}
	return true
}

// stopsBefore returns how many clean stops came within an hour before the one at i.
func (h History) stopsBefore(i int) int {
	n := 0
	for _, e := range h[:i] {
		if e.Kind == Stop && h[i].At.Sub(e.At).Abs() < stopsWithin {
			n++
		}
	}
	return n
}

// Wait returns for how long a node with this history settles, counted from
// now. settle is what the first departure costs; none costs as much.
func (h History) Wait(now time.Time, settle time.Duration) time.Duration {
	wait := settle
	for range h.Departures(now) - 1 {
		if wait >= longest {
			break
		}
		wait *= growth
	}
	return min(wait, longest)
}
