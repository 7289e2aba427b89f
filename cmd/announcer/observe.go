package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrcluster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrhost"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/l2"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// observersLabel is what the label of the gossip ends with among announcers
// that only observe: they never meet those that announce, and so are no
// candidates for them.
const observersLabel = "/observe-only"

// layer2Speaker answers ARP and NDP, and tells what it does.
type layer2Speaker interface {
	announcer.Speaker
	Stats() l2.Stats
	Conflicts() []l2.Conflict
	Withheld() []l2.Withheld
	Close()
}

// silentSpeaker opens no socket and answers for nothing. It logs what it was
// asked to announce when that changes.
type silentSpeaker struct {
	log *slog.Logger

	mu   sync.Mutex
	want map[string]string // links by address
}

var _ layer2Speaker = (*silentSpeaker)(nil)

// Set notes what it would announce. What it would only hand over it does not
// have. It never fails.
func (s *silentSpeaker) Set(_ context.Context, want []plan.Announcement) error {
	now := map[string]string{}
	for _, a := range want {
		if a.Yield {
			continue
		}
		var links []string
		for _, l := range a.Links {
			links = append(links, l.Name)
		}
		now[a.Address.String()] = strings.Join(links, ", ")
	}
	s.mu.Lock()
	before := s.want
	s.want = now
	s.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(before)) {
		if _, still := now[address]; !still {
			s.log.Info("only observing, would no longer announce", "address", address)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(now)) {
		if links, had := before[address]; !had || links != now[address] {
			s.log.Info("only observing, would announce", "address", address, "links", now[address])
		}
	}
	return nil
}

// Answering returns nothing: it answers for nothing.
func (s *silentSpeaker) Answering() []plan.Announcement { return nil }

// Stats counts nothing.
func (s *silentSpeaker) Stats() l2.Stats { return l2.Stats{} }

// Conflicts returns nothing: it does not listen.
func (s *silentSpeaker) Conflicts() []l2.Conflict { return nil }

// Withheld returns nothing.
func (s *silentSpeaker) Withheld() []l2.Withheld { return nil }

// Close does nothing.
func (s *silentSpeaker) Close() {}

// silentRouter opens no session. It logs what it was asked to tell each router
// when that changes, and shows it as sessions that do not come up.
type silentRouter struct {
	log *slog.Logger

	mu    sync.Mutex
	want  []plan.Peering
	told  map[string]string // routes by peer
	since time.Time
}

var _ backend = (*silentRouter)(nil)

// Set notes what it would tell the routers.
func (r *silentRouter) Set(want []plan.Peering) {
	now := map[string]string{}
	for _, p := range want {
		var routes []string
		for _, route := range p.Routes {
			routes = append(routes, route.Prefix.String())
		}
		now[p.Peer.Name] = strings.Join(routes, ", ")
	}
	r.mu.Lock()
	before := r.told
	r.want, r.told = want, now
	if r.since.IsZero() {
		r.since = time.Now()
	}
	r.mu.Unlock()
	for _, peer := range slices.Sorted(maps.Keys(before)) {
		if _, still := now[peer]; !still {
			r.log.Info("only observing, would end the session with a router", "peer", peer)
		}
	}
	for _, peer := range slices.Sorted(maps.Keys(now)) {
		if routes, had := before[peer]; !had || routes != now[peer] {
			r.log.Info("only observing, would tell a router", "peer", peer, "routes", now[peer])
		}
	}
}

// Sessions returns one for each router, which does not come up.
func (r *silentRouter) Sessions() []bgp.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []bgp.Session
	for _, p := range r.want {
		out = append(out, bgp.Session{
			Peer: p.Peer.Name, Address: p.Peer.Address, Interface: p.Peer.Interface, Port: p.Peer.Port, LocalASN: p.Peer.LocalASN,
			State: bgp.Idle, Since: r.since, Why: fmt.Sprintf("only observing: would be told %d routes", len(p.Routes)), Wanted: len(p.Routes),
		})
	}
	slices.SortFunc(out, func(a, b bgp.Session) int { return strings.Compare(a.Peer, b.Peer) })
	return out
}

// Leave does nothing: there is nobody to leave.
func (r *silentRouter) Leave(context.Context) {}

// Close does nothing.
func (r *silentRouter) Close() {}

// speak makes what announces on this node or, of an announcer that only
// observes, what would.
func speak(o options, api *source.API, kick func(), log *slog.Logger) (layer2Speaker, routers) {
	if o.observeOnly {
		silent := routers{}
		for _, name := range []config.Backend{config.Embedded, config.FRR, config.FRRK8s} {
			silent[name] = &silentRouter{log: log}
		}
		return &silentSpeaker{log: log}, silent
	}
	return l2.New(l2.Options{Log: log, Kick: kick}), routers{
		config.Embedded: bgp.New(bgp.Options{
			Node: o.node, Password: secrets{api, o.namespace}.password, Dial: bgp.Dial, Log: log,
		}),
		config.FRR: frrhost.New(frrhost.Options{Node: o.node, Dir: o.frrDir, Password: secrets{api, o.namespace}.password, Log: log}),
		config.FRRK8s: frrcluster.New(frrcluster.Options{
			Node: o.node, Namespace: o.frrK8sNamespace, API: clusterAPI{api.Raw()}, Log: log,
		}),
	}
}
