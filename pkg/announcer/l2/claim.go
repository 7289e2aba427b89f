package l2

import (
	"cmp"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	// handOverTime is how long a loser of an address answers at most while it
	// hears no winner. A winner announces many addresses one after the other,
	// so every address that is lost at the same time adds to it.
	handOverTime     = 2 * time.Second
	handOverPerClaim = time.Second / framesPerSecond

	// refusal is how long whoever has the address may take to answer a probe.
	refusal = 200 * time.Millisecond
)

// What a reader does with a claim. The loop sets it; a reader turns yielding
// into released, so that the hand-over ends with the very frame that ends it.
const (
	silent    uint32 = iota // it answers nothing
	answering               // it answers, and listens for others
	yielding                // it answers until another announces the address
	released                // another has announced it
)

// claim is one address on one link. The loop owns everything but the state.
type claim struct {
	address netip.Addr
	state   atomic.Uint32

	link  *link
	want  plan.Announcement
	steps steps
	step  int // the next one to be sent
	place place

	begun   bool // the socket was open, so that the claim could be made
	asking  bool // a probe is to be sent, or was, that must stay unanswered
	refused bool // somebody answered it
	gone    bool // dropped

	taken    time.Time // since when the address is ours
	heard    time.Time // when a member announced it last
	defended time.Time // when we last insisted on it
	yieldBy  time.Time // when a hand-over ends without a winner
	rivals   rivals
}

// newClaim returns a claim that answers nothing yet.
func newClaim(l *link, address netip.Addr, a plan.Announcement) *claim {
	c := &claim{
		address: address, link: l, want: a,
		steps: l.responder(address).protocol.steps(), rivals: rivals{},
	}
	c.place.claim = c
	return c
}

// answers tells a reader whether to reply; a nil claim does not.
func (c *claim) answers() bool {
	if c == nil {
		return false
	}
	state := c.state.Load()
	return state == answering || state == yielding
}

func (c *claim) detection() config.ConflictDetection { return c.want.Layer2.ConflictDetection }

func (c *claim) detects() bool { return c.detection() != config.ConflictOff && c.detection() != "" }

// begin makes the claim at now. A new address is asked for on the wire first,
// which delays the claim only if conflicts are to be avoided.
func (c *claim) begin(now time.Time) {
	c.begun = true
	first := c.want.First && c.detects()
	if first && c.detection() == config.ConflictRefuse {
		c.ask(now)
		return
	}
	c.take(now)
	c.step = firstStep
	if first {
		c.step = probeStep
	}
	c.schedule(now)
}

// ask sends a probe, and takes the address if nobody answers it.
func (c *claim) ask(now time.Time) {
	c.asking, c.refused = true, false
	c.step = probeStep
	c.schedule(now)
}

// take makes the address ours.
func (c *claim) take(now time.Time) {
	c.asking, c.refused = false, false
	c.taken = now
	c.state.Store(answering)
}

// refuse gives the claim up until the rivals are gone.
func (c *claim) refuse(now time.Time) {
	c.asking = false
	c.refused = true
	c.step = probeStep
	c.schedule(now.Add(c.refreshAfter()))
}

// announces tells whether there is something to announce: not while it is
// asked for, refused, handed over or waiting for the socket.
func (c *claim) announces() bool { return c.state.Load() == answering }

// burst announces the address like a new owner, from the first round on.
func (c *claim) burst(now time.Time) {
	if !c.announces() {
		return
	}
	c.step = firstStep
	c.schedule(now)
}

// once announces the address in one more round, or goes on at once with the
// rounds that are left.
func (c *claim) once(now time.Time) {
	if !c.announces() {
		return
	}
	c.step = min(c.step, c.steps.lastRound())
	c.schedule(now)
}

// sent goes on to the next step after the current one went out at now.
func (c *claim) sent(now time.Time) {
	switch {
	case c.refused:
		c.schedule(now.Add(c.refreshAfter()))
		return
	case c.asking:
		c.step = firstStep
		c.schedule(now.Add(refusal))
		return
	}
	c.step++
	last := len(c.steps) - 1
	if c.step > last || c.step == last && !c.detects() {
		c.step = c.steps.refresh()
	}
	gap := c.steps[c.step].gap
	if c.step == c.steps.refresh() {
		gap = c.refreshAfter()
	}
	c.schedule(now.Add(gap))
}

// yield starts the hand-over to another node, and ends it if that one was
// faster than the news of it.
func (c *claim) yield(now, by time.Time) {
	c.link.schedule.remove(&c.place)
	clear(c.rivals)
	c.yieldBy = by
	if c.heard.After(c.taken) && now.Sub(c.heard) < handOverTime {
		c.state.Store(released)
		return
	}
	c.state.Store(yielding)
}

// update follows a changed announcement of a claim that was made, and is not
// to be handed over.
func (c *claim) update(now time.Time, to plan.Announcement) {
	from := c.want
	c.want = to
	c.want.First = to.First || from.First && !c.begun // it has not been asked for yet
	switch state := c.state.Load(); {
	case state == yielding || state == released:
		c.take(now) // it came back to us
		c.burst(now)
	case (c.asking || c.refused) && c.detection() != config.ConflictRefuse:
		c.take(now)
		c.burst(now)
	case from.Returns != to.Returns:
		c.once(now)
	case from.Layer2.GratuitousRefresh != to.Layer2.GratuitousRefresh && c.announces() && c.step == c.steps.refresh():
		c.schedule(now.Add(c.refreshAfter()))
	}
}

// drop ends the claim at once.
func (c *claim) drop() {
	c.gone = true
	c.state.Store(silent)
	c.link.schedule.remove(&c.place)
}

func (c *claim) schedule(due time.Time) {
	c.link.schedule.put(&c.place, due, c.steps[c.step].rank)
}

func (c *claim) refreshAfter() time.Duration {
	return cmp.Or(c.want.Layer2.GratuitousRefresh, defaultRefresh)
}
