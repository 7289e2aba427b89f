package record

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const settle = 30 * time.Second

// rig is a record whose Run runs, with its log.
type rig struct {
	*Record
	path  string
	log   *bytes.Buffer
	kicks atomic.Int64
	end   func()
}

// open opens a record at a path, in a bubble. Whoever wants the file as an
// orderly end leaves it calls end.
func open(t *testing.T, path string) *rig {
	t.Helper()
	r := &rig{path: path, log: &bytes.Buffer{}}
	r.Record = Open(Options{Path: path, Kick: func() { r.kicks.Add(1) }, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	r.end = func() {
		cancel()
		<-done
	}
	return r
}

func (r *rig) wantSettling(t *testing.T, when string, want bool) {
	t.Helper()
	synctest.Wait()
	if got := r.Settling(settle, false); got != want {
		t.Errorf("%s: settling is %v, want %v, %s remain", when, got, want, r.Remaining())
	}
}

func inBubble(t *testing.T, f func(t *testing.T, path string)) {
	path := filepath.Join(t.TempDir(), "record")
	synctest.Test(t, func(t *testing.T) { f(t, path) })
}

func TestFounderIsSettledAtOnceAndEstablishedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := open(t, path)
		defer r.end()
		if r.Settling(settle, true) {
			t.Error("settles though it will be a founder")
		}
		r.Join(settle, true)
		if r.Settling(settle, true) || r.Warming() != 0 || r.Established() {
			t.Errorf("settling %v, warming %s, established %v", r.Settling(settle, true), r.Warming(), r.Established())
		}
		time.Sleep(settle)
		synctest.Wait()
		if !r.Established() || r.kicks.Load() == 0 {
			t.Errorf("established %v after %d kicks", r.Established(), r.kicks.Load())
		}
		if r.Settling(settle, false) {
			t.Error("settles because an established member has come after it had established itself")
		}
	})
}

func TestJoinerSettles(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := open(t, path)
		defer r.end()
		if !r.Settling(settle, false) {
			t.Error("does not settle before it takes part, though it will")
		}
		r.Join(settle, false)
		r.wantSettling(t, "after joining", true)
		if r.Warming() != settle {
			t.Errorf("readiness waits for %s", r.Warming())
		}
		time.Sleep(settle - time.Millisecond)
		r.wantSettling(t, "a moment before its time", true)
		if r.Established() {
			t.Error("is established while it settles")
		}
		kicks := r.kicks.Load()
		time.Sleep(time.Millisecond)
		r.wantSettling(t, "in time", false)
		if r.kicks.Load() == kicks || !r.Established() || r.Warming() != 0 {
			t.Errorf("%d kicks more, established %v, warming %s", r.kicks.Load()-kicks, r.Established(), r.Warming())
		}
	})
}

func TestFounderThatHadOnlyMetNobodySettlesAfterAll(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := open(t, path)
		defer r.end()
		r.Join(settle, true)
		time.Sleep(5 * time.Second)
		r.wantSettling(t, "having met an established member", true)
		time.Sleep(settle)
		r.wantSettling(t, "in time", false)
	})
}

// A cluster is new for the time of settling, and longer if nobody is up for that
// long: a node that crashes all the while is damped as in any other cluster,
// but for its first crash, which may be a power cut that has met all.
func TestFounderThatCrashesAgainAndAgainSettles(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		for i, wait := range []time.Duration{0, 0, 2 * time.Minute, 8 * time.Minute, 32 * time.Minute} {
			r := open(t, path)
			if got := r.Settling(settle, true); got != (wait > 0) {
				t.Errorf("start %d: will settle is %v", i, got)
			}
			r.Join(settle, true)
			synctest.Wait()
			if got := r.Remaining(); got != wait {
				t.Errorf("start %d settles for %s, want %s", i, got, wait)
			}
			r.end()
			time.Sleep(time.Second)
		}
	})
}

func TestCleanStopsOfAFounderAreForgiven(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		for i := range 3 {
			r := open(t, path)
			r.Join(settle, true)
			if got := r.Remaining(); got != 0 {
				t.Errorf("start %d settles for %s", i, got)
			}
			r.Stopped()
			r.end()
			time.Sleep(time.Second)
		}
	})
}

func TestCrashesAreRememberedOverRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		want := []time.Duration{settle, settle, 2 * time.Minute, 8 * time.Minute, 32 * time.Minute, time.Hour, time.Hour}
		for i, wait := range want {
			r := open(t, path)
			r.Join(settle, false)
			synctest.Wait()
			if got := r.Remaining(); got != wait {
				t.Errorf("start %d settles for %s, want %s", i, got, wait)
			}
			if got := r.Warming(); got != settle {
				t.Errorf("start %d: readiness waits for %s, want %s", i, got, settle)
			}
			r.end() // without a word, as far as the record knows
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Hour)
		r := open(t, path)
		defer r.end()
		r.Join(settle, false)
		if got := r.Remaining(); got != settle {
			t.Errorf("six hours later it settles for %s, want %s", got, settle)
		}
	})
}

func TestCleanRestartsAreNoCrashes(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		for i := range 3 {
			r := open(t, path)
			r.Join(settle, false)
			if got := r.Remaining(); got != settle {
				t.Errorf("start %d settles for %s, want %s", i, got, settle)
			}
			time.Sleep(10 * time.Minute)
			r.Stopped()
			r.end()
		}
	})
}

func TestDeathMakesItSettleAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := open(t, path)
		r.Died()
		r.wantSettling(t, "before it takes part", true)
		r.Join(settle, true)
		time.Sleep(time.Hour)
		r.wantSettling(t, "settled", false)
		for i, wait := range []time.Duration{settle, 2 * time.Minute, 8 * time.Minute} {
			r.Died()
			if got := r.Remaining(); got != wait {
				t.Errorf("death %d: settles for %s, want %s", i, got, wait)
			}
			if r.Warming() != 0 {
				t.Errorf("death %d: readiness waits for %s: it waits for the first settling only", i, r.Warming())
			}
			time.Sleep(wait)
		}
		r.wantSettling(t, "in time", false)
		r.end()
		again := open(t, path)
		defer again.end()
		again.Join(settle, false)
		if got := again.Remaining(); got != 32*time.Minute {
			t.Errorf("a crash after three deaths settles for %s", got)
		}
	})
}

func TestWhoNeverTookPartLeavesNoTrace(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := open(t, path)
		r.Stopped()
		r.end()
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("there is a file: %v", err)
		}
	})
}

// TestUselessFilesAreNoObstacle: whatever is found, the node is a newcomer and
// says so, and its next record is good.
func TestUselessFilesAreNoObstacle(t *testing.T) {
	for what, text := range map[string]string{
		"empty":          "",
		"garbage":        "\x00\x01\x02",
		"half a file":    `{"version":1,"events":[{"at":"2026-11-30T12:00:00Z","kind":"sta`,
		"later version":  `{"version":2,"events":[]}`,
		"endless":        strings.Repeat(" ", maxFile+1),
		"strange events": `{"version":1,"events":[{"at":"noon","kind":"start"}]}`,
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, path string) {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path+".tmp", []byte("the rest of an attempt"), 0o600); err != nil {
					t.Fatal(err)
				}
				r := open(t, path)
				if !strings.Contains(r.log.String(), "of no use") {
					t.Errorf("says nothing: %s", r.log)
				}
				r.Join(settle, false)
				if got := r.Remaining(); got != settle {
					t.Errorf("settles for %s", got)
				}
				r.end()
				h, err := load(path)
				if err != nil || len(h) != 1 {
					t.Errorf("the next record has %v, %v", h, err)
				}
				if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
					t.Errorf("left behind: %v, %v", left, err)
				}
			})
		})
	}
}

func TestDirectoryThatIsNotThereIsSaidOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := open(t, filepath.Join(path, "missing", "record"))
		r.Join(settle, false)
		synctest.Wait()
		r.Died()
		synctest.Wait()
		r.end()
		if n := strings.Count(r.log.String(), "cannot be kept"); n != 1 {
			t.Errorf("said %d times:\n%s", n, r.log)
		}
		if r.Remaining() != settle {
			t.Errorf("settles for %s", r.Remaining())
		}
	})
}

func TestWithoutPathNothingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, "")
		r.Join(settle, false)
		synctest.Wait()
		r.end()
		if strings.Contains(r.log.String(), "cannot be kept") {
			t.Error(r.log)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"events":[{"at":"2026-11-30T12:00:00Z","kind":"start"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := parse(text)
		if err != nil {
			return
		}
		now := time.Now()
		if wait := h.Sane(now).Wait(now, settle); wait < settle || wait > time.Hour {
			t.Errorf("settles for %s", wait)
		}
	})
}
