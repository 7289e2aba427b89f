// Package events keeps the events that a program tells, for tests.
package events

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// A Recorder is a record.EventRecorder that keeps what it is told, as
// "type reason namespace/name: message". Its methods may be called at once.
type Recorder struct {
	mu   sync.Mutex
	told []string
}

// Event keeps an event about object.
func (r *Recorder) Event(object runtime.Object, kind, reason, message string) {
	m, err := meta.Accessor(object)
	if err != nil {
		panic(err) // an object of the API has metadata
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf("%s %s %s/%s: %s", kind, reason, m.GetNamespace(), m.GetName(), message))
}

// Eventf is Event with a format.
func (r *Recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf is Eventf; the annotations are not kept.
func (r *Recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Eventf(object, kind, reason, format, args...)
}

// With returns, in the order of telling, the events that begin with prefix.
func (r *Recorder) With(prefix string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.told), func(e string) bool { return !strings.HasPrefix(e, prefix) })
}
