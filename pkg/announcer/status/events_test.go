package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// sink is an API server as far as events are concerned.
type sink struct {
	mu     sync.Mutex
	err    error
	events []*corev1.Event
	at     []time.Time
}

func (s *sink) Create(e *corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	s.events = append(s.events, e)
	s.at = append(s.at, time.Now())
	return e, nil
}

func (s *sink) Update(e *corev1.Event) (*corev1.Event, error)          { return s.Create(e) }
func (s *sink) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { return s.Create(e) }

func (s *sink) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, e := range s.events {
		o := e.InvolvedObject
		lines = append(lines, fmt.Sprintf("%s %s/%s %s %s %s@%s: %s", o.Kind, o.Namespace, o.Name, o.UID, e.Reason, e.Source.Component, e.Source.Host, e.Message))
	}
	return strings.Join(lines, "\n")
}

// withEvents runs a test with Events that write to a sink, and that have been
// given some notes before they run.
func withEvents(t *testing.T, early []Note, test func(t *testing.T, e *Events, s *sink, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		s, log := &sink{}, &bytes.Buffer{}
		e := NewEvents(EventOptions{Node: "n1", Sink: s, UID: func(service string) string { return "uid-of-" + service }, Observed: observed, Log: slog.New(slog.NewTextHandler(log, nil))})
		for _, n := range early {
			e.Note(n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		test(t, e, s, log)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// observed knows of one Service that its condition says all there is to say.
func observed(service string) Condition {
	if service != "web/told" {
		return Condition{}
	}
	return Condition{"True", "Layer2", "announcing 192.0.2.10 from n1, eth0; announcing 2001:db8::10 from n2, eth0"}
}

func TestEventOnlyOfWhatTheConditionDoesNotSay(t *testing.T) {
	withEvents(t, nil, func(t *testing.T, e *Events, s *sink, _ *bytes.Buffer) {
		e.Note(note("n1", 10, "web/told", "web/untold"))
		e.Note(note("n1", 11, "web/told"))
		time.Sleep(time.Second)
		want := "Service web/untold uid-of-web/untold Announcing announcer@n1: announcing 192.0.2.10 from n1, eth0 (was n9: NoAnnouncer)\n" +
			"Service web/told uid-of-web/told Announcing announcer@n1: announcing 192.0.2.11 from n1, eth0 (was n9: NoAnnouncer)"
		if got := s.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestWarningIsWrittenOnceWithItsLastText(t *testing.T) {
	withEvents(t, nil, func(t *testing.T, e *Events, s *sink, _ *bytes.Buffer) {
		e.Warn("web/b", "NoEndpoints", "not announcing 192.0.2.10: no usable endpoint")
		e.Warn("web/a", "NoEligibleNode", "older")
		e.Warn("web/a", "NoEligibleNode", "newer")
		time.Sleep(time.Second)
		want := "Service web/a uid-of-web/a NoEligibleNode announcer@n1: newer\n" +
			"Service web/b uid-of-web/b NoEndpoints announcer@n1: not announcing 192.0.2.10: no usable endpoint"
		if got := s.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func note(to string, last byte, services ...string) Note {
	return Note{Change: plan.Change{Address: netip.AddrFrom4([4]byte{192, 0, 2, last}), To: to, From: "n9", Cause: plan.NoAnnouncer, Links: []string{"eth0"}}, Services: services}
}

func TestEventIsOnEachServiceOfTheAddress(t *testing.T) {
	withEvents(t, nil, func(t *testing.T, e *Events, s *sink, _ *bytes.Buffer) {
		e.Note(note("n1", 10, "web/a", "web/b"))
		time.Sleep(time.Second)
		want := "Service web/a uid-of-web/a Announcing announcer@n1: announcing 192.0.2.10 from n1, eth0 (was n9: NoAnnouncer)\n" +
			"Service web/b uid-of-web/b Announcing announcer@n1: announcing 192.0.2.10 from n1, eth0 (was n9: NoAnnouncer)"
		if diff := cmp.Diff(want, s.String()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestEventsArePacedAndOfEachAddressOnlyTheNewestIsWritten(t *testing.T) {
	var early []Note
	for round := range 3 {
		for i := range byte(100) {
			early = append(early, note("n1", i, fmt.Sprintf("web/s%d-%d", i, round)))
		}
	}
	for i := range byte(30) {
		early = append(early, note("n2", 70+i)) // lost again before it was told
	}
	withEvents(t, early, func(t *testing.T, _ *Events, s *sink, _ *bytes.Buffer) {
		began := time.Now()
		time.Sleep(5 * time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.events) != 70 {
			t.Errorf("%d events, want one for each of the 70 addresses that stayed", len(s.events))
		}
		for i, event := range s.events {
			if want := fmt.Sprintf("s%d-2", i); event.InvolvedObject.Name != want {
				t.Errorf("event %d is about %s, want %s", i, event.InvolvedObject.Name, want)
			}
			if i >= eventsBurst && s.at[i].Sub(began) < time.Duration(i-eventsBurst)*time.Second/eventsPerSecond {
				t.Errorf("event %d came after %s", i, s.at[i].Sub(began))
			}
		}
	})
}

func TestEventsThatCannotBeWrittenBlockNothingAndAreLoggedOnce(t *testing.T) {
	withEvents(t, nil, func(t *testing.T, e *Events, s *sink, log *bytes.Buffer) {
		s.fails(errors.New("connection refused"))
		for i := range byte(200) {
			e.Note(note("n1", i, "web/a"))
		}
		time.Sleep(time.Minute)
		s.fails(nil)
		time.Sleep(time.Minute)
		e.Note(note("n1", 201, "web/late"))
		time.Sleep(30 * time.Minute)
		if got := s.String(); !strings.Contains(got, "web/late") {
			t.Errorf("after the outage: %s", got)
		}
		if down, up := strings.Count(log.String(), "cannot write events"), strings.Count(log.String(), "can write events again"); down != 1 || up != 1 {
			t.Errorf("logged %d and %d times:\n%s", down, up, log)
		}
	})
}
