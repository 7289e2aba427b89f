package wire

import (
	"testing"
	"time"
)

// Eventually tries until check succeeds, with a pause between two attempts, and
// ends the test with the last error when that has taken longer than within.
func Eventually(t testing.TB, within, pause time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", within, err)
		}
		time.Sleep(pause)
	}
}
