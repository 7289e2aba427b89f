package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Secret follows one Secret. What it held once stays known when the Secret is
// deleted or the API server goes away. Nothing of it is logged.
type Secret struct {
	world   *World
	name    string
	changed func()

	mu   sync.Mutex
	seen bool              // the API server has answered
	data map[string][]byte // nil: there was none yet
}

// NewSecret returns the Secret of a name in the World's namespace. changed is
// called after each change of what it holds, and must not block.
func (w *World) NewSecret(name string, changed func()) *Secret {
	return &Secret{world: w, name: name, changed: changed}
}

// Run follows the Secret until ctx ends.
func (s *Secret) Run(ctx context.Context) error {
	o := s.world.follow(s.String())
	o.fields = "metadata.name=" + s.name // the right to read it is by name
	follow(ctx, s.world.o.API.secrets(s.world.o.Namespace), &corev1.Secret{}, s, o)
	return nil
}

// String names the Secret for people.
func (s *Secret) String() string { return "Secret " + s.world.o.Namespace + "/" + s.name }

// Data returns what the Secret holds, or an error that says what is waited
// for. The caller must not change it.
func (s *Secret) Data() (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.data != nil:
		return s.data, nil
	case s.seen:
		return nil, fmt.Errorf("there is no %s yet", s.String())
	}
	return nil, errors.New(s.world.reach.missing(s.String()))
}

// Add takes what the Secret holds.
func (s *Secret) Add(in any) error {
	o, ok := in.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("unexpected %T", in)
	}
	if o.Name != s.name { // from a client that knows no field selectors
		return nil
	}
	s.mu.Lock()
	changed := s.data == nil || !maps.EqualFunc(s.data, o.Data, bytes.Equal)
	s.seen = true
	if changed {
		s.data = maps.Clone(o.Data)
		if s.data == nil {
			s.data = map[string][]byte{}
		}
	}
	s.mu.Unlock()
	if changed {
		s.changed()
	}
	return nil
}

// Update takes what the Secret holds now.
func (s *Secret) Update(in any) error { return s.Add(in) }

// Delete does nothing: what was held stays known.
func (s *Secret) Delete(any) error { return nil }

// Replace takes what the Secret holds, if there is one.
func (s *Secret) Replace(list []any, _ string) error {
	s.mu.Lock()
	s.seen = true
	s.mu.Unlock()
	for _, in := range list {
		if err := s.Add(in); err != nil {
			return err
		}
	}
	return nil
}

// Resync does nothing.
func (s *Secret) Resync() error { return nil }
