package status

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Announcing is the reason of the event that says which node announces an
// address now. Changing it is an API change.
const Announcing = "Announcing" // another node or link announces an address

// Events are paced so that a node that takes over thousands of addresses does
// not flood the API server, nor crowd out what matters to it.
const (
	eventsPerSecond = 2
	eventsBurst     = 20
)

// EventOptions is what Events need. All fields are required.
type EventOptions struct {
	Node string
	Sink record.EventSink            // writes them; may take as long as it likes
	UID  func(service string) string // of a Service by namespace/name; empty: unknown
	Log  *slog.Logger

	// Observed returns the condition Announced of a Service. What it says
	// already is no news, as after a restart.
	Observed func(service string) Condition
}

// Events tells the Services of an address when this node has begun to announce
// it, and each Service of what is wrong: only the newest, in its own time.
type Events struct {
	o    EventOptions
	wake chan struct{}

	mu       sync.Mutex
	pending  map[netip.Addr]Note
	warnings map[string]warning // by Service
}

// warning is what is wrong with a Service.
type warning struct{ reason, message string }

// NewEvents returns Events that are written once Run runs.
func NewEvents(o EventOptions) *Events {
	return &Events{o: o, wake: make(chan struct{}, 1), pending: map[netip.Addr]Note{}, warnings: map[string]warning{}}
}

// Note takes a change. It does not block. What was to be told of an address
// that is lost again is forgotten: its new owner tells.
func (e *Events) Note(n Note) {
	told := func(service string) bool {
		return slices.Contains(strings.Split(e.o.Observed(service).Message, "; "), n.place())
	}
	n.Services = slices.DeleteFunc(slices.Clone(n.Services), told)
	e.mu.Lock()
	defer e.mu.Unlock()
	if n.To != e.o.Node || len(n.Services) == 0 {
		delete(e.pending, n.Address)
		return
	}
	e.pending[n.Address] = n
	e.ring()
}

// Warn says what is wrong with a Service, by namespace/name. It does not block.
func (e *Events) Warn(service, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warnings[service] = warning{reason, message}
	e.ring()
}

func (e *Events) ring() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run writes events until ctx ends. What has not been written by then never is.
func (e *Events) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&reportingSink{EventSink: e.o.Sink, log: e.o.Log})
	recorder := broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "announcer", Host: e.o.Node})
	limiter := rate.NewLimiter(eventsPerSecond, eventsBurst)
	write := func(service, kind, reason, text string) bool {
		if limiter.Wait(ctx) != nil {
			return false
		}
		recorder.Event(e.reference(service), kind, reason, text)
		return true
	}
	for ctx.Err() == nil {
		if service, w, ok := e.nextWarning(); ok {
			write(service, corev1.EventTypeWarning, w.reason, w.message)
			continue
		}
		if note, ok := e.next(); ok {
			for _, service := range note.Services {
				if !write(service, corev1.EventTypeNormal, Announcing, note.text()) {
					break
				}
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		}
	}
	return nil
}

// nextWarning takes the warning of the first Service by name.
func (e *Events) nextWarning() (service string, w warning, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.warnings {
		if !ok || name < service {
			service, ok = name, true
		}
	}
	w = e.warnings[service]
	delete(e.warnings, service)
	return service, w, ok
}

// next takes the pending note with the lowest address.
func (e *Events) next() (Note, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var lowest netip.Addr
	for address := range e.pending {
		if !lowest.IsValid() || address.Less(lowest) {
			lowest = address
		}
	}
	note, ok := e.pending[lowest]
	delete(e.pending, lowest)
	return note, ok
}

func (e *Events) reference(service string) *corev1.ObjectReference {
	namespace, name, _ := strings.Cut(service, "/")
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: namespace, Name: name, UID: types.UID(e.o.UID(service)),
	}
}

// place says the same as the condition does.
func (n Note) place() string {
	return fmt.Sprintf("announcing %s from %s", n.Address, strings.Join(slices.Concat([]string{n.To}, n.Links), ", "))
}

// text says the same as the log does.
func (n Note) text() string {
	text := n.place()
	switch {
	case n.From != "":
		text += fmt.Sprintf(" (was %s: %s)", n.From, n.Cause)
	case n.Cause != "":
		text += fmt.Sprintf(" (was nobody: %s)", n.Cause)
	}
	return text
}

// reportingSink logs when events cannot be written any more, and when they can
// again. The recorder tries each for some minutes, then drops it.
type reportingSink struct {
	record.EventSink
	log *slog.Logger

	mu   sync.Mutex
	down bool
}

// Create writes a new event.
func (s *reportingSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.note(s.EventSink.Create(event))
}

// Update replaces an event.
func (s *reportingSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.note(s.EventSink.Update(event))
}

// Patch counts an event that has happened before.
func (s *reportingSink) Patch(old *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.note(s.EventSink.Patch(old, data))
}

func (s *reportingSink) note(event *corev1.Event, err error) (*corev1.Event, error) {
	s.mu.Lock()
	was := s.down
	s.down = err != nil
	s.mu.Unlock()
	switch {
	case err != nil && !was:
		s.log.Warn("cannot write events", "err", err)
	case err == nil && was:
		s.log.Info("can write events again")
	}
	return event, err
}
