package status

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// How conditions are paced. After a start many addresses have another owner
// for a moment. What is not announced may only be late.
const (
	conditionsPerSecond = 2
	conditionsBurst     = 20
	quietAtStart        = 5 * time.Second
	sureAfter           = 3 * time.Second

	// unansweredFor is how long an owner may take to answer for an address: it
	// may have to ask others first, and passes are up to half a minute apart.
	unansweredFor = 45 * time.Second

	// rewriteFirst is when a condition is written again that somebody else has
	// changed; each time it takes twice as long, up to rewriteLast.
	rewriteFirst = 10 * time.Second
	rewriteLast  = 10 * time.Minute

	// conditionRetry is when writing is tried again if the API server does not
	// do it, for any Service. One that it refuses waits alone: each time it
	// takes twice as long, up to refusedLast.
	conditionRetry = 5 * time.Second
	refusedLast    = 5 * time.Minute
	writeWithin    = 10 * time.Second
)

// ConditionOptions are what Conditions need. All fields are required.
type ConditionOptions struct {
	// Observed returns the condition that a Service has, by namespace/name, as
	// far as is known here; the zero Condition if it has none.
	Observed func(service string) Condition

	// Write writes the condition of a Service, given the one that it had.
	Write func(ctx context.Context, service string, was, want Condition) error

	// Warn tells of an address that is not announced as it should be, once it
	// has been written. It must not block.
	Warn func(service, reason, message string)

	Log *slog.Logger
}

// Conditions keep the condition Announced of those Services that this node
// speaks for: only changes, only the last state, and each in its time.
type Conditions struct {
	o    ConditionOptions
	wake chan struct{}

	mu      sync.Mutex
	born    time.Time                // of the first pass
	pending map[string]pendingChange // by Service
	written map[string]writtenChange // what was written last, by Service
	refused map[string]refusal       // by Service that has a pending change
}

// pendingChange is a condition that a Service does not have yet.
type pendingChange struct {
	want  Condition
	sure  time.Duration // how long it has to have been wanted, if it is not True
	since time.Time     // when its status was first wanted
}

// writtenChange is the last write of a Service's condition.
type writtenChange struct {
	Condition
	at    time.Time
	again int // how often the same had to be written again
}

// refusal is that the API server does not take the condition of a Service.
type refusal struct {
	until time.Time
	times int
}

// NewConditions returns Conditions that are written once Run runs.
func NewConditions(o ConditionOptions) *Conditions {
	return &Conditions{
		o: o, wake: make(chan struct{}, 1), pending: map[string]pendingChange{}, written: map[string]writtenChange{},
		refused: map[string]refusal{},
	}
}

// Observe takes the outcome of a pass, and what the speakers do after it. It
// does not block.
func (c *Conditions) Observe(p Pass, answering []plan.Announcement, conflicts []Conflict) {
	if !p.known() || p.Err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.born.IsZero() {
		c.born = now
	}
	before := c.pending
	c.pending = map[string]pendingChange{}
	ours := map[string]writtenChange{}
	f := newFacts(p, answering, conflicts)
	for i := range p.Snapshot.Services {
		svc := &p.Snapshot.Services[i]
		key := svc.Namespace + "/" + svc.Name
		observed := c.o.Observed(key)
		want, known := f.condition(svc, observed)
		if !known {
			continue
		}
		if w, ok := c.written[key]; ok {
			ours[key] = w
		}
		if observed == want.Condition {
			continue
		}
		since := now
		if was, waits := before[key]; waits && was.want.Status == want.Status {
			since = was.since
		}
		c.pending[key] = pendingChange{want.Condition, want.sure, since}
	}
	c.written = ours
	maps.DeleteFunc(c.refused, func(key string, _ refusal) bool {
		_, waits := c.pending[key]
		return !waits
	})
	c.ring()
}

func (c *Conditions) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run writes conditions until ctx ends.
func (c *Conditions) Run(ctx context.Context) error {
	limiter := rate.NewLimiter(conditionsPerSecond, conditionsBurst)
	down := false
	for {
		key, due, any := c.next()
		wait := time.Until(due)
		switch {
		case !any:
			wait = time.Hour
		case wait <= 0:
			if limiter.Wait(ctx) != nil {
				return nil
			}
			err := c.write(ctx, key)
			if isRefusal(err) {
				c.putOff(key, err)
				err = nil
			}
			c.tell(err, down)
			if down = err != nil; !down {
				continue
			}
			wait = conditionRetry
		}
		if down {
			wait = max(wait, conditionRetry)
		}
		if !c.sleep(ctx, wait, down) {
			return nil
		}
	}
}

// sleep waits, until there is news unless writing does not work, and tells
// whether to go on.
func (c *Conditions) sleep(ctx context.Context, wait time.Duration, deaf bool) bool {
	wake := c.wake
	if deaf {
		wake = nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// next returns the Service whose condition is to be written first, and when.
func (c *Conditions) next() (key string, due time.Time, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, p := range c.pending {
		at := c.due(k, p)
		if order := at.Compare(due); !any || order < 0 || order == 0 && cmp.Less(k, key) {
			key, due, any = k, at, true
		}
	}
	return key, due, any
}

// due returns when a condition may be written.
func (c *Conditions) due(key string, p pendingChange) time.Time {
	at := c.born.Add(quietAtStart)
	if p.want.Status != metav1.ConditionTrue {
		at = later(at, p.since.Add(p.sure))
	}
	if w, ok := c.written[key]; ok && w.Condition == p.want {
		at = later(at, w.at.Add(doubled(rewriteFirst, rewriteLast, w.again)))
	}
	return later(at, c.refused[key].until)
}

// doubled returns first, doubled so many times, and last at most.
func doubled(first, last time.Duration, times int) time.Duration {
	return min(first<<min(times, 10), last)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// write writes what is pending for a Service, if it still is.
func (c *Conditions) write(ctx context.Context, key string) error {
	c.mu.Lock()
	p, ok := c.pending[key]
	c.mu.Unlock()
	was := c.o.Observed(key)
	if !ok || was == p.want {
		c.forget(key, p)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	switch err := c.o.Write(ctx, key, was, p.want); {
	case apierrors.IsNotFound(err): // and there is nobody to tell
		c.forget(key, p)
		return nil
	case err != nil:
		return err
	}
	c.note(key, was, p)
	if p.want.Status == metav1.ConditionFalse && (was.Status != p.want.Status || was.Reason != p.want.Reason) {
		c.o.Warn(key, p.want.Reason, p.want.Message)
	}
	return nil
}

// forget takes back what was pending, unless something else is by now.
func (c *Conditions) forget(key string, p pendingChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[key].want == p.want {
		delete(c.pending, key)
		delete(c.refused, key)
	}
}

// isRefusal tells whether the API server lives and does not want this one
// write. That it does not know us, is too busy or too slow concerns all.
func isRefusal(err error) bool {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return false
	}
	switch code := said.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// putOff has a Service whose condition is refused wait while others go on.
func (c *Conditions) putOff(key string, err error) {
	c.mu.Lock()
	times := c.refused[key].times
	c.refused[key] = refusal{time.Now().Add(doubled(conditionRetry, refusedLast, times)), times + 1}
	c.mu.Unlock()
	if times == 0 {
		c.o.Log.Warn("the condition Announced is refused, will retry ever more rarely", "service", key, "err", err)
	}
}

// note remembers a write. If the same had been written before, somebody else
// has changed it since. That is no fight if ccm-baremetal missed the announcers:
// it speaks once.
func (c *Conditions) note(key string, was Condition, p pendingChange) {
	c.forget(key, p)
	c.mu.Lock()
	w := c.written[key]
	again := 0
	if w.Condition == p.want && was.Reason != config.NoAnnouncer {
		again = w.again + 1
	}
	c.written[key] = writtenChange{p.want, time.Now(), again}
	c.mu.Unlock()
	if again == 1 {
		c.o.Log.Warn("somebody else changes the condition Announced, will write it ever more rarely", "service", key)
	}
}

// tell logs when conditions cannot be written any more, and when they can again.
func (c *Conditions) tell(err error, down bool) {
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && !down:
		c.o.Log.Warn("cannot write conditions, will retry", "err", err)
	case err == nil && down:
		c.o.Log.Info("can write conditions again")
	}
}
