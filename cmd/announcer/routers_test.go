package main

import (
	"context"
	"slices"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// fakeBackend remembers what it was told last.
type fakeBackend struct {
	peers []string
	ended []string
}

func (f *fakeBackend) Set(want []plan.Peering) {
	f.peers = nil
	for _, w := range want {
		f.peers = append(f.peers, w.Peer.Name)
	}
}

func (f *fakeBackend) Leave(context.Context) { f.ended = append(f.ended, "left") }
func (f *fakeBackend) Close()                { f.ended = append(f.ended, "closed") }

func (f *fakeBackend) Sessions() []bgp.Session {
	var out []bgp.Session
	for _, p := range f.peers {
		out = append(out, bgp.Session{Peer: p})
	}
	return out
}

// yieldingBackend remembers whose routers are another's.
type yieldingBackend struct {
	fakeBackend
	yielded []string
}

func (y *yieldingBackend) Yield(others []plan.Peering) {
	y.yielded = nil
	for _, w := range others {
		y.yielded = append(y.yielded, w.Peer.Name)
	}
}

// A document that chooses another backend makes the one before take leave.
func TestEachBackendGetsItsOwnPeeringsAndNothingWhenItIsNotChosen(t *testing.T) {
	one, two := &yieldingBackend{}, &fakeBackend{}
	all := routers{config.Embedded: one, config.FRR: two}
	peering := func(b config.Backend, name string) plan.Peering {
		return plan.Peering{Backend: b, Peer: config.Peer{Name: name}}
	}
	all.Set([]plan.Peering{peering(config.Embedded, "b"), peering(config.FRR, "a")})
	if !slices.Equal(one.peers, []string{"b"}) || !slices.Equal(two.peers, []string{"a"}) || !slices.Equal(one.yielded, []string{"a"}) {
		t.Errorf("got %q and %q, and yielded %q", one.peers, two.peers, one.yielded)
	}
	if s := all.Sessions(); len(s) != 2 || s[0].Peer != "a" || s[1].Peer != "b" {
		t.Errorf("got %v", s)
	}
	all.Set([]plan.Peering{peering(config.FRR, "a"), peering(config.FRR, "b")})
	if len(one.peers) != 0 || !slices.Equal(two.peers, []string{"a", "b"}) {
		t.Errorf("after the change: got %q and %q", one.peers, two.peers)
	}
	all.Leave(t.Context())
	all.Close()
	if want := []string{"left", "closed"}; !slices.Equal(one.ended, want) || !slices.Equal(two.ended, want) {
		t.Errorf("ended %q and %q", one.ended, two.ended)
	}
}
