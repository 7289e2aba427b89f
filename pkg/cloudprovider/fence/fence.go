// Package fence keeps a former leader from writing.
//
// A process that was stopped for longer than its Lease lasts (a frozen
// container, a paused virtual machine) goes on where it was: for up to the
// renew deadline its leader election tries to get the Lease back, and all that
// time its controllers work beside those of the new leader. Preconditions do
// not help, for it sees what the other wrote and takes it for a stranger's
// edit.
//
// The fence stands where requests leave the process. It sees the renewals of
// the Lease go by, and lets writes pass only for the renew deadline after the
// last one that succeeded. It needs no request of its own.
package fence

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

// ErrNotLeading is why a write was not made: the Lease was not renewed lately,
// so that somebody else may lead.
var ErrNotLeading = errors.New("another may lead")

// A Fence lets writes pass while the Lease is held. All methods may be called
// concurrently.
type Fence struct {
	deadline time.Duration
	now      func() time.Time

	mu      sync.Mutex
	renewed time.Time // when the request of the last renewal was made; zero: none yet
}

// New returns a closed fence: the first renewal opens it. After deadline
// without a renewal it closes. That has to be shorter than the Lease lasts.
func New(deadline time.Duration) *Fence {
	return &Fence{deadline: deadline, now: time.Now}
}

// Wrap puts the fence before a transport.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{fence: f, next: next}
}

type transport struct {
	fence *Fence
	next  http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch kindOf(r) {
	case renewal:
		began := t.fence.now()
		response, err := t.next.RoundTrip(r)
		if err == nil && response.StatusCode/100 == 2 {
			t.fence.renew(began)
		}
		return response, err
	case write:
		if err := t.fence.check(); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as a RoundTripper must
			}
			return nil, fmt.Errorf("%s %s was not sent: %w", r.Method, r.URL.Path, err)
		}
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper lets the client library find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (f *Fence) renew(began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = began
}

func (f *Fence) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return fmt.Errorf("the lease was never renewed: %w", ErrNotLeading)
	}
	if age := elapsed(f.renewed, f.now()); age > f.deadline {
		return fmt.Errorf("the lease was last renewed %s ago: %w", age.Round(time.Second), ErrNotLeading)
	}
	return nil
}

// elapsed returns the longer of what the two clocks say: the one that cannot be
// set stands still while the machine sleeps.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// A kind of request.
type kind int

const (
	other   kind = iota // changes nothing that two leaders could dispute
	renewal             // of the Lease
	write
)

func kindOf(r *http.Request) kind {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return other
	}
	switch path := r.URL.Path; {
	case strings.Contains(path, "/apis/coordination.k8s.io/"):
		return renewal
	case strings.Contains(path, "/apis/authentication.k8s.io/"), strings.Contains(path, "/apis/authorization.k8s.io/"):
		return other // questions about who asks us
	case rehearse.ResourceOf(path) == "events":
		return other // what happened is told by whoever saw it
	}
	return write
}
