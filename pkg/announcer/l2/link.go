package l2

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const (
	// After a frame could not be sent the link is left alone for a while.
	firstSendPause = 10 * time.Millisecond
	lastSendPause  = time.Second
)

// link is what the speaker does on one link. The loop owns it.
type link struct {
	plan.Link
	mac      mac
	arp, ndp *responder
	ears     ears

	schedule schedule
	limiter  *rate.Limiter
	pause    time.Duration // what to wait after the next frame that cannot be sent
	sendAt   time.Time     // nothing is sent before
	againAt  time.Time     // when everything is announced once more, zero: never
	errors   uint64

	yielding map[*claim]struct{}
	taken    bool // an address that was asked for is ours by now, and nobody was told
}

func newLink(arp, ndp *familyStats) *link {
	return &link{
		arp:      newResponder(arpProtocol{}, arp),
		ndp:      newResponder(ndpProtocol{}, ndp),
		schedule: newSchedule(),
		limiter:  rate.NewLimiter(framesPerSecond, frameBurst),
		yielding: map[*claim]struct{}{},
	}
}

func (l *link) responders() [2]*responder { return [2]*responder{l.arp, l.ndp} }

// responder returns the one that answers for an address.
func (l *link) responder(a netip.Addr) *responder {
	if a.Is4() {
		return l.arp
	}
	return l.ndp
}

// follow takes over what a link has become. A link that came up, or has
// another address, may have neighbours who know nothing of it.
func (l *link) follow(now time.Time, to plan.Link, address mac) {
	up, moved := to.Up && !l.Up, address != l.mac
	l.Link, l.mac = to, address
	for _, r := range l.responders() {
		if up || moved {
			r.retry, r.joinRetry = backoff{}, backoff{} // what stood in the way has changed
		}
		if moved {
			r.reopen, r.changed = true, true
		}
	}
	if moved {
		l.ears.close() // it takes the old address for ours
	}
	if up || moved {
		l.raise(now)
	}
}

// raise announces everything like a new owner, and once more when a switch
// that had to learn of the link forwards its frames.
func (l *link) raise(now time.Time) {
	l.pause, l.sendAt = 0, time.Time{}
	l.againAt = now.Add(linkDelay)
	for _, r := range l.responders() {
		r.burst(now)
	}
}

// serve sends what is due, as fast as the pace allows, and returns when there
// will be more to do, zero for never.
func (l *link) serve(now time.Time) time.Time {
	if !l.Up {
		return time.Time{}
	}
	l.again(now)
	for {
		c := l.schedule.next(now)
		switch {
		case c == nil:
			return earliest(l.schedule.wake(), l.againAt)
		case now.Before(l.sendAt):
			return l.sendAt
		case !l.limiter.AllowN(now, 1):
			return now.Add(time.Second / framesPerSecond)
		}
		l.advance(now, c)
	}
}

// again announces everything once more when it is time.
func (l *link) again(now time.Time) {
	if l.againAt.IsZero() || now.Before(l.againAt) {
		return
	}
	l.againAt = time.Time{}
	for _, r := range l.responders() {
		for _, c := range r.sorted() {
			c.once(now)
		}
	}
}

// advance takes the next step of a claim. A frame that cannot be sent is sent later.
func (l *link) advance(now time.Time, c *claim) {
	l.taken = c.turn(now) || l.taken
	if err := l.send(c, c.steps[c.step].kind); err != nil {
		l.errors++
		l.pause = min(max(2*l.pause, firstSendPause), lastSendPause)
		l.sendAt = now.Add(l.pause)
		return
	}
	l.pause = 0
	c.sent(now)
}

// send sends one frame about a claim.
func (l *link) send(c *claim, k kind) error {
	r := l.responder(c.address)
	if err := r.send(r.protocol.frame(k, l.mac, c.address)); err != nil {
		r.stats.unsent.Add(1)
		return err
	}
	if k == probe {
		r.stats.probes.Add(1)
	} else {
		r.stats.gratuitous.Add(1)
	}
	return nil
}

// yield starts the hand-over of claims that another node owns now.
func (l *link) yield(now time.Time, claims []*claim) {
	by := now.Add(handOverTime + time.Duration(len(claims))*handOverPerClaim)
	for _, c := range claims {
		c.yield(now, by)
		l.yielding[c] = struct{}{}
	}
}

// handedOver ends the hand-overs whose winner was heard or is overdue, and
// returns those claims and the time when the next is overdue.
func (l *link) handedOver(now time.Time) (ended []*claim, wake time.Time) {
	for c := range l.yielding {
		if c.state.Load() == yielding && now.Before(c.yieldBy) {
			wake = earliest(wake, c.yieldBy)
			continue
		}
		delete(l.yielding, c)
		ended = append(ended, c)
	}
	return ended, wake
}

// remove ends a claim.
func (l *link) remove(c *claim) {
	delete(l.yielding, c)
	r := l.responder(c.address)
	c.drop()
	delete(r.claims, c.address)
	r.changed = true
}

// close ends everything on the link.
func (l *link) close() {
	for _, r := range l.responders() {
		for _, c := range r.claims {
			l.remove(c)
		}
		r.stop()
	}
	l.ears.close()
}

// earliest returns the earlier of two times, of which zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
