package source

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// lister lists and watches objects.
type lister interface {
	get(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow keeps store equal to the objects of a kind that the selectors choose,
// until ctx ends. While the API server is away the store keeps what it has.
func follow(ctx context.Context, k lister, example runtime.Object, store cache.ReflectorStore, o followOptions) {
	narrow := func(lo *metav1.ListOptions) {
		lo.FieldSelector, lo.LabelSelector = o.fields, o.labels
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, lo metav1.ListOptions) (runtime.Object, error) {
			narrow(&lo)
			list, err := k.get(ctx, lo)
			o.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, lo metav1.ListOptions) (watch.Interface, error) {
			narrow(&lo)
			w, err := k.watch(ctx, lo)
			if lo.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // else: a server that knows no streaming lists
				o.note(ctx, err)
			}
			return w, err
		},
	}
	cache.NewReflectorWithOptions(lw, example, store, cache.ReflectorOptions{
		Name: o.what,
		// The default waits up to a minute. New Services wait as long when the
		// API server comes back, which is too long for an outage of an hour.
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 8 * time.Second},
	}).RunWithContext(ctx)
}

type followOptions struct {
	what           string      // the plural that the API uses, in CamelCase
	fields, labels string      // selectors
	tell           func(error) // hears how each attempt to read went
}

// note tells how an attempt went, unless that is no news of the API server's
// state.
func (o followOptions) note(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	o.tell(err)
}

// reach logs when something cannot be read any more and when it can again,
// once each, however often that is tried meanwhile.
type reach struct {
	log *slog.Logger

	mu    sync.Mutex
	down  map[string]error
	since time.Time // when the first of what is down now went down; zero: nothing is
}

func (r *reach) note(what string, err error) {
	r.mu.Lock()
	was := r.down[what]
	r.down[what] = err
	r.date(time.Now())
	r.mu.Unlock()
	switch {
	case err != nil && was == nil:
		r.log.Warn("cannot read, keeping what is known", "what", what, "err", err)
	case err == nil && was != nil:
		r.log.Info("can read again", "what", what)
	}
}

// date notes since when something is down.
func (r *reach) date(now time.Time) {
	for _, err := range r.down {
		if err == nil {
			continue
		}
		if r.since.IsZero() {
			r.since = now
		}
		return
	}
	r.since = time.Time{}
}

// downSince returns since when something cannot be read, zero if all can.
func (r *reach) downSince() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}

// unreachable returns what cannot be read at the moment, sorted.
func (r *reach) unreachable() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var down []string
	for what, err := range r.down {
		if err != nil {
			down = append(down, what)
		}
	}
	return sorted(down)
}

// missing names something that is not known. If that is for want of a right,
// waiting alone will not help, so it says which.
func (r *reach) missing(what string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.down[what]; apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Sprintf("%s (%v)", what, err)
	}
	return what
}
