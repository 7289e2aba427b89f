package observe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Series makes the same attempt again and again, also while earlier attempts
// still last, until it is stopped.
type Series struct {
	try    func(context.Context) error
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex
	attempts []Attempt
}

// An Attempt is one of a Series.
type Attempt struct {
	Begin time.Time
	Took  time.Duration
	Err   error
}

// Repeat starts a Series that calls try every interval. The context of try ends
// after patience.
func Repeat(interval, patience time.Duration, try func(context.Context) error) *Series {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Series{try: try, cancel: cancel}
	s.tasks.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			// Not a child of ctx: Stop lets the attempts that run come to
			// their end.
			s.tasks.Go(func() { s.attempt(patience) })
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return s
}

func (s *Series) attempt(patience time.Duration) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.try(ctx)
	a := Attempt{Begin: begin, Took: time.Since(begin), Err: err}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, a)
}

// Stop ends the Series, waits for the attempts that run, and returns all in
// their order.
func (s *Series) Stop() Attempts {
	s.cancel()
	s.tasks.Wait()
	slices.SortFunc(s.attempts, func(a, b Attempt) int { return a.Begin.Compare(b.Begin) })
	return s.attempts
}

// Attempts are those of a Series, in their order.
type Attempts []Attempt

// Failed returns those that ended with an error.
func (a Attempts) Failed() Attempts {
	return slices.DeleteFunc(slices.Clone(a), func(x Attempt) bool { return x.Err == nil })
}

// Slowest returns how long the slowest took.
func (a Attempts) Slowest() time.Duration {
	var slowest time.Duration
	for _, x := range a {
		slowest = max(slowest, x.Took)
	}
	return slowest
}

func (a Attempts) String() string {
	failed := a.Failed()
	text := fmt.Sprintf("%d attempts, %d failed, the slowest took %v", len(a), len(failed), a.Slowest().Round(time.Millisecond))
	if len(failed) > 0 {
		text += fmt.Sprintf("; first failure at %s: %v", clock(failed[0].Begin), failed[0].Err)
	}
	return text
}
