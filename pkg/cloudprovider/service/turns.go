package service

import (
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// turns spaces the moves that nobody has asked for, those by the rule of a
// pool: each breaks the connections of a Service and has its clients learn a
// new address. A Service takes a turn when it is known where it moves to, and
// keeps it until it has moved or need not move any more, or the interval is
// another one.
type turns struct {
	mu       sync.Mutex
	interval time.Duration
	at       map[ipam.Key]time.Time // when the turn of a Service is
	last     time.Time              // the latest turn that was given
	done     time.Time              // the latest one that was taken
}

func newTurns() *turns {
	return &turns{at: map[ipam.Key]time.Time{}}
}

// pause returns how long a Service has to wait for its turn.
func (t *turns) pause(key ipam.Key, interval time.Duration, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if interval != t.interval {
		clear(t.at)
		t.interval, t.last = interval, t.done
	}
	at, has := t.at[key]
	if !has {
		at = now
		if next := t.last.Add(interval); next.After(now) {
			at = next
		}
		t.at[key], t.last = at, at
	}
	if at.After(now) {
		return at.Sub(now)
	}
	t.done = at
	return 0
}

// forget takes back the turn of a Service that has moved, or need not move.
func (t *turns) forget(key ipam.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, key)
	if len(t.at) == 0 {
		t.last = t.done // nobody waits any more for those who gave up
	}
}

// waiting returns how many Services wait for their turn.
func (t *turns) waiting(now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, at := range t.at {
		if at.After(now) {
			n++
		}
	}
	return n
}
