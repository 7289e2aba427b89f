package l2

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Options is what a Speaker needs. The zero value is useful.
type Options struct {
	Log *slog.Logger // nil: no log

	// Kick is called when a hand-over has ended, when an address was left to
	// another station or taken after nobody else answered for it, and when a
	// conflict has begun or ended, so that the caller looks at Answering,
	// Withheld and Conflicts again. It must not block and must not call the
	// Speaker. It may be nil.
	Kick func()

	sockets sockets // nil: real ones
}

// Speaker announces addresses by ARP and NDP. Its methods may be called at the
// same time from any goroutine.
type Speaker struct {
	log     *slog.Logger
	kick    func()
	sockets sockets

	calls     chan func()   // to be run by the loop
	sightings chan sighting // from the readers
	wake      chan struct{} // a reader changed something
	quit      chan struct{}
	once      sync.Once
	done      chan struct{} // closed by the loop

	arp, ndp familyStats

	// The loop owns these.
	links     map[int]*link // by index
	owns      []mac         // of all links, sorted
	contested map[*claim]struct{}
	expireAt  time.Time // when a rival may be forgotten, zero: there is none
	tellAt    time.Time // when to tell of addresses that were taken, zero: none was
}

// ErrClosed is what Set returns after Close.
var ErrClosed = errors.New("layer 2 speaker is closed")

// sightingRoom is how many foreign frames may wait for the loop.
const sightingRoom = 256

// New starts a Speaker that announces nothing. The caller ends it with Close.
func New(o Options) *Speaker {
	s := &Speaker{
		log: o.Log, kick: o.Kick, sockets: o.sockets,
		calls:     make(chan func()),
		sightings: make(chan sighting, sightingRoom),
		wake:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
		links:     map[int]*link{},
		contested: map[*claim]struct{}{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.kick == nil {
		s.kick = func() {}
	}
	if s.sockets == nil {
		s.sockets = systemSockets{}
	}
	go s.run()
	return s
}

// Set makes the speaker announce want and nothing else: what want does not
// name is silent when Set returns, what it hands over goes on until the new
// owner is heard. A link that cannot be used does not keep the others from
// being used; it is reported once, here or in the log, and tried again. Nobody
// may change what want points to afterwards.
func (s *Speaker) Set(ctx context.Context, want []plan.Announcement) error {
	var err error
	if stopped := s.do(ctx, func() { err = s.set(time.Now(), want) }); stopped != nil {
		return stopped
	}
	return err
}

// Answering returns what the speaker answers for, sorted by address; what is
// being handed over included, what no link could be opened for or is up for
// left out. Links are those on which it answers.
func (s *Speaker) Answering() []plan.Announcement {
	var out []plan.Announcement
	_ = s.do(context.Background(), func() { out = s.answering() })
	return out
}

// Conflicts returns the stations that claim addresses of ours, sorted by
// address, link and MAC.
func (s *Speaker) Conflicts() []Conflict {
	var out []Conflict
	_ = s.do(context.Background(), func() { out = s.conflicts() })
	return out
}

// Withheld returns what is wanted and not claimed because of what the wire may
// say or has said, sorted by address and link.
func (s *Speaker) Withheld() []Withheld {
	var out []Withheld
	_ = s.do(context.Background(), func() { out = s.withheld() })
	return out
}

// Stats returns what was counted so far.
func (s *Speaker) Stats() Stats {
	out := Stats{ARP: s.arp.read(), NDP: s.ndp.read()}
	_ = s.do(context.Background(), func() { out.Links = s.linkStats(time.Now()) })
	return out
}

// Close silences everything at once and returns when nothing of the speaker is
// left. It may be called more than once.
func (s *Speaker) Close() {
	s.once.Do(func() { close(s.quit) })
	<-s.done
}

// do has the loop run f, and returns when it has.
func (s *Speaker) do(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	finished := make(chan struct{})
	select {
	case s.calls <- func() { f(); close(finished) }:
		<-finished
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return ErrClosed
	}
}
