package frrcluster

import (
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const (
	// spread is how long routers take to hear of a change: frr-k8s collects
	// changes and reloads FRR, about two seconds, and FRR tells of a changed
	// route map after five (bgp route-map delay-timer).
	spread = 7 * time.Second

	// patience is how long a leave waits for an API server that does not take
	// it.
	patience = 10 * time.Second

	// between is how long FRR is without a session that has to be another one:
	// twice what frr-k8s takes, which would else only edit the one that is up.
	between = 4 * time.Second
)

// roster is who has a session, and who takes leave. It decides from values and
// the time it is given.
type roster struct {
	members []*member // in the order of the document, those that are gone from it last
}

// member is a peer that is in the FRRConfiguration, or was.
type member struct {
	plan.Peering
	renews bool      // it leaves because the session has to be another one
	waits  bool      // it is new, and cannot be beside one that leaves
	begun  time.Time // of the leave; zero: it stays
	asked  time.Time // when the FRRConfiguration had it; zero: not yet
	over   bool      // it has left
	gone   time.Time // when the FRRConfiguration had it no more; zero: not yet
}

// update takes what is wanted. At the end of the announcer nothing is, but
// routers that are to keep the routes of one that restarts stay as they are.
func (r *roster) update(want []plan.Peering, ending bool, now time.Time) {
	before := map[string]*member{}
	for _, m := range r.members {
		before[bgp.RouterKey(m.Peer)] = m
	}
	var next []*member
	for _, w := range want {
		m := before[bgp.RouterKey(w.Peer)]
		delete(before, bgp.RouterKey(w.Peer))
		next = append(next, m.become(w, ending, now))
	}
	for _, m := range r.members {
		if before[bgp.RouterKey(m.Peer)] == m && !m.over && !m.waits {
			m.leave(now)
			next = append(next, m)
		}
	}
	r.members = next
	r.expire(now)
	for _, m := range r.members {
		m.waits = m.waits && slices.ContainsFunc(r.members, m.excludes)
	}
}

// excludes tells whether other takes a leave that would end at once if m began:
// FRR has one AS number and one router ID in a VRF.
func (m *member) excludes(other *member) bool {
	leaves := !other.begun.IsZero() && !other.over
	return leaves && m.Peer.VRF == other.Peer.VRF && (m.Peer.LocalASN != other.Peer.LocalASN || m.Peer.RouterID != other.Peer.RouterID)
}

// become returns the member that a peer is after m, which is nil for a new one.
func (m *member) become(w plan.Peering, ending bool, now time.Time) *member {
	leaves := w.Leaving != "" || ending && w.Peer.GracefulRestart == 0
	same := m != nil && bgp.SameSession(m.Peer, w.Peer)
	switch {
	case leaves && (m == nil || m.waits):
		return &member{Peering: w, over: true}
	case leaves:
		if len(w.Routes) == 0 {
			w.Routes = m.Routes // they are to be avoided before they go
		}
		if !same {
			w.Peer = m.Peer // it is that session that ends
		}
		m.Peering = w
		m.leave(now)
		return m
	case m == nil || m.waits || m.vacant(now):
		return &member{Peering: w, waits: true}
	case !same && ending: // goes on as it is
		return m
	case !same:
		m.renews = true
		m.leave(now)
		return m
	case m.begun.IsZero():
		m.Peering = w
		return m
	}
	return &member{Peering: w}
}

// vacant tells whether another session with the router may begin.
func (m *member) vacant(now time.Time) bool {
	if !m.renews {
		return m.over
	}
	return !m.gone.IsZero() && !now.Before(m.gone.Add(between))
}

// leave begins a leave. A router without routes has nothing to be asked for.
func (m *member) leave(now time.Time) {
	if m.begun.IsZero() {
		m.begun = now
	}
	if m.Leaving == "" {
		m.Leaving = plan.Draining
	}
	m.over = m.over || len(m.Routes) == 0
}

// written says that the FRRConfiguration has what lineup last returned.
func (r *roster) written(now time.Time) {
	for _, m := range r.members {
		if !m.begun.IsZero() && m.asked.IsZero() {
			m.asked = now
		}
		if m.over && m.gone.IsZero() {
			m.gone = now
		}
	}
}

// expire ends leaves whose time is over.
func (r *roster) expire(now time.Time) {
	for _, m := range r.members {
		m.over = m.over || !m.begun.IsZero() && !now.Before(m.end())
	}
}

// end is when a leave is over.
func (m *member) end() time.Time {
	if m.asked.IsZero() {
		return m.begun.Add(m.Pause + spread + patience)
	}
	return m.asked.Add(m.Pause + spread)
}

// ends returns when the leaves that are under way are over.
func (r *roster) ends() []time.Time {
	var out []time.Time
	for _, m := range r.members {
		if !m.begun.IsZero() && !m.over {
			out = append(out, m.end())
		}
	}
	return out
}

// returns returns when sessions begin again as other ones.
func (r *roster) returns() []time.Time {
	var out []time.Time
	for _, m := range r.members {
		if m.renews && !m.gone.IsZero() {
			out = append(out, m.gone.Add(between))
		}
	}
	return out
}

// hurry ends all leaves at once.
func (r *roster) hurry() {
	for _, m := range r.members {
		m.over = m.over || !m.begun.IsZero()
	}
}

// lineup returns the peerings that FRR is to have.
func (r *roster) lineup() []plan.Peering {
	var out []plan.Peering
	for _, m := range r.members {
		if !m.over && !m.waits {
			out = append(out, m.Peering)
		}
	}
	return out
}

// leaving tells whether a leave is under way.
func (r *roster) leaving() bool {
	return len(r.ends()) > 0
}
