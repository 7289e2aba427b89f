package frrcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrk8s"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/keeper"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// API asks the API server, in JSON. All of its methods may block until ctx
// ends.
type API interface {
	Get(ctx context.Context, path string, query url.Values) ([]byte, error)

	// Follow keeps texts equal to the objects that are selected, until ctx ends.
	// While they cannot be read texts keeps what it has. After each attempt tell
	// hears how it went.
	Follow(ctx context.Context, s Selection, texts Texts, tell func(error))

	// Apply makes an object what is given, by server-side apply in the name of
	// a field manager that takes every field over, and returns the object.
	Apply(ctx context.Context, path, manager string, object []byte) ([]byte, error)
	Delete(ctx context.Context, path string) error
}

// ErrAbsent is what an API says of what is not there, be it an object or its
// kind.
var ErrAbsent = errors.New("there is no such thing")

// Options is what a Speaker is made of. All fields are required.
type Options struct {
	Node      string
	Namespace string // of frr-k8s
	API       API
	Log       *slog.Logger
}

// Speaker has the sessions of a node by frr-k8s. Its methods may be called from
// any goroutine.
type Speaker struct {
	o      Options
	keeper *keeper.Keeper

	configurations, states, node *follower

	// What follows is the goroutine's own.
	following sync.WaitGroup
	stop      context.CancelFunc // of the followers; nil: they do not run
	looked    bool               // whether an announcer before has left an object
	relook    time.Time          // when to look for that again; zero: not before it is asked for
	roster    roster.Roster
	self      frrk8s.Node // empty: to be read
	passwords map[string]checked
	judged    judged
	applied   applied
	written   written
	repairs   repairs
	times     map[string]uint64 // how often sessions have come up, by key
	attempts  attempts
	outcome   outcome
	trouble   string // that has been logged
}

// New returns a Speaker without sessions.
func New(o Options) *Speaker {
	s := &Speaker{o: o, roster: roster.New(rules), passwords: map[string]checked{}, times: map[string]uint64{}}
	s.keeper = keeper.New(s.run)
	follow := func(what Selection) *follower { return &follower{what: what, kick: s.keeper.Wake} }
	s.configurations = follow(Selection{Resource: configurations, Namespace: o.Namespace, Fields: "metadata.name=" + frrk8s.Name(o.Node)})
	s.states = follow(Selection{Resource: "bgpsessionstates", Namespace: o.Namespace, Labels: frrk8s.NodeLabel + "=" + o.Node})
	s.node = follow(Selection{Resource: "frrnodestates", Fields: "metadata.name=" + o.Node})
	return s
}

// Set makes routers agree with want: frr-k8s has a session with each of them,
// and each is told its routes and nothing else. It only takes note. Set(nil)
// takes leave of all, also of those that an announcer before has left. It is
// idempotent, and has no effect after Leave.
func (s *Speaker) Set(want []plan.Peering) { s.keeper.Set(want) }

// shortly is what is kept of the time to leave, to write what has to be.
const shortly = 3 * time.Second

// Leave ends all sessions and returns when frr-k8s has been told so, or with
// ctx. Those whose routers keep the routes of an announcer that restarts stay,
// for FRR goes on with them. All others are asked to avoid the routes, and after
// a pause they lose them.
func (s *Speaker) Leave(ctx context.Context) { s.keeper.Leave(ctx) }

// Close ends the speaker at once, as the death of the process would: FRR goes
// on with what it has.
func (s *Speaker) Close() { s.keeper.Close() }

// Sessions returns the state of all sessions as frr-k8s has last told it, sorted
// by the peer's name.
func (s *Speaker) Sessions() []bgp.Session { return s.keeper.Sessions() }

// run keeps the FRRConfiguration as it should be until the speaker has left.
func (s *Speaker) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.following.Wait()
	defer cancel()
	for ctx.Err() == nil {
		wish := s.keeper.Wish()
		var deadline time.Time
		if !wish.Deadline.IsZero() {
			deadline = wish.Deadline.Add(-shortly)
		}
		now := time.Now()
		s.roster.Update(wish.Peerings, wish.Ending, now)
		late := !deadline.IsZero() && !now.Before(deadline)
		if late {
			s.roster.Hurry()
		}
		if late || !s.attempts.held(now, s.asked) {
			s.outcome.why, s.outcome.err = s.pass(ctx, now)
			s.attempts.note(now, s.asked, s.outcome.err)
			s.tell(s.outcome.err)
		}
		s.show(now, s.outcome)
		if wish.Ending && !s.roster.Leaving() && (s.outcome.err == nil || late) {
			return
		}
		s.keeper.Wait(s.pause(time.Now(), deadline))
	}
}

// lineup returns the peerings that FRR is to have.
func (s *Speaker) lineup() []plan.Peering {
	var out []plan.Peering
	for _, m := range s.roster.Lineup() {
		out = append(out, m.Peering)
	}
	return out
}

// outcome is what the last pass has led to.
type outcome struct {
	why map[string]error // why single peers are left out, by name
	err error
}

// pause returns how long nothing has to be done; zero: for good. After a pass
// that went wrong only leaves and the end do not wait for the next attempt.
func (s *Speaker) pause(now, deadline time.Time) time.Duration {
	next := []time.Time{deadline, s.roster.Next(now)}
	if s.outcome.err == nil {
		next = append(next, s.relooks()...)
	} else {
		next = append(next, s.attempts.next(s.asked))
	}
	next = slices.DeleteFunc(next, time.Time.IsZero)
	if len(next) == 0 {
		return 0
	}
	return max(slices.MinFunc(next, time.Time.Compare).Sub(now), 20*time.Millisecond)
}

// relooks returns when to look again at what nobody tells of: Secrets that have
// been looked at, and what an announcer before has left.
func (s *Speaker) relooks() []time.Time {
	var out []time.Time
	if !s.looked {
		out = append(out, s.relook)
	}
	for _, p := range s.lineup() {
		if c, known := s.passwords[p.Peer.PasswordSecret]; known {
			out = append(out, c.again)
		}
	}
	return out
}

// errNotInstalled is the state of a cluster without frr-k8s.
var errNotInstalled = errors.New("frr-k8s is not installed: the API server has no " + frrk8s.Group + "/" + frrk8s.Version)

// requestWithin bounds a request.
const requestWithin = 10 * time.Second

// pass brings the FRRConfiguration up to date. It returns why single peers are
// left out, by name.
func (s *Speaker) pass(life context.Context, now time.Time) (why map[string]error, err error) {
	ctx, cancel := context.WithTimeout(life, requestWithin)
	defer cancel()
	lineup := s.lineup()
	idle := len(lineup) == 0
	if idle && s.stop == nil {
		if err := s.sweep(ctx, now); err != nil {
			return nil, err
		}
		s.roster.Applied(time.Now()) // not before it was: the API server may be slow
		return nil, nil
	}
	if err := s.begin(ctx, life); err != nil {
		return nil, err
	}
	there := s.configurations.state()
	lineup, why = s.readable(ctx, lineup, there.items[frrk8s.Name(s.o.Node)], now)
	switch {
	case errors.Is(there.err, ErrAbsent) && idle:
		s.roster.Applied(time.Now()) // not before it was: the API server may be slow
		s.rest()
		return why, nil
	case errors.Is(there.err, ErrAbsent):
		return why, errNotInstalled
	case there.err != nil:
		return why, fmt.Errorf("read the FRRConfiguration: %w", there.err)
	case !there.synced:
		return why, nil // a kick follows
	}
	if err := s.write(ctx, now, lineup, there); err != nil {
		return why, err
	}
	s.roster.Applied(time.Now()) // not before it was: the API server may be slow
	if idle {
		s.rest()
	}
	return why, nil
}

// rest stops following: there is nothing that it could tell. The Node may be
// another one when it is over.
func (s *Speaker) rest() {
	s.self = frrk8s.Node{}
	s.stop()
	s.following.Wait()
	s.stop = nil
	for _, f := range s.followers() {
		f.forget()
	}
}

func (s *Speaker) followers() []*follower { return []*follower{s.configurations, s.states, s.node} }

// sweep deletes what an announcer before this one has left, who had another
// configuration. Where frr-k8s is not installed there is nothing, and nothing
// comes that is not of this one.
func (s *Speaker) sweep(ctx context.Context, now time.Time) error {
	if s.looked || now.Before(s.relook) {
		return nil
	}
	if _, err := s.o.API.Get(ctx, group, nil); err != nil {
		return s.nothingThere(err, now)
	}
	if _, err := s.o.API.Get(ctx, s.object(), nil); err != nil {
		return s.nothingThere(err, now)
	}
	if err := s.o.API.Delete(ctx, s.object()); err != nil {
		return s.nothingThere(err, now)
	}
	s.looked = true
	s.o.Log.Info("deleted the FRRConfiguration of an earlier configuration", "name", frrk8s.Name(s.o.Node))
	return nil
}

// ErrForbidden is what an API says for want of a right.
var ErrForbidden = errors.New("forbidden")

// forbiddenPause is how long what must not be seen is left alone. Where frr-k8s
// is there for others that is so for good, on each node, and no fault. But the
// right may also come later than the announcer.
const forbiddenPause = 10 * time.Minute

// nothingThere takes why nothing has been deleted.
func (s *Speaker) nothingThere(err error, now time.Time) error {
	switch {
	case errors.Is(err, ErrAbsent):
		s.looked = true
	case errors.Is(err, ErrForbidden):
		s.relook = now.Add(bgp.Jitter(forbiddenPause))
	default:
		return fmt.Errorf("look for an FRRConfiguration of an announcer before: %w", err)
	}
	return nil
}

// begin starts to follow, for life, if there is an frr-k8s.
func (s *Speaker) begin(ctx, life context.Context) error {
	if s.stop != nil {
		return nil
	}
	if _, err := s.o.API.Get(ctx, group, nil); errors.Is(err, ErrAbsent) {
		return errNotInstalled
	} else if err != nil {
		return fmt.Errorf("look for frr-k8s: %w", err)
	}
	s.looked = true
	life, s.stop = context.WithCancel(life)
	for _, f := range s.followers() {
		s.following.Go(func() { f.run(life, s.o.API) })
	}
	return nil
}

// tell logs trouble when it comes and when it is over.
func (s *Speaker) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text != "" && text != s.trouble:
		s.o.Log.Warn("frr-k8s is not told what it should be, will retry", "err", err)
	case text == "" && s.trouble != "":
		s.o.Log.Info("frr-k8s is told what it should be again")
	}
	s.trouble = text
}
