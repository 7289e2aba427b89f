package watchdog

import "time"

// silentAfter is for how long no announcer must have been ready before anything
// is said: pods are replaced in less.
const silentAfter = time.Minute

// A sight is what the status of the announcers' DaemonSet says at a moment.
type sight struct {
	wanted, ready int32 // pods
}

// A silence is a stretch of time in which no announcer was ready, seen without
// interruption. The zero value is none.
type silence struct {
	since time.Time
}

// after returns the silence that there is once something has been seen. A
// DaemonSet that is to have no pods says nothing.
func (s silence) after(seen sight, now time.Time) silence {
	switch {
	case seen.wanted == 0 || seen.ready > 0:
		return silence{}
	case s.since.IsZero():
		return silence{since: now}
	}
	return s
}

// due returns when the silence has lasted long enough to be spoken of; ok is
// false if there is none.
func (s silence) due() (at time.Time, ok bool) {
	return s.since.Add(silentAfter), !s.since.IsZero()
}
