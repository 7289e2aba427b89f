// Package expect is how the tests that share a lab wait for what must come, all
// with one patience. What does not come ends the test.
package expect

import (
	"context"
	"testing"
	"time"
)

// Patience bounds every wait for what should take a second or two: machines
// are shared and slow.
const Patience = 2 * time.Minute

// pause lies between two looks.
const pause = 50 * time.Millisecond

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Bounded returns a context for one wait. It may be used in cleanups, when the
// test's own has ended.
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until ok returns no error, and ends the test with the last
// one when it loses its patience.
func Eventually(t testing.TB, what string, ok func(ctx context.Context) error) {
	t.Helper()
	Within(t, Patience, what, ok)
}

// Within is Eventually with another patience. It may be used in cleanups.
func Within(t testing.TB, limit time.Duration, what string, ok func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		case <-time.After(pause):
		}
	}
}
