// Package roster decides who has a session, and who takes leave, where another
// program has the sessions: values and the time in, steps out.
//
// That program can be told what it is to have, and says some time later that it
// has it. So a leave goes in steps, each of which is over when the program has
// had it for long enough, or has not taken it for too long.
package roster

import (
	"cmp"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Rules are what programs differ in.
type Rules struct {
	// Spread is how long routers take to hear of a change once the program has
	// it.
	Spread time.Duration

	// Patience is how long each step of a leave waits for a program that does
	// not take it.
	Patience time.Duration

	// Closes says that a session is closed before the program may forget it,
	// which is a step of its own. Without that it is forgotten at once.
	Closes bool

	// Between is how long the program has to be without a session before another
	// one with the same router begins.
	Between time.Duration

	// Excludes tells whether a session that begins would cut one short that takes
	// leave, also one with the same router. Nil: none does.
	Excludes func(begins, leaves plan.Peering) bool
}

// Step is how far a member is.
type Step int

// The steps, in the order in which they are taken.
const (
	Waits   Step = iota // it has not begun, for it cannot be beside one that leaves
	Stays               // it has a session
	Asked               // its router is asked to avoid the routes
	Closing             // its session is being closed
	Left                // it has none any more
)

// Member is a peer that the program knows, has known, or should know.
type Member struct {
	plan.Peering
	Step Step

	renews bool      // it leaves because the session has to be another one
	begun  time.Time // of the leave; zero: it has not begun
	told   time.Time // when the program had that; zero: not yet
	closed time.Time // when it began to be closed; zero: not yet
	gone   time.Time // when the program had it no more; zero: not yet
}

// Leaves tells whether a member has a session and takes leave.
func (m Member) Leaves() bool { return m.Step == Asked || m.Step == Closing }

// Roster has the members. It is not safe for use by several goroutines.
type Roster struct {
	rules   Rules
	members []*Member // in the order of the document, those that are gone from it last
}

// New returns a roster without members.
func New(r Rules) Roster { return Roster{rules: r} }

// Update takes what is wanted. At the end of the announcer nothing is, but
// routers that are to keep the routes of one that restarts stay as they are.
func (r *Roster) Update(want []plan.Peering, ending bool, now time.Time) {
	before := map[string]*Member{}
	for _, m := range r.members {
		before[Key(m.Peer)] = m
	}
	var next, strangers []*Member
	for _, w := range want {
		was := before[Key(w.Peer)]
		m := r.become(was, w, ending, now)
		if was == nil && m.Leaves() {
			strangers = append(strangers, m)
		}
		next = append(next, m)
		delete(before, Key(w.Peer))
	}
	for _, m := range r.members {
		if before[Key(m.Peer)] == m && m.Step != Left && m.Step != Waits {
			r.leave(m, now)
			next = append(next, m)
		}
	}
	r.members = next
	r.expire(now)
	for _, m := range strangers { // rather no word to them than one that cuts others short
		if slices.ContainsFunc(r.members, func(o *Member) bool { return !slices.Contains(strangers, o) && r.excludes(m, o) }) {
			m.Step = Left
		}
	}
	for _, m := range r.members {
		if m.Step == Waits && !slices.ContainsFunc(r.members, func(o *Member) bool { return r.excludes(m, o) }) {
			m.Step = Stays
		}
	}
}

func (r *Roster) excludes(m, other *Member) bool {
	return other.Leaves() && r.rules.Excludes != nil && r.rules.Excludes(m.Peering, other.Peering)
}

// become returns the member that a peer is after m, which is nil for a new one.
func (r *Roster) become(m *Member, w plan.Peering, ending bool, now time.Time) *Member {
	leaves := w.Leaving != "" || ending && w.Peer.GracefulRestart == 0
	same := m != nil && SameSession(m.Peer, w.Peer) && (r.rules.Excludes == nil || !r.rules.Excludes(w, m.Peering))
	switch {
	case leaves && m == nil: // but an announcer before this one may have left the session there
		m = &Member{Peering: w, begun: now}
		m.Leaving, m.Routes = cmp.Or(m.Leaving, plan.Draining), nil // a session that is closed needs none
		r.close(m, now)
	case leaves && m.Step == Waits:
		return &Member{Peering: w, Step: Left}
	case leaves:
		if len(w.Routes) == 0 {
			w.Routes = m.Routes // they are to be avoided before they go
		}
		if !same {
			w.Peer, w.ASN = m.Peer, m.ASN // it is that session that ends
		}
		m.Peering = w
		r.leave(m, now)
	case m == nil || m.Step == Waits || m.Step == Left && (same || r.vacant(m, now)):
		return &Member{Peering: w}
	case same:
		return &Member{Peering: w, Step: Stays}
	case !ending:
		m.renews = true
		r.leave(m, now)
	}
	return m
}

// vacant tells whether another session may begin where one has left.
func (r *Roster) vacant(m *Member, now time.Time) bool {
	return !m.renews || r.rules.Between == 0 || !m.gone.IsZero() && !now.Before(m.gone.Add(r.rules.Between))
}

// leave begins a leave, or goes on with it. A router without routes has nothing
// to be asked for.
func (r *Roster) leave(m *Member, now time.Time) {
	m.Leaving = cmp.Or(m.Leaving, plan.Draining)
	if m.Step == Stays {
		m.Step, m.begun = Asked, now
	}
	if m.Step == Asked && len(m.Routes) == 0 {
		r.close(m, now)
	}
}

func (r *Roster) close(m *Member, now time.Time) {
	m.Step, m.closed = Left, now
	if r.rules.Closes {
		m.Step = Closing
	}
}

// Applied says that the program has what Lineup last returned.
func (r *Roster) Applied(now time.Time) {
	for _, m := range r.members {
		switch {
		case m.Step == Asked && m.told.IsZero():
			m.told = now
		case m.Step == Closing:
			m.Step = Left
		case m.Step == Left && m.gone.IsZero():
			m.gone = now
		}
	}
}

// expire ends the steps of leaves whose time is over.
func (r *Roster) expire(now time.Time) {
	for _, m := range r.members {
		switch {
		case !m.Leaves() || now.Before(r.end(m)):
		case m.Step == Asked:
			r.close(m, now)
		default:
			m.Step = Left
		}
	}
}

// end is when the step of a leave is over.
func (r *Roster) end(m *Member) time.Time {
	switch {
	case m.Step == Closing:
		return m.closed.Add(r.rules.Patience)
	case m.told.IsZero():
		return m.begun.Add(m.Pause + r.rules.Spread + r.rules.Patience)
	}
	return m.told.Add(m.Pause + r.rules.Spread)
}

// Next returns when time alone, after now, makes Update change something; zero:
// never.
func (r *Roster) Next(now time.Time) time.Time {
	var next time.Time
	for _, m := range r.members {
		var at time.Time
		switch {
		case m.Leaves():
			at = r.end(m)
		case m.renews && !m.gone.IsZero():
			at = m.gone.Add(r.rules.Between)
		}
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Hurry ends all leaves at once.
func (r *Roster) Hurry() {
	for _, m := range r.members {
		if m.Leaves() {
			m.Step = Left
		}
	}
}

// Members returns all members.
func (r *Roster) Members() []Member {
	out := make([]Member, len(r.members))
	for i, m := range r.members {
		out[i] = *m
	}
	return out
}

// Lineup returns the members that the program is to have.
func (r *Roster) Lineup() []Member {
	return slices.DeleteFunc(r.Members(), func(m Member) bool { return m.Step == Waits || m.Step == Left })
}

// Leaving tells whether a leave is under way.
func (r *Roster) Leaving() bool {
	return slices.ContainsFunc(r.members, func(m *Member) bool { return m.Leaves() })
}

// Key is what routers are told apart by, whatever the peers are called.
func Key(p config.Peer) string { return p.VRF + "|" + p.Router() }
