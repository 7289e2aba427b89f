package source

import (
	"context"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const (
	// noAPIAfter is for how long the API server must be away before the others
	// are told. A reflector that has to begin anew is no outage.
	noAPIAfter = 5 * time.Second

	// staleAfter is for how long this node must have been without API server,
	// and most others not, before it holds its own view for old.
	staleAfter = 30 * time.Second

	// notReadyAfter is for how long the own Node must have been NotReady.
	notReadyAfter = time.Minute

	// The data path must have been down for downAfter to count, and well for
	// wellAfter to count no more: it cannot flap.
	downAfter = 15 * time.Second
	wellAfter = time.Minute

	vitalsEvery = time.Second
)

// health is what one look at the data path brings.
type health int

const (
	noSign health = iota // nobody answers there, or not in words that we know
	well
	unwell
)

// vitals is what this node knows of its own fitness: since when what has been
// so. All of it is judged by this node alone, and told to the others.
type vitals struct {
	mu       sync.Mutex
	lost     time.Time // the API server is away since then; zero: it is not
	served   time.Time // more than half of the members have had one since then; zero: they have not
	notReady time.Time // the own Node is NotReady since then; zero: it is not, or nobody knows
	unwell   time.Time // the data path is down since then; zero: it is not
	fine     time.Time // nothing was wrong with it since then; zero: something was
	down     bool      // it counts as down
	told     plan.Standing
}

// noteReady takes in whether the own Node is other than NotReady.
func (v *vitals) noteReady(ready bool, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.notReady = begin(v.notReady, !ready, now)
}

// noteAPI takes in since when the API server is away.
func (v *vitals) noteAPI(lost time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lost = lost
}

// noteMembers takes in what the members, this one included, say of their API server.
func (v *vitals) noteMembers(members []plan.Member, now time.Time) {
	have := 0
	for _, m := range members {
		if !m.NoAPI {
			have++
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.served = begin(v.served, 2*have > len(members), now)
}

// noteDataPath takes in a look at the data path.
func (v *vitals) noteDataPath(seen health, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unwell = begin(v.unwell, seen == unwell, now)
	v.fine = begin(v.fine, seen != unwell, now)
	switch {
	case !v.unwell.IsZero() && now.Sub(v.unwell) >= downAfter:
		v.down = true
	case !v.fine.IsZero() && now.Sub(v.fine) >= wellAfter:
		v.down = false
	}
}

// forgetDataPath is for when nobody is to look at it.
func (v *vitals) forgetDataPath() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unwell, v.fine, v.down = time.Time{}, time.Time{}, false
}

// begin returns since when something is so: as before if it still is, from now
// on if it has begun, and zero if it is not.
func begin(since time.Time, is bool, now time.Time) time.Time {
	switch {
	case !is:
		return time.Time{}
	case since.IsZero():
		return now
	}
	return since
}

// standing returns how fit this node is, but for what the membership knows.
func (v *vitals) standing(now time.Time) plan.Standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := plan.Standing{
		NoAPI: longer(v.lost, now, noAPIAfter),
		Stale: longer(v.lost, now, staleAfter) && longer(v.served, now, staleAfter),
	}
	switch {
	case longer(v.notReady, now, notReadyAfter):
		s.Unfit = plan.NodeNotReady
	case v.down:
		s.Unfit = plan.DataPathDown
	}
	return s
}

// longer tells whether something is so since a time, for that long.
func longer(since, now time.Time, long time.Duration) bool {
	return !since.IsZero() && now.Sub(since) >= long
}

// standing returns how fit this node is for a decision among members.
func (w *World) standing(members []plan.Member) plan.Standing {
	now := time.Now()
	w.vitals.noteAPI(w.apiLost(now))
	w.vitals.noteMembers(members, now)
	s := w.vitals.standing(now)
	w.vitals.mu.Lock()
	defer w.vitals.mu.Unlock()
	w.vitals.told = s
	return s
}

// apiLost returns since when the API server is away, zero if it is not.
func (w *World) apiLost(now time.Time) time.Time {
	lost, silent := w.reach.downSince(), w.o.API.pulse.silentSince(now)
	if lost.IsZero() || !silent.IsZero() && silent.Before(lost) {
		return silent
	}
	return lost
}

// followVitals kicks when time alone has changed how fit this node is.
func (w *World) followVitals(ctx context.Context) {
	tick := time.NewTicker(vitalsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		w.vitals.noteAPI(w.apiLost(now))
		s := w.vitals.standing(now)
		w.vitals.mu.Lock()
		changed := s != w.vitals.told
		w.vitals.mu.Unlock()
		if changed {
			w.o.Kick()
		}
	}
}
