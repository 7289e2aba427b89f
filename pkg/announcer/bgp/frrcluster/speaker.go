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
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	kick   chan struct{} // capacity 1

	configurations, states, node *follower

	mu       sync.Mutex
	started  bool
	want     []plan.Peering
	ending   bool
	deadline time.Time // of the end; zero: there is none
	sessions []bgp.Session

	// What follows is the goroutine's own.
	following sync.WaitGroup
	stop      context.CancelFunc // of the followers; nil: they do not run
	looked    bool               // whether an announcer before has left an object
	relook    time.Time          // when to look for that again; zero: not before it is asked for
	roster    roster
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
	ctx, cancel := context.WithCancel(context.Background())
	s := &Speaker{
		o: o, ctx: ctx, cancel: cancel, done: make(chan struct{}), kick: make(chan struct{}, 1),
		passwords: map[string]checked{}, times: map[string]uint64{},
	}
	follow := func(what Selection) *follower { return &follower{what: what, kick: s.wake} }
	s.configurations = follow(Selection{Resource: configurations, Namespace: o.Namespace, Fields: "metadata.name=" + frrk8s.Name(o.Node)})
	s.states = follow(Selection{Resource: "bgpsessionstates", Namespace: o.Namespace, Labels: frrk8s.NodeLabel + "=" + o.Node})
	s.node = follow(Selection{Resource: "frrnodestates", Fields: "metadata.name=" + o.Node})
	return s
}

// Set makes routers agree with want: frr-k8s has a session with each of them,
// and each is told its routes and nothing else. It only takes note. Set(nil)
// takes leave of all, also of those that an announcer before has left. It is
// idempotent, and has no effect after Leave.
func (s *Speaker) Set(want []plan.Peering) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	s.want = want
	if !s.started {
		s.started = true
		go s.run()
	}
	s.wake()
}

func (s *Speaker) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// shortly is what is kept of the time to leave, to write what has to be.
const shortly = 3 * time.Second

// Leave ends all sessions and returns when frr-k8s has been told so, or with
// ctx. Those whose routers keep the routes of an announcer that restarts stay,
// for FRR goes on with them. All others are asked to avoid the routes, and after
// a pause they lose them.
func (s *Speaker) Leave(ctx context.Context) {
	s.mu.Lock()
	s.ending = true
	if end, ok := ctx.Deadline(); ok {
		s.deadline = end.Add(-shortly)
	}
	started := s.started
	s.mu.Unlock()
	if !started {
		return
	}
	s.wake()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}

// Close ends the speaker at once, as the death of the process would: FRR goes
// on with what it has.
func (s *Speaker) Close() {
	s.mu.Lock()
	s.ending = true
	started := s.started
	s.mu.Unlock()
	s.cancel()
	if started {
		<-s.done
	}
}

// Sessions returns the state of all sessions as frr-k8s has last told it, sorted
// by the peer's name.
func (s *Speaker) Sessions() []bgp.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sessions)
}

// run keeps the FRRConfiguration as it should be until the speaker has left.
func (s *Speaker) run() {
	defer close(s.done)
	defer s.following.Wait()
	defer s.cancel()
	for s.ctx.Err() == nil {
		s.mu.Lock()
		want, ending, deadline := s.want, s.ending, s.deadline
		s.mu.Unlock()
		now := time.Now()
		s.roster.update(want, ending, now)
		late := ending && !deadline.IsZero() && !now.Before(deadline)
		if late {
			s.roster.hurry()
		}
		if late || !s.attempts.held(now, s.asked) {
			s.outcome.why, s.outcome.err = s.pass(now)
			s.attempts.note(now, s.asked, s.outcome.err)
			s.tell(s.outcome.err)
		}
		s.show(now, s.outcome)
		if ending && !s.roster.leaving() && (s.outcome.err == nil || late) {
			return
		}
		s.wait(s.pause(now, deadline))
	}
}

// outcome is what the last pass has led to.
type outcome struct {
	why map[string]error // why single peers are left out, by name
	err error
}

// wait returns after a time, zero for no limit, or when something has changed.
func (s *Speaker) wait(pause time.Duration) {
	var over <-chan time.Time
	if pause > 0 {
		over = time.After(pause)
	}
	select {
	case <-s.ctx.Done():
	case <-s.kick:
	case <-over:
	}
}

// pause returns how long nothing has to be done; zero: for good. After a pass
// that went wrong only leaves and the end do not wait for the next attempt.
func (s *Speaker) pause(now, deadline time.Time) time.Duration {
	next := s.roster.ends()
	if s.outcome.err == nil {
		next = append(append(next, s.relooks()...), s.roster.returns()...)
	} else {
		next = append(next, s.attempts.next(s.asked))
	}
	next = slices.DeleteFunc(append(next, deadline), time.Time.IsZero)
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
	for _, p := range s.roster.lineup() {
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
func (s *Speaker) pass(now time.Time) (why map[string]error, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, requestWithin)
	defer cancel()
	lineup := s.roster.lineup()
	idle := len(lineup) == 0
	if idle && s.stop == nil {
		if err := s.sweep(ctx, now); err != nil {
			return nil, err
		}
		s.roster.written(now)
		return nil, nil
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	there := s.configurations.state()
	lineup, why = s.readable(ctx, lineup, there.items[frrk8s.Name(s.o.Node)], now)
	switch {
	case errors.Is(there.err, ErrAbsent) && idle:
		s.roster.written(now)
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
	s.roster.written(now)
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

// begin starts to follow if there is an frr-k8s.
func (s *Speaker) begin(ctx context.Context) error {
	if s.stop != nil {
		return nil
	}
	if _, err := s.o.API.Get(ctx, group, nil); errors.Is(err, ErrAbsent) {
		return errNotInstalled
	} else if err != nil {
		return fmt.Errorf("look for frr-k8s: %w", err)
	}
	s.looked = true
	ctx, s.stop = context.WithCancel(s.ctx)
	for _, f := range s.followers() {
		s.following.Go(func() { f.run(ctx, s.o.API) })
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
