package membership

import (
	"sync"
	"sync/atomic"
)

// tasks are goroutines that may outlive the call that started them, but not
// the membership.
type tasks struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// run starts f, unless the tasks are closed. It reports whether it did.
func (t *tasks) run(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// close lets no task start any more, and waits for those that run.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}

// counts are the counters behind Stats that no other part keeps.
type counts struct {
	joins, joinFailures, garbled, refused, updates atomic.Int64
}

// signal wakes the reader of a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
