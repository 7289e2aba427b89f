// Package announcer is the loop: snapshot, decide, apply. It owns the
// interfaces of what it drives.
package announcer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// A Source knows the state of the world.
type Source interface {
	// Snapshot returns the current state, or an error while any part of it is
	// not known: then what is announced stays announced.
	Snapshot() (plan.Snapshot, error)
}

// A Speaker makes the network agree with want: it announces every address in
// want and nothing else. Set is idempotent, and Set(ctx, nil) withdraws
// everything. It withdraws before it announces, and goes on past an error.
type Speaker interface {
	Set(ctx context.Context, want []plan.Announcement) error

	// Answering returns the addresses that the speaker answers for, sorted;
	// those being handed over included.
	Answering() []plan.Announcement
}

// A Router makes routers agree with want: there is a session with each of
// them, and each is told its routes and nothing else. Neither a router that is
// away nor one that hangs holds Set up; what becomes of it is for the status.
type Router interface {
	Set(want []plan.Peering)

	// Leave ends all sessions, so that no packet is lost, and returns when that
	// is done or ctx ends. Set has no effect afterwards.
	Leave(ctx context.Context)
}

// State is what this announcer says of itself to the others. The loop is the
// only one that says it.
type State struct {
	Passive  bool
	Draining bool
	plan.Standing
	Config string // hash of the configuration in force
	Links  []plan.Link
}

// Pass is the outcome of one pass.
type Pass struct {
	// Snapshot and Verdicts are in force. If the pass failed because nothing is
	// known, they are those of the last one that did not, and zero before it.
	Snapshot plan.Snapshot
	Verdicts []plan.Verdict

	Changes []plan.Change // against the pass before; none at rest
	Err     error         // of the source or of speakers
	Started time.Time
	Took    time.Duration
}

// Options is what an Announcer is made of. All fields but Observe are required.
type Options struct {
	Source   Source
	Speakers []Speaker
	Router   Router

	// Publish tells the other announcers the state of this one. It is called
	// in every pass, first when everything is known, and must not block.
	Publish func(State)

	// Observe is called after every pass, in the loop's goroutine. It must not
	// block, nor change what it gets.
	Observe func(Pass)

	Log *slog.Logger
}

const (
	// resyncEvery repairs what no kick told of.
	resyncEvery = 30 * time.Second
	retryAfter  = time.Second

	// meetWithin is how long a new announcer waits for its first contact with
	// another one, if there are other Nodes. It would claim every address
	// before, and turn all clients away from the owners. That it may be the
	// only announcer is why it does not wait for longer.
	meetWithin = 2 * time.Second
)

var errAlone = errors.New("waiting for contact with another announcer")

// Announcer is the loop. Only Kick may be called while Run runs.
type Announcer struct {
	o    Options
	kick chan struct{}

	knownSince time.Time // when the source first knew everything
	ready      bool      // there has been a decision
	draining   bool      // this announcer is about to end
	away       bool      // its Node says that it is to give its addresses away
	merges     int       // how often strangers came
	planner    plan.Planner
	last       Pass
	trouble    string                     // what kept the last pass from succeeding; empty: nothing
	gained     map[netip.Addr]plan.Change // ours by decision, not yet seen answered
}

// New returns an Announcer that does nothing before Run.
func New(o Options) *Announcer {
	if o.Observe == nil {
		o.Observe = func(Pass) {}
	}
	return &Announcer{o: o, kick: make(chan struct{}, 1), gained: map[netip.Addr]plan.Change{}}
}

// Kick asks for a pass soon. It never blocks, may be called from any
// goroutine, and any number of calls before that pass are one.
func (a *Announcer) Kick() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Run passes whenever it is kicked, after failures and from time to time,
// until ctx ends. Then it leaves: it hands its addresses over, which takes two
// seconds at most, withdraws what is left and returns. The gossip must go on
// until then.
func (a *Announcer) Run(ctx context.Context) error {
	// A pass is never cut off in the middle: what comes after the end of ctx
	// depends on it.
	lasting := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		wait := resyncEvery
		if !a.pass(lasting) {
			wait = retryAfter
		}
		select {
		case <-ctx.Done():
		case <-a.kick:
		case <-time.After(wait):
		}
	}
	return a.leave(lasting)
}

// pass makes the network agree with the world once, and tells whether it does.
func (a *Announcer) pass(ctx context.Context) bool {
	p := a.last
	p.Started, p.Changes = time.Now(), nil
	p.Err = a.decide(&p)
	if p.Err == nil {
		p.Err = a.set(ctx, a.want(p))
		a.route()
	}
	p.Took = time.Since(p.Started)
	a.last = p
	a.tellTrouble(p.Err)
	a.tellChanges(p)
	a.o.Observe(p)
	return p.Err == nil
}

// decide fills in what is in force now, or leaves what was.
func (a *Announcer) decide(p *Pass) error {
	s, err := a.o.Source.Snapshot()
	if err != nil {
		return err
	}
	if !a.ready && !a.met(s) {
		return errAlone
	}
	if a.ready && strangers(p.Snapshot.Members, s.Members) {
		a.merges++
	}
	s.Returns += a.merges
	s.Departed = departed(p.Snapshot, s)
	a.ready = true
	a.away = plan.Leaving(s)
	a.publish(s)
	s.Members = drained(s.Members, s.Node, a.drains())
	verdicts := a.planner.Decide(s)
	p.Changes = plan.Diff(p.Verdicts, verdicts)
	p.Snapshot, p.Verdicts = s, verdicts
	return nil
}

// met tells whether it can be known who else announces.
func (a *Announcer) met(s plan.Snapshot) bool {
	if a.knownSince.IsZero() {
		a.knownSince = time.Now()
	}
	return time.Since(a.knownSince) >= meetWithin ||
		slices.ContainsFunc(s.Members, func(m plan.Member) bool { return m.Name != s.Node }) ||
		!slices.ContainsFunc(s.Nodes, func(n plan.Node) bool { return n.Name != s.Node })
}

// strangers tells whether a member has come that was not passive when first
// seen. A process is born passive, so that one has been alive elsewhere: two
// parts of the network have met that never were one in its life. It may own
// what this announcer owns, hence owners repeat their announcements, just as
// for a member that returns.
func strangers(before, after []plan.Member) bool {
	return slices.ContainsFunc(after, func(m plan.Member) bool {
		return !m.Passive && !slices.ContainsFunc(before, func(known plan.Member) bool { return known.Name == m.Name })
	})
}

// departed returns who was a member and is none now, as long as the Node
// exists.
func departed(before, now plan.Snapshot) []plan.Member {
	known := map[string]bool{}
	for _, m := range now.Members {
		known[m.Name] = true
	}
	var out []plan.Member
	for _, m := range slices.Concat(before.Departed, before.Members) {
		exists := func(n plan.Node) bool { return n.Name == m.Name }
		if !known[m.Name] && slices.ContainsFunc(now.Nodes, exists) {
			known[m.Name] = true
			out = append(out, m)
		}
	}
	return out
}

// publish tells the others about this announcer, which stays passive until
// it knows everything.
func (a *Announcer) publish(s plan.Snapshot) {
	a.o.Publish(State{
		Passive: !a.ready, Draining: a.drains(), Standing: s.Self, Config: s.Config.Hash, Links: s.Links,
	})
}

// drains tells whether this announcer wants to get rid of its addresses.
func (a *Announcer) drains() bool { return a.draining || a.away }

// drained returns members with one of them draining or not. What a node says
// of itself takes a moment to come back to it by gossip.
func drained(members []plan.Member, node string, drains bool) []plan.Member {
	i := slices.IndexFunc(members, func(m plan.Member) bool { return m.Name == node })
	if i < 0 || members[i].Draining == drains {
		return members
	}
	members = slices.Clone(members)
	members[i].Draining = drains
	return members
}

// want returns what the speakers are to do after a pass. The first decision
// of an announcer, made while it is passive, tells it who owned what before.
func (a *Announcer) want(p Pass) []plan.Announcement {
	from := map[netip.Addr]string{}
	for address, c := range a.gained {
		from[address] = c.From
	}
	for _, c := range p.Changes {
		from[c.Address] = c.From
	}
	want := plan.Announcements(p.Verdicts, p.Snapshot)
	for i := range want {
		was, gained := from[want[i].Address]
		want[i].First = gained && was == "" && !want[i].Yield
		want[i].Ask = want[i].Ask && !isMember(p.Snapshot, was) // who is there hands over, and answers until then
	}
	return want
}

func isMember(s plan.Snapshot, node string) bool {
	return node != s.Node && slices.ContainsFunc(s.Members, func(m plan.Member) bool { return m.Name == node })
}

// route gives the routers what they are to be told. They have their own way of
// taking leave of an announcer that ends.
func (a *Announcer) route() {
	if !a.draining {
		a.o.Router.Set(a.planner.Peerings())
	}
}

// set gives every speaker what it is to announce. One that fails stops no other.
func (a *Announcer) set(ctx context.Context, want []plan.Announcement) error {
	var errs []error
	for _, speaker := range a.o.Speakers {
		if err := speaker.Set(ctx, want); err != nil {
			errs = append(errs, fmt.Errorf("announce: %w", err))
		}
	}
	return errors.Join(errs...)
}

// answering returns the addresses that any speaker answers for, and whether
// as their owner.
func (a *Announcer) answering() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, speaker := range a.o.Speakers {
		for _, an := range speaker.Answering() {
			out[an.Address] = out[an.Address] || !an.Yield
		}
	}
	return out
}
