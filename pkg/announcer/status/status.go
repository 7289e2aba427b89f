// Package status tells people and machines how an announcer is doing: health,
// metrics, the decisions in force and why they are as they are, and an event on
// a Service when this node begins to announce one of its addresses. Nothing of
// it can hold up the announcing.
package status

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Pass is the outcome of one pass of the loop.
type Pass struct {
	// Snapshot and Verdicts are in force. If the pass failed because nothing is
	// known, they are those of the last one that did not, and zero before it.
	Snapshot plan.Snapshot
	Verdicts []plan.Verdict

	Changes []plan.Change // against the pass before
	Err     error
	Started time.Time
	Took    time.Duration
}

// known tells whether there has been a snapshot.
func (p Pass) known() bool { return p.Snapshot.Node != "" }

// Options is what a Status reports about. All fields are required. The
// functions are called from any goroutine and return what holds now.
type Options struct {
	Node string

	Document    func() string            // the text of the configuration in force
	ConfigFault func() error             // why the newest document was refused, nil if it was not
	Unreachable func() []string          // what cannot be read from the API server, sorted
	LeftOut     func() map[string]string // links that never carry an announcement, with the cause
	Answering   func() []plan.Announcement
	Gossip      func() Gossip
	Warming     func() time.Duration // for how long a new announcer is still not to count as ready
	Layer2      func() Layer2
	BGP         func() []BGPSession
	Host        func() []HostLink
	ObserveOnly bool          // nothing of what is decided is done
	Reloads     func() uint64 // how often FRR has been given another configuration

	// Moved is called for each change that concerns this node: when it has
	// lost an address, and when a speaker has begun to answer for one that it
	// has gained. It must not block.
	Moved func(Note)

	Log *slog.Logger
}

// Note is a change of who announces an address, and whom it concerns.
type Note struct {
	plan.Change
	Services []string // namespace/name of all that hold the address
}

// Status keeps what the last pass has brought for whoever asks.
type Status struct {
	o        Options
	born     time.Time
	last     atomic.Pointer[Pass]
	registry *prometheus.Registry
	counters counters
	moves    moves

	gained map[netip.Addr]gain // ours, not yet seen answered; Observe's own
}

// gain is an address that this node owns since a pass.
type gain struct {
	Note
	since time.Time
}

// New returns a Status that has not seen a pass yet.
func New(o Options) *Status {
	s := &Status{o: o, born: time.Now(), gained: map[netip.Addr]gain{}}
	s.last.Store(&Pass{})
	s.register()
	return s
}

// Observe takes the outcome of a pass. It does not block, and the caller must
// not change the pass afterwards.
func (s *Status) Observe(p Pass) {
	s.counters.count(p)
	s.moves.note(s.last.Load(), p)
	s.tell(p)
	s.last.Store(&p)
}

// tell passes on what this node has lost and begun to announce. Owning an
// address is a decision; it is told only when a speaker really answers.
func (s *Status) tell(p Pass) {
	for _, c := range p.Changes {
		delete(s.gained, c.Address)
		note := Note{Change: c, Services: holders(p.Verdicts, c.Address)}
		switch {
		case c.From == c.To:
		case c.To == s.o.Node:
			s.gained[c.Address] = gain{note, p.Started}
		case c.From == s.o.Node:
			s.o.Moved(note)
		}
	}
	if len(s.gained) == 0 {
		return
	}
	for _, a := range s.o.Answering() {
		gained, ok := s.gained[a.Address]
		if ok && !a.Yield {
			delete(s.gained, a.Address)
			s.o.Moved(gained.Note)
			if gained.From != "" {
				s.counters.takeover.Observe(p.Started.Add(p.Took).Sub(gained.since).Seconds())
			}
		}
	}
	if len(s.gained) == 0 {
		s.gained = map[netip.Addr]gain{} // a map never shrinks, and there may have been thousands
	}
}

// holders returns the Services of an address; the verdicts are sorted by it.
func holders(verdicts []plan.Verdict, address netip.Addr) []string {
	i, found := slices.BinarySearchFunc(verdicts, address, func(v plan.Verdict, a netip.Addr) int {
		return v.Address.Compare(a)
	})
	if !found {
		return nil
	}
	return verdicts[i].Services
}
