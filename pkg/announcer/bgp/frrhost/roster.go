package frrhost

import (
	"cmp"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const (
	// spread is how long FRR takes to tell routers of a changed route map once
	// it has it (bgp route-map delay-timer), with time for the routers.
	spread = 1500 * time.Millisecond

	// patience is how long each of the two steps of a leave waits for an FRR
	// that does not take it.
	patience = 5 * time.Second
)

// roster is who has a session, and who takes leave. It decides from values and
// the time it is given.
type roster struct {
	members []*member // in the order of the document, those that are gone from it last
}

// member is a peer that FRR knows, or should. One that leaves is first asked to
// avoid the routes, then the session is closed, and then FRR may forget it.
type member struct {
	plan.Peering
	renews bool      // it leaves because the session has to be another one
	begun  time.Time // of the leave; zero: it stays
	told   time.Time // when FRR had taken that; zero: not yet
	closed time.Time // when it began to be closed; zero: not yet
	over   bool      // it has left
	waits  bool      // it is new, and cannot be beside one that leaves
}

// update takes what is wanted. At the end of the announcer nothing is, but
// routers that keep the routes of one that restarts stay as they are.
func (r *roster) update(want []plan.Peering, ending bool, now time.Time) {
	before := map[string]*member{}
	for _, m := range r.members {
		before[bgp.RouterKey(m.Peer)] = m
	}
	var next []*member
	for _, w := range want {
		next = append(next, before[bgp.RouterKey(w.Peer)].follow(w, ending, now))
		delete(before, bgp.RouterKey(w.Peer))
	}
	for _, m := range r.members {
		if before[bgp.RouterKey(m.Peer)] == m && !m.over && !m.waits {
			m.leave(plan.Draining, now)
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
// FRR has one AS number and one router ID in a VRF, and resets all sessions when
// they change.
func (m *member) excludes(other *member) bool {
	if other.begun.IsZero() || other.over || m.Peer.VRF != other.Peer.VRF {
		return false
	}
	internal := m.Peer.Internal() || other.Peer.Internal()
	return m.ASN != other.ASN || m.Peer.RouterID != other.Peer.RouterID || internal && m.Peer.LocalASN != other.Peer.LocalASN
}

// follow returns what becomes of a member, nil if it was none, when w is
// wanted.
func (m *member) follow(w plan.Peering, ending bool, now time.Time) *member {
	stays := w.Leaving == "" && (!ending || w.Peer.GracefulRestart > 0)
	switch {
	case stays && (m == nil || !ending && (m.over || m.waits)):
		return &member{Peering: w, waits: true}
	case m != nil && m.waits:
		return &member{Peering: w, begun: now, over: true}
	case m == nil: // but an announcer before this one may have left the session in FRR
		m = &member{Peering: w}
		m.Routes = nil
		m.leave(w.Leaving, now)
	case !stays:
		m.ASN, m.Peer, m.Pause = w.ASN, w.Peer, w.Pause
		if len(w.Routes) > 0 {
			m.Routes = w.Routes
		}
		m.leave(w.Leaving, now)
	case ending || m.renews: // goes on as it is
	case m.begun.IsZero() && !bgp.SameSession(m.Peer, w.Peer):
		m.renews = true
		m.leave(plan.Draining, now)
	default:
		return &member{Peering: w}
	}
	return m
}

// leave begins a leave, or says for which reason it goes on. A router without
// routes has nothing to be asked for.
func (m *member) leave(why plan.Reason, now time.Time) {
	m.Leaving = cmp.Or(why, m.Leaving, plan.Draining)
	if m.begun.IsZero() {
		m.begun = now
		if len(m.Routes) == 0 {
			m.closed = now
		}
	}
}

// applied says that FRR has all that lineup last returned.
func (r *roster) applied(now time.Time) {
	for _, m := range r.members {
		switch {
		case m.begun.IsZero():
		case !m.closed.IsZero():
			m.over = true
		case m.told.IsZero():
			m.told = now
		}
	}
}

// expire ends the steps of leaves whose time is over.
func (r *roster) expire(now time.Time) {
	for _, m := range r.members {
		asked := !m.told.IsZero() && now.Sub(m.told) >= m.Pause+spread
		given := !m.begun.IsZero() && now.Sub(m.begun) >= m.Pause+spread+patience
		switch {
		case !m.closed.IsZero():
			m.over = m.over || now.Sub(m.closed) >= patience
		case asked || given:
			m.closed = now
		}
	}
}

// lineup returns the sessions that FRR is to have.
func (r *roster) lineup() []frr.Peering {
	var out []frr.Peering
	for _, m := range r.members {
		if m.over || m.waits {
			continue
		}
		out = append(out, frr.Peering{Peering: m.Peering, Closed: !m.closed.IsZero()})
	}
	return out
}

// leaving tells whether a leave is under way.
func (r *roster) leaving() bool {
	return slices.ContainsFunc(r.members, func(m *member) bool { return !m.begun.IsZero() && !m.over })
}
