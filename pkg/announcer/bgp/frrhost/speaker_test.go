package frrhost_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrhost"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// shared is a directory, and whoever writes and reads there, in the time of a
// bubble.
type shared struct {
	t   *testing.T
	dir string
	log wire.Log
}

func (d *shared) path(name string) string { return filepath.Join(d.dir, name) }

func (d *shared) speaker(password func(context.Context, string) (string, error)) *frrhost.Speaker {
	s := frrhost.New(frrhost.Options{Node: "n1", Dir: d.dir, Password: password, Log: slog.New(slog.NewTextHandler(&d.log, nil))})
	d.t.Cleanup(s.Close)
	return s
}

// warnings returns how often something has been complained of.
func (d *shared) warnings() int { return strings.Count(d.log.String(), "level=WARN") }

func (d *shared) conf() string {
	text, err := os.ReadFile(d.path("frr.conf"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return string(text)
}

// answer says of what is in the file that FRR has it.
func (d *shared) answer() {
	sum := sha256.Sum256([]byte(d.conf()))
	text, err := json.Marshal(map[string]string{"hash": hex.EncodeToString(sum[:]), "error": ""})
	if err == nil {
		err = os.WriteFile(d.path("result.json.new"), text, 0o644)
	}
	if err == nil {
		err = os.Rename(d.path("result.json.new"), d.path("result.json"))
	}
	if err != nil {
		d.t.Error(err)
	}
}

// follow answers until the test ends.
func (d *shared) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			d.answer()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	d.t.Cleanup(func() { cancel(); <-done })
}

// pass lets time pass, and everybody do what is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func bubble(t *testing.T, test func(t *testing.T, d *shared)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, &shared{t: t, dir: dir}) })
}

func given(context.Context, string) (string, error) { return password, nil }

// hang is an API server that does not answer.
func hang(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestADirectoryThatIsMissingIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *shared) {
		d.dir = d.path("mount")
		s := d.speaker(given)
		s.Set(peerings(routes("203.0.113.1/32")))
		pass(10 * time.Minute)
		if got := d.warnings(); got != 1 {
			t.Errorf("%d warnings:\n%s", got, d.log.String())
		}
		if x := session(s, "bird"); !strings.Contains(x.Why, "no such file or directory") {
			t.Errorf("the session says %q", x.Why)
		}
		if err := os.Mkdir(d.dir, 0o777); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		d.answer()
		pass(time.Second)
		if got := d.log.String(); d.warnings() != 1 || !strings.Contains(got, "again") || s.Writes() != 1 {
			t.Errorf("%d writes after the directory is there:\n%s", s.Writes(), got)
		}
	})
}

func TestTheFileIsForNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, d *shared) {
		victim := d.path("victim")
		if err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o666), os.Symlink(victim, d.path(".frr.conf.new"))); err != nil {
			t.Fatal(err)
		}
		s := d.speaker(given)
		s.Set(peerings(nil))
		pass(time.Second)
		if !strings.Contains(d.conf(), password) {
			t.Errorf("the file has %q:\n%s", d.conf(), d.log.String())
		}
		if got, err := os.ReadFile(victim); string(got) != "mine" {
			t.Errorf("the symbolic link was followed (%v)", err)
		}
		if info, err := os.Lstat(d.path("frr.conf")); err != nil || info.Mode() != 0o600 {
			t.Errorf("its mode is %v (%v)", info.Mode(), err)
		}
	})
}

func TestAFileThatNobodyTakesIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *shared) {
		s := d.speaker(given)
		s.Set(peerings(nil))
		pass(14 * time.Second)
		if got := d.log.String(); got != "" {
			t.Errorf("too early: %s", got)
		}
		pass(10 * time.Minute)
		if x := session(s, "tor"); d.warnings() != 1 || !strings.Contains(x.Why, "nobody gives FRR its configuration") {
			t.Errorf("the session says %q, and the log\n%s", x.Why, d.log.String())
		}
		d.answer()
		pass(time.Second)
		if got := d.log.String(); d.warnings() != 1 || !strings.Contains(got, "again") {
			t.Errorf("after an answer the log is\n%s", got)
		}
	})
}

func TestAnAPIServerThatHangsHoldsNothingUp(t *testing.T) {
	bubble(t, func(t *testing.T, d *shared) {
		d.follow()
		var asked atomic.Int64
		s := d.speaker(func(ctx context.Context, name string) (string, error) {
			if asked.Add(1) == 1 {
				return password, nil
			}
			return hang(ctx, name)
		})
		all := routes("203.0.113.1/32", "203.0.113.2/32")
		s.Set(peerings(all))
		pass(time.Minute)
		for i, some := range [][]plan.Route{all[:1], all, all[:1], all} { // one is withdrawn, and comes back
			s.Set(peerings(some))
			pass(0)
			if got := strings.Count(d.conf(), "  network "); got != len(some) {
				t.Errorf("change %d: %d networks, want %d", i, got, len(some))
			}
			pass(1300 * time.Millisecond)
		}
		pass(5 * time.Minute)
		if got := asked.Load(); got < 5 || got > 12 {
			t.Errorf("the Secret was asked for %d times in 6 minutes, want once in 30 s at most", got)
		}
		before, began := asked.Load(), time.Now()
		s.Leave(t.Context())
		if took := time.Since(began); took > 4*time.Second { // the pause of 1 s, what FRR takes, and a look
			t.Errorf("the leave took %s", took)
		}
		if got := asked.Load(); got != before {
			t.Errorf("at the end the Secret was asked for %d times", got-before)
		}
		if strings.Contains(d.log.String(), password) {
			t.Error("the password is in the log")
		}
	})
}

func TestAPasswordThatIsNotKnownKeepsNoOtherSessionWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, d *shared) {
		d.follow()
		s := d.speaker(hang)
		s.Set(peerings(routes("203.0.113.1/32")))
		pass(0)
		if got := d.conf(); !strings.Contains(got, "description bird") || strings.Contains(got, "description tor") {
			t.Errorf("the file is\n%s", got)
		}
		if x := session(s, "tor"); !strings.Contains(x.Why, "has not been read yet") {
			t.Errorf("the session says %q", x.Why)
		}
		pass(6 * time.Second)
		if x := session(s, "tor"); !strings.Contains(x.Why, "deadline exceeded") {
			t.Errorf("the session says %q", x.Why)
		}
	})
}

// Unknown is not absent: what a restart finds is good until the API server says
// otherwise.
func TestARestartWithoutTheAPIServerKeepsSessionsWithPasswords(t *testing.T) {
	none := bgp.NoPasswordError{Why: "there is no Secret"}
	for name, test := range map[string]struct {
		value string
		err   error
		has   string // what the file has in the end of the peer; "": nothing
	}{
		"Unchanged": {value: password, has: "password " + password + "\n"},
		"Changed":   {value: "other", has: "password other\n"},
		"Absent":    {err: none},
		"Unfit":     {value: "with a blank"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *shared) {
				d.follow()
				want := peerings(routes("203.0.113.1/32"))
				want[0].Peer.VRF = "red" // names of routers are each VRF's own
				first := d.speaker(given)
				first.Set(want)
				pass(time.Second)
				first.Close()
				before := d.conf()

				var back atomic.Bool
				s := d.speaker(func(ctx context.Context, name string) (string, error) {
					if back.Load() {
						return test.value, test.err
					}
					if time.Now().Second()%2 == 0 {
						return "", errors.New("connection refused")
					}
					return hang(ctx, name)
				})
				s.Set(want)
				pass(time.Minute)
				if got := d.conf(); got != before || s.Writes() != 0 || !strings.Contains(got, "password "+password) {
					t.Fatalf("%d writes while the API server is away, of\n%s", s.Writes(), got)
				}
				back.Store(true)
				pass(10 * time.Second)
				got := d.conf()
				if strings.Contains(got, "description tor") != (test.has != "") || !strings.Contains(got, test.has) || !strings.Contains(got, "description bird") {
					t.Errorf("with the API server back the file is\n%s", got)
				}
				if test.has == "" && !strings.HasPrefix(session(s, "tor").Why, "the password: ") {
					t.Errorf("the session says %q", session(s, "tor").Why)
				}
			})
		})
	}
}
