package bgp

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ending says how a session is to end.
type ending int

const (
	staying  ending = iota
	removed         // not wanted any more
	replaced        // nor in that way: another session with the router follows
	stopping        // the announcer ends
)

// peer is one router and the session with it. Its goroutine does all that
// takes time; mu is held for a few lines only.
type peer struct {
	o      Options
	config config.Peer
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	kick   chan struct{} // capacity 1

	mu     sync.Mutex
	want   plan.Peering
	ending ending
	state  Session

	// kept is until when the router may keep routes of ours while there is no
	// session (RFC 4724, section 4.2).
	kept time.Time

	// attempt ends an attempt to bring the session up.
	attempt context.CancelFunc

	password string // last known; the goroutine's own, as are all below
	told     string // trouble that has been logged
	fresh    bool   // no session has come up since the process started

	since time.Time // when the session came up that there is, or was last; zero: the last attempt brought none
}

func newPeer(o Options, w plan.Peering) *peer {
	ctx, cancel := context.WithCancel(context.Background())
	p := &peer{
		o: o, config: w.Peer, ctx: ctx, cancel: cancel, want: w, fresh: true,
		done: make(chan struct{}), kick: make(chan struct{}, 1),
		kept: keptUntil(time.Now(), w.Peer.GracefulRestart, w.Peer.HoldTime), // of an announcer before this one
	}
	p.state = Session{
		Peer: w.Peer.Name, Address: w.Peer.Address, Port: w.Peer.Port, LocalASN: w.Peer.LocalASN,
		RouterID: RouterID(o.Node, w.Peer), State: Idle, Since: time.Now(),
	}
	return p
}

func (p *peer) router() netip.Addr { return p.config.Address }

// set changes what is wanted. It does not block.
func (p *peer) set(w plan.Peering) {
	p.mu.Lock()
	p.want = w
	p.mu.Unlock()
	p.wake()
}

// end makes the session end. One that is not up yet is given up at once, unless
// it has a router to take leave of.
func (p *peer) end(how ending) {
	p.mu.Lock()
	p.ending = how
	if p.attempt != nil && p.over() && (p.state.State == Connecting || p.state.State == Opening) {
		p.attempt()
	}
	p.mu.Unlock()
	p.wake()
}

// over tells whether the end has come and no session is worth an attempt any
// more: the router keeps nothing, or what it keeps is for another session to
// replace, be it the next announcer's. The mutex is held.
func (p *peer) over() bool {
	switch p.ending {
	case staying:
		return false
	case removed:
		return !p.keeps()
	case stopping:
		return p.want.Leaving == "" || !p.keeps()
	}
	return true
}

// keeps tells whether the router may keep routes of ours. The mutex is held.
func (p *peer) keeps() bool { return time.Now().Before(p.kept) }

// idle tells whether there is nothing for now that the router could be told:
// this node advertises nothing any more, and the router keeps nothing from
// before. The mutex is held.
func (p *peer) idle() bool { return p.want.Leaving != "" && !p.keeps() }

// outlook returns what is wanted now, and whether sessions are over or idle.
func (p *peer) outlook() (w plan.Peering, over, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want, p.ctx.Err() != nil || p.over(), p.idle()
}

// hurried tells whether the next attempt, or the end of all, is not worth a
// pause.
func (p *peer) hurried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending != staying || p.idle()
}

// ended notes until when the router may keep routes, now that the session is
// down.
func (p *peer) ended(kept time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = kept
}

// inherit takes on what the router may keep of an earlier session with it, which
// is over.
func (p *peer) inherit(old *peer) {
	old.mu.Lock()
	kept := old.kept
	old.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept.After(p.kept) {
		p.kept = kept
	}
}

func (p *peer) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// wanted returns what is wanted now.
func (p *peer) wanted() (plan.Peering, ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want, p.ending
}

// note changes the state that is shown.
func (p *peer) note(change func(*Session)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.state.State
	change(&p.state)
	if p.state.State != before {
		p.state.Since = time.Now()
	}
}

func (p *peer) enter(s State, why string) {
	p.note(func(x *Session) {
		x.State, x.Why = s, why
		if s != Established && s != Leaving {
			x.Advertised, x.Families, x.Mute, x.Restarting = nil, nil, nil, false
		}
	})
}

// session returns what the session is at.
func (p *peer) session() Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.Wanted = len(p.want.Routes)
	return s
}

const (
	firstPause = time.Second

	// steady is how long a session has to have been up for the pauses to begin
	// anew.
	steady = 30 * time.Second
)

// run has one session after the other until the peer is not wanted any more.
func (p *peer) run() {
	defer p.cancel()
	pause := firstPause
	for {
		w, over, idle := p.outlook()
		switch {
		case over:
			p.enter(Left, "")
			return
		case idle:
			p.enter(Left, string(w.Leaving))
			p.wait(nil)
			continue
		}
		p.since = time.Time{}
		err := p.connect()
		if errors.Is(err, errFarewell) {
			continue
		}
		p.fail(err)
		if !p.since.IsZero() && time.Since(p.since) >= steady {
			pause = firstPause
		}
		p.wait(time.After(Jitter(pause)))
		pause = min(2*pause, max(w.Peer.ConnectTime, firstPause))
	}
}

// wait returns when the time is over, the session must end, or, without a
// time, when something changes.
func (p *peer) wait(over <-chan time.Time) {
	for {
		select {
		case <-over:
			return
		case <-p.ctx.Done():
			return
		case <-p.kick:
			if over == nil || p.hurried() {
				return
			}
		}
	}
}

// Jitter takes up to a quarter off a time that is not negative, so that the nodes
// of a cluster do not all connect, ask, or give signs of life, at once (RFC 4271,
// section 10).
func Jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// fail notes why a session did not come up, or has ended, and logs it when
// that is news.
func (p *peer) fail(err error) {
	if p.ctx.Err() != nil {
		return
	}
	was := p.session().State
	p.enter(Idle, err.Error())
	switch {
	case was == Established || was == Leaving:
		p.o.Log.Warn("BGP session lost", "peer", p.config.Name, "address", p.config.Address, "err", err)
	case err.Error() != p.told:
		p.o.Log.Warn("BGP session does not come up", "peer", p.config.Name, "address", p.config.Address, "err", err)
	}
	p.told = err.Error()
}

// RouterID returns the router ID of a node on a session. Where none is
// configured it is made from the node's name, so that it is the same after a
// restart, and another one for another node, whatever addresses they have.
func RouterID(node string, c config.Peer) netip.Addr {
	if c.RouterID.IsValid() {
		return c.RouterID
	}
	sum := sha256.Sum256([]byte(node))
	return netip.AddrFrom4([4]byte{1 + sum[0]%223, sum[1], sum[2], sum[3]}) // looks like a host's address: 1 to 223
}
