package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// backend speaks BGP in one of the ways that a document can choose. It has
// nothing to do, and touches nothing, before it is first given a peering.
type backend interface {
	announcer.Router
	Sessions() []bgp.Session // sorted by peer
	Close()                  // ends everything at once
}

// reloader is a backend that gives somebody else a configuration.
type reloader interface{ Writes() uint64 }

// yielder is a backend that goes on with routers that are another's by now.
type yielder interface{ Yield(others []plan.Peering) }

// routers is the backends by name, all of which are there: a document may
// choose another one at any time. It is not changed.
type routers map[config.Backend]backend

// Set gives each backend the peerings that are its own, so that one that is
// no longer chosen takes leave of its routers.
func (r routers) Set(want []plan.Peering) {
	parts := map[config.Backend][]plan.Peering{}
	for _, w := range want {
		parts[w.Backend] = append(parts[w.Backend], w)
	}
	for name, b := range r {
		b.Set(parts[name])
		if y, ok := b.(yielder); ok {
			y.Yield(slices.DeleteFunc(slices.Clone(want), func(w plan.Peering) bool { return w.Backend == name }))
		}
	}
}

// Leave lets all backends leave at the same time.
func (r routers) Leave(ctx context.Context) {
	var all sync.WaitGroup
	for _, b := range r {
		all.Go(func() { b.Leave(ctx) })
	}
	all.Wait()
}

// Close ends all sessions at once.
func (r routers) Close() {
	for _, b := range r {
		b.Close()
	}
}

// Sessions returns the sessions of all backends, sorted by peer.
func (r routers) Sessions() []bgp.Session {
	var out []bgp.Session
	for _, name := range slices.Sorted(maps.Keys(r)) {
		out = append(out, r[name].Sessions()...)
	}
	slices.SortStableFunc(out, func(a, b bgp.Session) int { return strings.Compare(a.Peer, b.Peer) })
	return out
}

// Reloads returns how often a configuration has been given to somebody else.
func (r routers) Reloads() uint64 {
	var n uint64
	for _, b := range r {
		if w, ok := b.(reloader); ok {
			n += w.Writes()
		}
	}
	return n
}
