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

	// refusal is how long whoever has the address may take to answer the first
	// of the questions that precede a claim.
	refusal = 200 * time.Millisecond

	// An address whose owner may be alive is asked for three times within
	// 100 ms, and if it was left to somebody, from time to time after that.
	askTimes = 3
	askGap   = 50 * time.Millisecond
	askAgain = 5 * time.Second
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

	begun  bool // the socket was open, so that the claim could be made
	first  bool // nobody of ours has had the address before, this one included
	asking bool // the wire is asked, and must not answer
	asked  int  // how often, since it is
	gone   bool // dropped

	left  holder    // that the address is left to, zero: it is not
	since time.Time // since when it is asked for or left

	taken    time.Time // since when the address is ours
	heard    time.Time // when a member announced it last
	repeated time.Time // when we announced it after a member had, or are going to
	defended time.Time // when we last insisted on it
	yieldBy  time.Time // when a hand-over ends without a winner
	rivals   rivals

	// missed: there was no room to tell the loop of a station that has the address.
	missed atomic.Bool

	// peers is what a reader knows of want while the claim yields.
	peers atomic.Pointer[map[string]string]
}

// holder is somebody else on a link.
type holder struct {
	mac  mac
	node string // the member whose link it is, empty if it is none
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

// begin makes the claim at now. What may belong to another is asked for on the
// wire first, which delays the claim only if an answer is going to be heeded.
func (c *claim) begin(now time.Time) {
	c.begun, c.first = true, c.want.First
	if c.mustAsk() {
		c.ask(now)
		return
	}
	c.take(now)
	c.step = firstStep
	if c.want.First && c.detects() {
		c.step = probeStep
	}
	c.schedule(now)
}

// mustAsk tells whether the address may only be claimed if nobody answers.
func (c *claim) mustAsk() bool { return c.want.Ask || c.refuses() }

func (c *claim) refuses() bool { return c.first && c.detection() == config.ConflictRefuse }

// heeds tells whether the address is left to a station that answers for it.
// Without a doubt about who is alive, a member is about to hand it over, or
// its kernel answers for what is not its.
func (c *claim) heeds(by holder) bool { return c.want.Ask || c.refuses() && by.node == "" }

// ask asks the wire, and takes the address if nobody answers.
func (c *claim) ask(now time.Time) {
	c.state.Store(silent)
	c.missed.Store(false)
	c.asking, c.asked, c.left, c.since = true, 0, holder{}, now
	c.step = probeStep
	c.schedule(now)
}

// questions returns how often the wire is asked before a claim.
func (c *claim) questions() int {
	if c.want.Ask {
		return askTimes
	}
	return 1
}

// take makes the address ours.
func (c *claim) take(now time.Time) {
	c.asking, c.left, c.first = false, holder{}, false
	c.taken = now
	c.state.Store(answering)
}

// leave leaves the address to whoever has answered, until it is asked for
// again. It says whether that is news.
func (c *claim) leave(now time.Time, to holder) (isNew bool) {
	isNew = c.left != to
	if isNew {
		c.since = now
	}
	c.asking, c.left = false, to
	c.step = probeStep
	c.schedule(now.Add(c.askAgainAfter()))
	return isNew
}

// withheld tells whether the address is not ours because of what the wire may
// say, or has said.
func (c *claim) withheld() bool { return c.asking || c.left != holder{} }

// askAgainAfter returns how long an address stays left before the wire is
// asked again. One that is refused is asked for as often as our own are.
func (c *claim) askAgainAfter() time.Duration {
	if c.want.Ask {
		return askAgain
	}
	return c.refreshAfter()
}

// announces tells whether there is something to announce: not while it is
// asked for, left to another, handed over or waiting for the socket.
func (c *claim) announces() bool { return c.state.Load() == answering }

// burst announces the address like a new owner, from the first round on. What
// is being asked for is asked for anew.
func (c *claim) burst(now time.Time) {
	switch {
	case c.asking:
		c.ask(now)
	case c.announces():
		c.step = firstStep
		c.schedule(now)
	}
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

// repeat announces the address in one more round after a member did, which may
// have turned clients away from us. By then whoever has lost it knows; and two
// that both take themselves for the owner do not shout at each other for long.
func (c *claim) repeat(now time.Time) {
	if !c.announces() || c.step <= c.steps.lastRound() {
		return // a round is still to come
	}
	c.repeated = later(now.Add(handOverTime), c.repeated.Add(defence))
	c.step = c.steps.lastRound()
	c.schedule(c.repeated)
}

// turn comes before the step that is due. It tells whether the address is ours
// from now on.
func (c *claim) turn(now time.Time) (taken bool) {
	switch {
	case c.asking && c.step != probeStep && c.missed.Load():
		c.ask(now) // somebody has answered, and it is not known who
	case c.asking && c.step != probeStep:
		c.take(now) // nobody has answered
		return true
	case !c.asking && c.left != holder{} && c.want.Ask:
		c.asking, c.asked = true, 0
	}
	return false
}

// sent goes on to the next step after the current one went out at now.
func (c *claim) sent(now time.Time) {
	if c.withheld() {
		c.wasAsked(now)
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

// wasAsked goes on after a question.
func (c *claim) wasAsked(now time.Time) {
	c.asked++
	switch {
	case !c.asking:
		c.schedule(now.Add(c.refreshAfter()))
	case c.asked < c.questions():
		c.schedule(now.Add(askGap))
	default:
		c.step = firstStep
		c.schedule(now.Add(refusal - time.Duration(c.asked-1)*askGap))
	}
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

// follow takes over what is wanted of a claim that is to be handed over, or is.
func (c *claim) follow(to plan.Announcement) {
	c.want = to
	c.peers.Store(&to.Peers)
}

// release ends a hand-over if by, the MAC that was heard to announce the
// address, is a member's. What any other station says ends none: the address
// would be answered by nobody of ours.
func (c *claim) release(by mac) bool {
	if c.state.Load() != yielding {
		return false
	}
	peers := c.peers.Load()
	return peers != nil && (*peers)[by.String()] != "" && c.state.CompareAndSwap(yielding, released)
}

// update follows a changed announcement of a claim that was made, and is not
// to be handed over.
func (c *claim) update(now time.Time, to plan.Announcement) {
	from := c.want
	c.want = to
	c.want.First = to.First || from.First && !c.begun // it has not been asked for yet
	switch state := c.state.Load(); {
	case state == released && c.mustAsk():
		c.ask(now)
	case state == yielding || state == released:
		c.take(now) // it came back to us
		c.burst(now)
	case c.left != holder{} && !c.heeds(c.left), c.asking && !c.mustAsk():
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

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
