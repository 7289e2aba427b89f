package frrcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// Selection is some objects of a kind of frr-k8s.
type Selection struct {
	Resource       string
	Namespace      string // empty: of the cluster
	Fields, Labels string // selectors
}

// Texts keeps objects as JSON, by name. The texts are its own.
type Texts interface {
	Replace(map[string][]byte)
	Put(name string, text []byte)
	Delete(name string)
}

// follower knows the objects of a selection. What it knew stays known while it
// cannot be read.
type follower struct {
	what Selection
	kick func()

	mu     sync.Mutex
	synced bool
	items  map[string][]byte // by name
	heard  uint64            // how often something was told of them
	err    error             // why it cannot be read
}

// known is what a follower knows at a moment. The texts must not be changed.
type known struct {
	items  map[string][]byte
	synced bool
	heard  uint64
	err    error
}

func (f *follower) state() known {
	f.mu.Lock()
	defer f.mu.Unlock()
	return known{maps.Clone(f.items), f.synced, f.heard, f.err}
}

// forget makes everything unknown. The follower must not run.
func (f *follower) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items, f.synced, f.err = nil, false, nil
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context, api API) { api.Follow(ctx, f.what, f, f.note) }

// note takes how an attempt to read went.
func (f *follower) note(err error) {
	f.mu.Lock()
	changed := fmt.Sprint(err) != fmt.Sprint(f.err)
	f.err = err
	if errors.Is(err, ErrAbsent) {
		f.items, f.synced = nil, false // with its kind all of them are gone
	}
	f.mu.Unlock()
	if changed {
		f.kick()
	}
}

// Replace takes all objects.
func (f *follower) Replace(items map[string][]byte) {
	f.hear(func() { f.items, f.synced = items, true })
}

// Put takes an object.
func (f *follower) Put(name string, text []byte) {
	f.hear(func() {
		if f.items != nil {
			f.items[name] = text
		}
	})
}

// Delete forgets an object.
func (f *follower) Delete(name string) {
	f.hear(func() { delete(f.items, name) })
}

func (f *follower) hear(change func()) {
	f.mu.Lock()
	change()
	f.heard++
	f.mu.Unlock()
	f.kick()
}
