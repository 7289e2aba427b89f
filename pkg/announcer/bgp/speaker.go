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
	wanted := map[string]bool{}
	for _, w := range want {
		name := w.Peer.Name
		wanted[name] = true
		switch p := s.peers[name]; {
		case p == nil:
			s.peers[name] = s.start(w)
		case roster.SameSession(p.config, w.Peer):
			p.set(w)
		default:
			s.retire(p)
			s.peers[name] = s.start(w)
		}
	}
	for name, p := range s.peers {
		if !wanted[name] {
			delete(s.peers, name)
			s.retire(p)
		}
	}
}

// start makes a session. If an earlier one with the same router is still
// taking leave, the new one waits for it: a router refuses a second connection.
func (s *Speaker) start(w plan.Peering) *peer {
	var before []*peer
	for old := range s.gone {
		if old.router() == w.Peer.Address {
			before = append(before, old)
		}
	}
	p := newPeer(s.o, w)
	go func() {
		defer close(p.done)
		for _, old := range before {
			<-old.done
		}
		p.run()
	}()
	return p
}

// retire takes leave of a router that is not wanted any more, or not in that
// way.
func (s *Speaker) retire(p *peer) {
	s.gone[p] = true
	p.end(removed)
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
	for _, p := range all {
		p.cancel()
		<-p.done
	}
}

// Sessions returns the state of all sessions, sorted by the peer's name; those
// that take leave of a router come too, unless another has its name.
func (s *Speaker) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Session
	for _, p := range s.peers {
		out = append(out, p.session())
	}
	for p := range s.gone {
		if state := p.session(); state.State == Leaving && s.peers[state.Peer] == nil {
			out = append(out, state)
		}
	}
	slices.SortFunc(out, func(a, b Session) int { return strings.Compare(a.Peer, b.Peer) })
	return out
}
