package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// requireEnv makes a missing right an error instead of a skip, as CI sets it.
const requireEnv = "CCM_REQUIRE_NETNS"

// Require skips a test where a lab cannot be made. With CCM_REQUIRE_NETNS=1 the
// test fails instead.
func Require(t testing.TB) {
	t.Helper()
	err := canMakeNamespaces()
	switch {
	case err == nil:
	case os.Getenv(requireEnv) == "1":
		t.Fatalf("%s=1, and %v", requireEnv, err)
	default:
		t.Skipf("%v (%s=1 makes this a failure)", err, requireEnv)
	}
}

func canMakeNamespaces() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with its namespace
		result <- unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("network namespaces cannot be made here: %w", err)
	}
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root")
	}
	return nil
}

// New makes a lab for a test, called after it unless o has a name, and takes it
// down at the test's end. The steps go to the test's output. When the test has
// failed, the last words of what it had started are printed, and all logs are
// artifacts of the test (`go test -artifacts`).
func New(t testing.TB, o Options) *Lab {
	t.Helper()
	Require(t)
	if o.Name == "" {
		o.Name = testName(t)
	}
	if o.Out == nil {
		o.Out = t.Output()
	}
	l, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, l)
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// testName is the same whenever the same test runs in the same directory, so
// that a lab which a crash has left is found again, and differs elsewhere.
func testName(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(dir + " " + t.Name()))
	return "test-" + hex.EncodeToString(sum[:5])
}

func keepLogs(t testing.TB, l *Lab) {
	for _, p := range l.Processes() {
		if !p.Own {
			t.Logf("%s on %s (running: %v) said last:\n%s", p.Name, p.Host, p.Running(), tail(p.Log(), 30))
		}
	}
	dir := filepath.Join(t.ArtifactDir(), "lab-"+l.Name())
	if err := os.CopyFS(dir, os.DirFS(l.LogDir())); err != nil {
		t.Errorf("keep the lab's logs: %v", err)
	}
}
