// Package keeper is the life of a Speaker that has another program hold the
// sessions: a goroutine, which keeps that program in agreement with what is
// wanted, what it is asked for, and what it last showed.
package keeper

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Keeper is one goroutine and what it shares with others. Its methods may be
// called from any goroutine, and none of them waits, but for Leave, Close and
// Wait.
type Keeper struct {
	ctx    context.Context
	cancel context.CancelFunc
	run    func(context.Context)
	done   chan struct{}
	kick   chan struct{} // capacity 1

	mu       sync.Mutex
	started  bool
	closed   bool
	wish     Wish
	sessions []bgp.Session
}

// Wish is what is asked for.
type Wish struct {
	Peerings []plan.Peering
	Ending   bool      // the announcer ends
	Deadline time.Time // of that; zero: there is none
}

// New returns a keeper that runs run once something is asked of it. That is to
// return when it has taken leave of all, or its context has ended.
func New(run func(context.Context)) *Keeper {
	k := &Keeper{run: run, done: make(chan struct{}), kick: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Started tells whether anything has been asked.
func (k *Keeper) Started() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.started
}

// Set asks for sessions. It has no effect once the end has come.
func (k *Keeper) Set(want []plan.Peering) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wish.Ending || k.closed {
		return
	}
	k.wish.Peerings = want
	if !k.started {
		k.started = true
		go k.live()
	}
	k.Wake()
}

func (k *Keeper) live() {
	defer close(k.done)
	defer k.cancel()
	k.run(k.ctx)
}

// Wake ends a Wait, or the next one.
func (k *Keeper) Wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// Wait returns after a time, 0 for no limit, or when something has changed.
func (k *Keeper) Wait(pause time.Duration) {
	var over <-chan time.Time
	if pause > 0 {
		over = time.After(pause)
	}
	select {
	case <-k.ctx.Done():
	case <-k.kick:
	case <-over:
	}
}

// Wish returns what is asked for now. The peerings must not be changed.
func (k *Keeper) Wish() Wish {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wish
}

// Leave says that the announcer ends, and returns when the goroutine has, or
// with ctx.
func (k *Keeper) Leave(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	if !k.end(deadline) {
		return
	}
	k.Wake()
	select {
	case <-k.done:
	case <-ctx.Done():
	}
}

// Close ends the goroutine at once. It asks for nothing: a pass that is under way
// must not begin a leave.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	started := k.started
	k.mu.Unlock()
	k.cancel()
	if started {
		<-k.done
	}
}

func (k *Keeper) end(deadline time.Time) (started bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wish.Ending, k.wish.Deadline = true, deadline
	return k.started
}

// Sessions returns what was last shown.
func (k *Keeper) Sessions() []bgp.Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.sessions)
}

// Show replaces what Sessions returns. It notes since when each has been in its
// state, sorts them by the peer's name, and of several with one name keeps the
// first.
func (k *Keeper) Show(now time.Time, all []bgp.Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	since := map[string]bgp.Session{}
	for _, old := range k.sessions {
		since[old.Peer] = old
	}
	for i := range all {
		all[i].Since = now
		if old, known := since[all[i].Peer]; known && old.State == all[i].State {
			all[i].Since = old.Since
		}
	}
	slices.SortStableFunc(all, func(a, b bgp.Session) int { return strings.Compare(a.Peer, b.Peer) })
	k.sessions = slices.CompactFunc(all, func(a, b bgp.Session) bool { return a.Peer == b.Peer })
}
