package bgp

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Options is what a Speaker is made of. All fields are required.
type Options struct {
	Node string // whose name makes the router ID where none is configured

	// Password returns the password in a Secret. It is called before each
	// attempt to connect to a peer that has one, and may block until ctx ends.
	// After any error the last one that was returned is used.
	Password func(ctx context.Context, secret string) (string, error)

	// Dial connects to a peer. It may block until ctx ends.
	Dial func(ctx context.Context, t Target) (Transport, error)

	Log *slog.Logger
}

// NoPasswordError is the error of a Password that knows that there is none, or
// none that is of use: it is no error in reading it, after which the password
// of before is better than nothing.
type NoPasswordError struct {
	Why string // a sentence without the password in it
}

// Error says why.
func (e NoPasswordError) Error() string { return e.Why }

// Speaker has the sessions of a node. Its methods may be called from any
// goroutine.
type Speaker struct {
	o Options

	mu    sync.Mutex
	peers map[string]*peer
	gone  map[*peer]bool // not wanted any more, taking leave
	left  bool
}

// New returns a Speaker without sessions.
func New(o Options) *Speaker {
	return &Speaker{o: o, peers: map[string]*peer{}, gone: map[*peer]bool{}}
}

// Set makes routers agree with want: there is a session with each of them, and
// each is told its routes and nothing else. It only takes note, and each
// session follows on its own: what a session cannot do is its state, and stops
// neither another one nor the caller. Set(nil) takes leave of all. It is
// idempotent, and has no effect after Leave.
func (s *Speaker) Set(want []plan.Peering) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return
	}
	begin := map[string]plan.Peering{}
	for _, w := range want {
		begin[w.Peer.Name] = w
	}
	var over []*peer
	for name, p := range s.peers {
		if w, ok := begin[name]; ok && roster.SameSession(p.config, w.Peer) {
			p.set(w)
			delete(begin, name)
			continue
		}
		delete(s.peers, name)
		over = append(over, p)
	}
	for _, p := range over {
		s.retire(p, howToEnd(p, begin))
	}
	for name, w := range begin {
		s.peers[name] = s.start(w)
	}
}

// howToEnd says how a session ends, given those that begin. One that another
// follows must not be told first that it is removed: it would connect once more.
func howToEnd(p *peer, begin map[string]plan.Peering) ending {
	for _, w := range begin {
		if w.Peer.Address == p.router() {
			return replaced
		}
	}
	return removed
}

// start makes a session. If an earlier one with the same router is still
// taking leave, the new one waits for it: a router refuses a second connection.
// What the router keeps of one that is down is the new one's to replace.
func (s *Speaker) start(w plan.Peering) *peer {
	before := s.replaced(w)
	p := newPeer(s.o, w)
	go func() {
		defer close(p.done)
		for _, old := range before {
			<-old.done
			p.inherit(old)
		}
		p.run()
	}()
	return p
}

// replaced returns those that take leave of a router with which another session
// begins. They make no more attempts.
func (s *Speaker) replaced(by plan.Peering) []*peer {
	var out []*peer
	for old := range s.gone {
		if old.router() == by.Peer.Address {
			old.end(replaced)
			out = append(out, old)
		}
	}
	return out
}

// Yield says that other Speakers of the node have these sessions: no more
// attempts are made to take leave of their routers, which would take them for
// restarts of those sessions (RFC 4724, section 4.2).
func (s *Speaker) Yield(others []plan.Peering) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range others {
		s.replaced(w)
	}
}

// retire takes leave of a router that is not wanted any more, or not in that
// way.
func (s *Speaker) retire(p *peer, how ending) {
	s.gone[p] = true
	p.end(how)
	go func() {
		<-p.done
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.gone, p)
	}()
}

// Leave ends all sessions and returns when they have ended, or with ctx. A
// router that has promised to keep the routes of a restarting announcer loses
// its connection without a word; all others are asked to avoid the routes, and
// after a pause they lose them.
func (s *Speaker) Leave(ctx context.Context) {
	s.mu.Lock()
	s.left = true
	var all []*peer
	for _, p := range s.peers {
		p.end(stopping)
		all = append(all, p)
	}
	for p := range s.gone {
		all = append(all, p)
	}
	s.mu.Unlock()
	for _, p := range all {
		select {
		case <-p.done:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends all sessions at once, as the death of the process would.
func (s *Speaker) Close() {
	s.mu.Lock()
	s.left = true
	all := make([]*peer, 0, len(s.peers)+len(s.gone))
	for _, p := range s.peers {
		all = append(all, p)
	}
	for p := range s.gone {
		all = append(all, p)
	}
	s.mu.Unlock()
	for _, p := range all { // all of them before any is waited for: some wait for others
		p.cancel()
	}
	for _, p := range all {
		<-p.done
	}
}

// Sessions returns the state of all sessions, sorted by the peer's name; those
// that have to take leave of a router come too, unless another has its name.
func (s *Speaker) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Session
	for _, p := range s.peers {
		out = append(out, p.session())
	}
	var attempts []Session
	for p := range s.gone {
		switch state := p.session(); state.State {
		case Left:
		case Leaving:
			out = append(out, state)
		default:
			state.Why = strings.TrimSuffix(keepsRoutes+state.Why, ": ")
			attempts = append(attempts, state)
		}
	}
	out = append(out, attempts...)
	slices.SortStableFunc(out, func(a, b Session) int { return strings.Compare(a.Peer, b.Peer) })
	return slices.CompactFunc(out, func(a, b Session) bool { return a.Peer == b.Peer })
}

// keepsRoutes is why there are attempts to connect to a router that is not
// wanted any more.
const keepsRoutes = "removed, but the router may keep routes of ours: "
