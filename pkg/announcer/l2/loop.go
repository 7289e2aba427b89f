package l2

import (
	"errors"
	"syscall"
	"time"
)

// tellWithin is how late the caller may hear of an address that was taken.
const tellWithin = 100 * time.Millisecond

// run is the loop.
func (s *Speaker) run() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			for _, l := range s.links {
				l.close()
			}
			return
		case call := <-s.calls:
			call()
		case g := <-s.sightings:
			s.sighted(time.Now(), g)
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
		s.hear()
		if wake := s.turn(time.Now()); !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
	}
}

// hear judges what readers have seen. It comes before everything that is due:
// after a stall an answer may be waiting to a question whose time is up.
func (s *Speaker) hear() {
	for range sightingRoom {
		select {
		case g := <-s.sightings:
			s.sighted(time.Now(), g)
		default:
			return
		}
	}
}

// turn does what has become due, and returns when to come again, zero for never.
func (s *Speaker) turn(now time.Time) time.Time {
	wake := s.forget(now)
	for _, l := range s.links {
		wake = earliest(wake, s.handOver(now, l))
		for _, r := range l.responders() {
			if err := s.tend(now, l, r); err != nil {
				s.log.Warn("link is not used as it should be, will retry", "link", l.Name, "err", err)
			}
			wake = earliest(wake, r.wake(l.Up))
		}
		wake = earliest(wake, l.serve(now))
		wake = earliest(wake, s.listen(now, l))
	}
	return earliest(wake, s.tellTaken(now))
}

// tellTaken tells the caller that addresses which were asked for are ours, and
// returns when it will, zero for never. Many are taken one after the other, and
// each time that the caller looks costs it a pass.
func (s *Speaker) tellTaken(now time.Time) time.Time {
	for _, l := range s.links {
		if l.taken && s.tellAt.IsZero() {
			s.tellAt = now.Add(tellWithin)
		}
		l.taken = false
	}
	if s.tellAt.IsZero() || now.Before(s.tellAt) {
		return s.tellAt
	}
	s.tellAt = time.Time{}
	s.kick()
	return time.Time{}
}

// handOver ends hand-overs, and returns when the next one is overdue.
func (s *Speaker) handOver(now time.Time, l *link) time.Time {
	ended, wake := l.handedOver(now)
	for _, c := range ended {
		s.log.Debug("handed over", "address", c.address, "link", l.Name, "heard", c.state.Load() == released)
		l.remove(c)
	}
	if len(ended) > 0 {
		s.kick()
	}
	return wake
}

// tend opens, replaces, adjusts or closes a socket, whatever the claims need.
// It returns errors that have not been reported yet.
func (s *Speaker) tend(now time.Time, l *link, r *responder) error {
	if r.broken.Swap(false) {
		r.suspect(now)
	}
	var err error
	switch {
	case len(r.claims) == 0:
		r.stop()
	case l.Up && r.due(now):
		err = s.restart(now, l, r)
	case r.changed && len(l.yielding) == 0:
		err = r.sync(now, l, s.owns)
	}
	err = errors.Join(err, s.join(now, l, r))
	r.launch(now)
	return err
}

// restart opens a socket. One that replaces another was lost for a while, and
// so were the neighbours.
func (s *Speaker) restart(now time.Time, l *link, r *responder) error {
	replaces := r.open()
	if err := r.start(l, s); err != nil {
		r.errors++
		r.retry.postpone(now)
		if r.reported || errors.Is(err, syscall.ENETDOWN) || replaces && linkGone(err) {
			return nil
		}
		r.reported = true
		return err
	}
	if r.reported {
		s.log.Info("link can be used again", "link", l.Name, "protocol", r.protocol.name())
	}
	r.reported = false
	r.opened = now
	if replaces {
		l.raise(now)
	}
	return nil
}

// join joins and leaves groups. Without one, multicast solicitations may not
// arrive, which is no reason not to answer the others.
func (s *Speaker) join(now time.Time, l *link, r *responder) error {
	if !r.joinDue(now) {
		return nil
	}
	if err := r.join(l); err != nil {
		r.errors++
		r.joinRetry.postpone(now)
		if r.joinReported || linkGone(err) {
			return nil
		}
		r.joinReported = true
		return err
	}
	if r.joinReported {
		s.log.Info("groups are joined again", "link", l.Name)
	}
	r.joinReported = false
	r.joinRetry = backoff{}
	return nil
}
