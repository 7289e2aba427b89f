package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// board is an API server as far as the condition is concerned.
type board struct {
	mu         sync.Mutex
	err        error
	refuses    string // a Service
	refusals   int
	conditions map[string]Condition
	writes     []string
	at         []time.Time
}

func (b *board) observed(service string) Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conditions[service]
}

func (b *board) write(_ context.Context, service string, _, want Condition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if service == b.refuses {
		b.refusals++
		return fmt.Errorf("patch: %w", apierrors.NewForbidden(corev1.Resource("services"), service, errors.New("a policy says no")))
	}
	b.conditions[service] = want
	b.writes = append(b.writes, fmt.Sprintf("%s %s %s: %s", service, want.Status, want.Reason, want.Message))
	b.at = append(b.at, time.Now())
	return nil
}

func (b *board) set(service string, c Condition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conditions[service] = c
}

// refuse has the writes of one Service refused, and returns how many were.
func (b *board) refuse(service string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuses = service
	return b.refusals
}

func (b *board) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// lines returns what was written since it was last called.
func (b *board) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.writes
	b.writes = nil
	return out
}

// writer is the Conditions of a node with everything around it faked.
type writer struct {
	*Conditions
	*board
	log       bytes.Buffer
	warnings  []string
	conflicts []Conflict
}

// withConditions runs a test with the Conditions of a node.
func withConditions(t *testing.T, b *board, test func(w *writer)) {
	w := &writer{board: b}
	w.Conditions = NewConditions(ConditionOptions{
		Observed: b.observed, Write: b.write, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Warn: func(service, reason, _ string) { w.warnings = append(w.warnings, service+" "+reason) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	test(w)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func newBoard() *board { return &board{conditions: map[string]Condition{}} }

// passes lets a node see a world whose announcements are answered.
func (w *writer) passes(s plan.Snapshot) {
	p := pass(s, nil)
	deaf := func(a plan.Announcement) bool { return !a.Links[0].Up }
	w.Observe(p, slices.DeleteFunc(plan.Announcements(p.Verdicts, s), deaf), w.conflicts)
}

func (w *writer) wantWritten(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, w.lines()); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// asSeenBy returns the world of another node with the same view.
func asSeenBy(s plan.Snapshot, node string) plan.Snapshot {
	s.Node = node
	return s
}

func TestOneNodeSpeaksForEachService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := map[string]string{
			"web/s101": "True Layer2: announcing 192.0.2.101 from n1, eth0",
			"web/s102": "False NotAllocated: not announcing 192.0.2.102: ccm-baremetal has not confirmed the address, see the condition ccm-baremetal.io/Allocated",
			"web/s103": "True Layer2: announcing 192.0.2.103 from n2, eth0",
		}
		got := map[string]string{}
		for _, node := range []string{"n1", "n2", "n3"} {
			withConditions(t, newBoard(), func(w *writer) {
				w.passes(asSeenBy(world(t), node))
				time.Sleep(time.Minute)
				for _, line := range w.lines() {
					service, text, _ := strings.Cut(line, " ")
					if got[service] != "" {
						t.Errorf("a second writer of %s: %s", service, node)
					}
					got[service] = text
				}
			})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestUnchangedWorldAndRestartWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		for round := range 3 {
			for _, node := range []string{"n1", "n2", "n3"} {
				withConditions(t, b, func(w *writer) {
					for range 20 {
						w.passes(asSeenBy(world(t), node))
						time.Sleep(7 * time.Second)
					}
					if got := w.lines(); round > 0 && len(got) > 0 {
						t.Errorf("%s in round %d wrote %v", node, round, got)
					}
				})
			}
		}
	})
}

func TestConditionIsWrittenAfterThePackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withConditions(t, newBoard(), func(w *writer) {
			s := world(t)
			s.Services = s.Services[:1]
			p := pass(s, nil)
			w.Observe(p, nil, nil) // owned, not answered
			time.Sleep(44 * time.Second)
			w.wantWritten(t)
			w.passes(s)
			w.wantWritten(t, "web/s101 True Layer2: announcing 192.0.2.101 from n1, eth0")
		})
	})
}

// A socket that cannot be opened, say, must not be hidden behind what the owner of
// before has said.
func TestOwnerThatDoesNotAnswerSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withConditions(t, newBoard(), func(w *writer) {
			s := world(t)
			s.Services = s.Services[:1]
			p := pass(s, nil)
			w.passes(s)
			time.Sleep(time.Minute)
			w.wantWritten(t, "web/s101 True Layer2: announcing 192.0.2.101 from n1, eth0")
			for range 4 { // passes do not start the time anew
				w.Observe(p, nil, nil)
				time.Sleep(11 * time.Second)
			}
			w.wantWritten(t)
			time.Sleep(2 * time.Second)
			w.wantWritten(t, "web/s101 False NotAnswered: n1 does not answer for 192.0.2.101, which it should announce: its log says why")
		})
	})
}

// silentWorld has one Service that no node can announce.
func silentWorld(t *testing.T) plan.Snapshot {
	s := world(t)
	s.Services = slices.Clone(s.Services[:1])
	s.Services[0].Local = true
	s.Services[0].Endpoints = plan.Endpoints{Ready: []string{"elsewhere"}}
	return s
}

func TestSilenceIsSaidAfterThreeSecondsWithCountsAndAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, node := range []string{"n1", "n2"} {
			withConditions(t, newBoard(), func(w *writer) {
				s := asSeenBy(silentWorld(t), node)
				if plan.Reporter(plan.Decide(s)[0], s.Members) != node {
					return
				}
				good := asSeenBy(world(t), node)
				good.Services = nil
				w.passes(good)
				time.Sleep(time.Minute)
				w.passes(s)
				time.Sleep(2900 * time.Millisecond)
				w.wantWritten(t)
				w.passes(s) // a pass in between does not start the time anew
				time.Sleep(200 * time.Millisecond)
				w.wantWritten(t, "web/s101 False NoEligibleNode: not announcing 192.0.2.101: every node is left out: 1 Draining, 2 NoLocalEndpoint")
				if diff := cmp.Diff([]string{"web/s101 NoEligibleNode"}, w.warnings); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
}

func TestNothingIsSaidOfAServiceThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.err = apierrors.NewNotFound(corev1.Resource("services"), "s101")
		for _, node := range []string{"n1", "n2"} {
			withConditions(t, b, func(w *writer) {
				w.passes(asSeenBy(silentWorld(t), node))
				time.Sleep(time.Minute)
				if len(w.warnings) > 0 || w.log.Len() > 0 {
					t.Errorf("%s said %q, and logged %s", node, w.warnings, w.log.String())
				}
			})
		}
	})
}

func TestSilenceThatEndsInTimeIsNotSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withConditions(t, newBoard(), func(w *writer) {
			good := world(t)
			good.Services = good.Services[:1]
			w.passes(good)
			time.Sleep(time.Minute)
			w.lines()
			bad := good
			bad.Services = slices.Clone(good.Services)
			bad.Services[0].Endpoints = plan.Endpoints{}
			for range 5 {
				w.passes(bad)
				time.Sleep(2 * time.Second)
				w.passes(good)
				time.Sleep(time.Second)
			}
			w.wantWritten(t)
		})
	})
}

func TestMoveThereAndBackEndsWithTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		withConditions(t, b, func(one *writer) {
			withConditions(t, b, func(two *writer) {
				s := world(t)
				s.Services = s.Services[:1]
				moved := s
				moved.Members = slices.Clone(s.Members)
				moved.Members[0].Draining = true
				see := func(s plan.Snapshot) { one.passes(asSeenBy(s, "n1")); two.passes(asSeenBy(s, "n2")) }
				see(s)
				time.Sleep(time.Minute)
				for _, pause := range []time.Duration{0, time.Millisecond, time.Second, time.Minute} {
					see(moved)
					time.Sleep(pause)
					see(s)
					time.Sleep(time.Second)
					see(s) // whatever was written in between is seen
					time.Sleep(time.Minute)
					want := Condition{metav1.ConditionTrue, "Layer2", "announcing 192.0.2.101 from n1, eth0"}
					if got := b.observed("web/s101"); got != want {
						t.Errorf("after %s away: %+v", pause, got)
					}
				}
			})
		})
	})
}

func TestWritesArePacedAndKeepOnlyTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withConditions(t, newBoard(), func(w *writer) {
			s := world(t)
			s.Members = s.Members[:1]
			s.Nodes = s.Nodes[:1]
			template := s.Services[0]
			s.Services = nil
			for i := range 60 {
				svc := template
				svc.Name = fmt.Sprintf("s%02d", i)
				svc.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})}
				s.Services = append(s.Services, svc)
			}
			w.passes(s)
			time.Sleep(quietAtStart + time.Second)
			synctest.Wait()
			if got := len(w.lines()); got < conditionsBurst || got > conditionsBurst+3*conditionsPerSecond {
				t.Errorf("%d written at once", got)
			}
			s.Links = slices.Clone(s.Links)
			s.Links[0].Name = "bond0"
			w.passes(s)
			time.Sleep(time.Minute)
			perService := map[string]int{}
			for _, line := range w.lines() {
				service, text, _ := strings.Cut(line, " ")
				perService[service]++
				if !strings.Contains(text, "bond0") {
					t.Errorf("an old state was written: %s", line)
				}
			}
			if len(perService) != 60 || slices.Max(slices.Collect(maps.Values(perService))) != 1 {
				t.Errorf("written: %v", perService)
			}
		})
	})
}

func TestForeignWriterIsAnsweredEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		withConditions(t, b, func(w *writer) {
			s := world(t)
			s.Services = s.Services[:1]
			w.passes(s)
			time.Sleep(time.Minute)
			for range 600 {
				b.set("web/s101", Condition{metav1.ConditionTrue, "Mine", "now"})
				w.passes(s)
				time.Sleep(time.Second)
			}
			at := b.at
			if len(at) > 7 {
				t.Errorf("%d writes in ten minutes", len(at))
			}
			for i := 1; i < len(at); i++ {
				if between := at[i].Sub(at[i-1]); between < rewriteFirst {
					t.Errorf("written again after %s", between)
				}
			}
			if !strings.Contains(w.log.String(), "somebody else changes the condition Announced") {
				t.Errorf("not said:\n%s", &w.log)
			}
		})
	})
}

// ccm-baremetal says NoAnnouncer when it sees no announcer that is ready. One
// that lives all the same says what it knows, each time at once.
func TestNoAnnouncerIsOverwrittenAndIsNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		missed := Condition{metav1.ConditionUnknown, "NoAnnouncer", "no announcer has been ready for a minute"}
		withConditions(t, b, func(w *writer) {
			s := world(t)
			s.Services = s.Services[:1]
			b.set("web/s101", missed)
			w.passes(s)
			time.Sleep(quietAtStart)
			w.wantWritten(t, "web/s101 True Layer2: announcing 192.0.2.101 from n1, eth0")
			for range 10 {
				time.Sleep(time.Minute)
				b.set("web/s101", missed)
				w.passes(s)
				w.wantWritten(t, "web/s101 True Layer2: announcing 192.0.2.101 from n1, eth0")
			}
			if w.log.Len() > 0 {
				t.Errorf("logged:\n%s", w.log.String())
			}
		})
	})
}

func TestConditionWaitsForTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.fails(errors.New("no route"))
		withConditions(t, b, func(w *writer) {
			s := world(t)
			s.Services = s.Services[:1]
			for range 60 {
				w.passes(s)
				time.Sleep(time.Second)
			}
			b.fails(nil)
			time.Sleep(10 * time.Second)
			w.wantWritten(t, "web/s101 True Layer2: announcing 192.0.2.101 from n1, eth0")
			want := `level=WARN msg="cannot write conditions, will retry" err="no route"`
			if log := w.log.String(); strings.Count(log, "level=") != 2 || !strings.Contains(log, want) {
				t.Errorf("logged:\n%s", log)
			}
		})
	})
}

func TestRefusedConditionKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.refuse("web/s101")
		withConditions(t, b, func(w *writer) {
			s := world(t)
			s.Services = s.Services[:1]
			w.passes(s)
			time.Sleep(10 * time.Second)
			w.wantWritten(t)
			s = silentWorld(t)
			s.Services = append(s.Services, s.Services[0])
			s.Services[1].Name = "other"
			for range 30 * 60 {
				w.passes(s)
				time.Sleep(time.Second)
			}
			const silence = " False NoEligibleNode: not announcing 192.0.2.101: every node is left out: 1 Draining, 2 NoLocalEndpoint"
			w.wantWritten(t, "web/other"+silence)
			if tries := b.refuse(""); tries < 8 || tries > 15 {
				t.Errorf("the refused one was tried %d times in half an hour", tries)
			}
			time.Sleep(refusedLast)
			w.wantWritten(t, "web/s101"+silence)
			if log := w.log.String(); strings.Count(log, "level=") != 1 || !strings.Contains(log, "service=web/s101") {
				t.Errorf("logged:\n%s", log)
			}
		})
	})
}

func TestMinoritySaysNothingItCannotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withConditions(t, newBoard(), func(w *writer) {
			s := silentWorld(t)
			s.Nodes = slices.Clone(s.Nodes)
			for i := range s.Nodes {
				s.Nodes[i].Ready = true
			}
			s.Members, s.Departed = s.Members[:1], s.Members[1:2]
			w.passes(s)
			time.Sleep(time.Minute)
			w.wantWritten(t)
		})
	})
}
