// Package record keeps what a node's announcer has been through, in a small
// file on the host, and from it whether the node settles: whether it has come
// back so lately, or so often, that it leaves addresses to others.
package record

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/settling"
)

// Options is what a Record needs. Kick and Log are required.
type Options struct {
	Path string // of the file; empty: nothing is remembered over a restart
	Kick func() // called when Settling or Established change; must not block
	Log  *slog.Logger
}

// Record is one node's record. Its methods may be called from any goroutine,
// and none of them blocks but Run. A file that is lost, cannot be read or
// cannot be written makes the node a newcomer, and is no obstacle.
type Record struct {
	o     Options
	dirty chan struct{} // capacity 1: the file is out of date

	mu      sync.Mutex
	history settling.History
	joined  time.Time // zero: does not take part yet; has a monotonic reading, as all but the history's times
	founder bool
	settle  time.Duration // of the configuration, when it joined
	until   time.Time     // settles until then
	first   time.Time     // readiness waits until then
}

// Open reads the record of the node.
func Open(o Options) *Record {
	r := &Record{o: o, dirty: make(chan struct{}, 1)}
	history, err := load(o.Path)
	if err != nil {
		o.Log.Warn("the record of this node is of no use, beginning a new one", "file", o.Path, "err", err)
	}
	r.history = history.Sane(time.Now())
	return r
}

// Run keeps the file up to date until ctx ends, and once more then.
func (r *Record) Run(ctx context.Context) error {
	trouble := false
	for {
		select {
		case <-ctx.Done():
			select {
			case <-r.dirty:
				r.save(&trouble)
			default:
			}
			return nil
		case <-r.dirty:
			r.save(&trouble)
		}
	}
}

// save writes the file and says once that it cannot.
func (r *Record) save(trouble *bool) {
	r.mu.Lock()
	history := r.history
	r.mu.Unlock()
	err := store(r.o.Path, history)
	if err != nil && !*trouble {
		r.o.Log.Warn("the record of this node cannot be kept: it will be a newcomer when it starts again", "file", r.o.Path, "err", err)
	}
	*trouble = err != nil
}

// forgiven is how many unplanned departures a founder may have behind it. A
// power cut ends all nodes once, and when they start again, one after the other,
// nobody is to have all addresses because it was the first. Who comes back again
// and again is damped in a new cluster too.
const forgiven = 1

// Join notes that the announcer takes part from now on. Only the first call
// does something. A founder is settled at once: nobody was there before it. But
// not one that has departed more often than all nodes might have together.
func (r *Record) Join(settle time.Duration, founder bool) {
	r.mu.Lock()
	if !r.joined.IsZero() {
		r.mu.Unlock()
		return
	}
	now := time.Now()
	r.note(settling.Start, now)
	founder = founder && r.history.Departures(now) <= forgiven
	r.joined, r.founder, r.settle = now, founder, settle
	var b begun
	if !founder {
		b = r.begin(now)
		r.first = now.Add(min(settle, b.wait))
	}
	r.mu.Unlock()
	time.AfterFunc(settle, r.o.Kick) // it may be established then
	r.tell(b)
}

// Settling tells whether others are to be preferred to this node or, before it
// has joined, whether they will be. settle is that of the configuration in
// force. founder says that no member that the node has met was established
// when it met it. Who joined as a founder only because it had met nobody yet
// settles when that turns out, as long as it is new itself.
func (r *Record) Settling(settle time.Duration, founder bool) bool {
	r.mu.Lock()
	now := time.Now()
	if r.joined.IsZero() {
		h := r.history.With(settling.Event{At: now, Kind: settling.Start})
		r.mu.Unlock()
		return settle > 0 && !(founder && h.Departures(now) <= forgiven)
	}
	r.settle = settle
	var b begun
	if r.founder && !founder && now.Sub(r.joined) < settle {
		r.founder = false
		b = r.begin(now)
	}
	on := now.Before(r.until)
	r.mu.Unlock()
	r.tell(b)
	return on
}

// Established tells whether the announcer has taken part for the time of
// settling and is settled. Whoever joins from now on is no founder.
func (r *Record) Established() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return !r.joined.IsZero() && now.Sub(r.joined) >= r.settle && !now.Before(r.until)
}

// Died notes that others took this announcer for dead: the node settles.
func (r *Record) Died() {
	r.mu.Lock()
	var b begun
	if now := time.Now(); !r.joined.IsZero() { // before, it owned nothing
		r.note(settling.Death, now)
		b = r.begin(now)
	}
	r.mu.Unlock()
	r.tell(b)
}

// Stopped notes an end in the orderly way. The file has it when Run returns.
func (r *Record) Stopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.joined.IsZero() {
		r.note(settling.Stop, time.Now())
	}
}

// Warming returns for how long readiness still has to wait: while a node
// settles for the first time after a start, but not longer than once the time
// of settling, so that a rollout waits for the nodes that it has replaced and
// a bad night is no obstacle to the release that mends it.
func (r *Record) Warming() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.first))
}

// Remaining returns for how long the node still settles.
func (r *Record) Remaining() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.until))
}

// begun is what there is to tell of a settling.
type begun struct {
	wait       time.Duration // zero: nothing has begun
	departures int
}

// begin makes the node settle by its history, with the mutex held.
func (r *Record) begin(now time.Time) begun {
	b := begun{r.history.Wait(now, r.settle), r.history.Departures(now)}
	if until := now.Add(b.wait); until.After(r.until) {
		r.until = until
	}
	return b
}

// tell logs and kicks, with the mutex free.
func (r *Record) tell(b begun) {
	if b.wait == 0 {
		return
	}
	r.o.Log.Info("settling, other nodes are preferred", "for", b.wait, "departures", b.departures)
	time.AfterFunc(b.wait, r.o.Kick)
	r.o.Kick()
}

// note adds an event, with the mutex held.
func (r *Record) note(kind settling.Kind, now time.Time) {
	r.history = r.history.With(settling.Event{At: now.Round(0), Kind: kind})
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}
