package frrhost

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/keeper"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Options is what a Speaker is made of. All fields are required.
type Options struct {
	Node string // whose name makes the router ID where none is configured
	Dir  string // that is shared with FRR; it need not be there as long as nothing is wanted

	// Password returns the password in a Secret. It may block until ctx ends.
	// Its error is a bgp.NoPasswordError if there is none, as far as is known.
	Password func(ctx context.Context, secret string) (string, error)

	Log *slog.Logger
}

// Speaker has the sessions of a node by its FRR. Its methods may be called
// from any goroutine.
type Speaker struct {
	o      Options
	keeper *keeper.Keeper
	writes atomic.Uint64

	// What follows is the goroutine's own.
	roster    roster.Roster
	known     bool              // what the file has had before the first write
	before    map[router]string // the passwords in that
	written   string            // what the file has
	since     time.Time         // for how long; of that from before: when it was first read
	current   bool              // it is what the roster wants
	reported  bool              // what became of it has been logged
	result    result
	report    report
	trouble   string // that has been logged
	passwords passwords
}

// New returns a Speaker without sessions.
func New(o Options) *Speaker {
	s := &Speaker{o: o, roster: roster.New(rules)}
	s.keeper = keeper.New(s.run)
	s.passwords = passwords{read: o.Password, news: s.keeper.Wake, known: map[string]*secret{}}
	return s
}

const (
	glance = 200 * time.Millisecond // between two looks at what FRR says, while something is under way
	rest   = time.Second            // and at rest

	// silence is how old what FRR says may be before it counts as away, and how
	// long a configuration may stay without an answer.
	silence = 15 * time.Second
)

// Set makes routers agree with want: FRR has a session with each of them, and
// each is told its routes and nothing else. It only takes note. Set(nil) takes
// leave of all, also of those that an announcer before has left in the file.
// It is idempotent, and has no effect after Leave.
func (s *Speaker) Set(want []plan.Peering) {
	if len(want) == 0 && !s.keeper.Started() && !s.inherited() {
		return // this node's FRR is nobody of ours
	}
	s.keeper.Set(want)
}

// inherited tells whether an announcer before this one has left sessions.
func (s *Speaker) inherited() bool {
	text, err := readConf(s.o.Dir)
	return err == nil && frr.Ours(text) && text != frr.Empty
}

// Leave ends all sessions and returns when FRR has closed them, or with ctx.
// What routers keep while an announcer restarts stays in FRR, which goes on
// with it. All others are asked to avoid the routes, and after a pause they
// lose them.
func (s *Speaker) Leave(ctx context.Context) { s.keeper.Leave(ctx) }

// Close ends the speaker at once, as the death of the process would: FRR goes
// on with what it has.
func (s *Speaker) Close() { s.keeper.Close() }

// Sessions returns the state of all sessions as FRR has last told it, sorted
// by the peer's name.
func (s *Speaker) Sessions() []bgp.Session { return s.keeper.Sessions() }

// Writes returns how often the configuration has been replaced; each is a
// reload of FRR.
func (s *Speaker) Writes() uint64 { return s.writes.Load() }

// run keeps FRR in agreement until the speaker has left.
func (s *Speaker) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.passwords.reading.Wait()
	defer cancel()
	for ctx.Err() == nil {
		wish := s.keeper.Wish()
		s.tell(s.pass(ctx, wish))
		if wish.Ending && !s.roster.Leaving() {
			return // what is left is to be forgotten, which FRR does by itself
		}
		s.keeper.Wait(s.pause(time.Now()))
	}
}

// pause is how long to wait for the next pass. What cannot be written, and who
// does not answer, is not worth many looks.
func (s *Speaker) pause(now time.Time) time.Duration {
	if s.current && !s.unanswered(now) && (!s.settled() || s.roster.Leaving()) {
		return glance
	}
	return rest
}

// settled tells whether FRR has what is written, or has said that it has not.
func (s *Speaker) settled() bool { return s.result.Hash == hashOf(s.written) }

// unanswered tells whether nobody has said for long what became of the file.
func (s *Speaker) unanswered(now time.Time) bool {
	return s.current && !s.settled() && now.Sub(s.since) >= silence
}

// pass brings the file, what is known of FRR, and the sessions up to date.
func (s *Speaker) pass(ctx context.Context, wish keeper.Wish) error {
	now := time.Now()
	err := errors.Join(s.recall(now), read(s.o.Dir, resultFile, &s.result), read(s.o.Dir, stateFile, &s.report))
	if s.current && s.settled() && s.result.Error == "" {
		s.roster.Applied(now)
	}
	s.roster.Update(frr.Numbered(wish.Peerings), wish.Ending, now)
	lineup, secrets, mute := s.readable(ctx, wish.Ending)
	err = errors.Join(err, s.write(now, frr.Render(frr.Input{
		Peerings: lineup, RouterID: bgp.RouterID(s.o.Node, config.Peer{}), Passwords: secrets,
	})))
	switch {
	case s.settled() && s.result.Error != "":
		err = errors.Join(err, errors.New("FRR has not taken its configuration: "+s.result.Error))
	case s.unanswered(now):
		err = errors.Join(err, errors.New("nobody gives FRR its configuration: does reload.py run beside it, with this directory?"))
	}
	s.show(now, mute, err)
	return err
}

// recall finds out what an announcer before this one has left in the file.
func (s *Speaker) recall(now time.Time) error {
	if s.known {
		return nil
	}
	there, err := readConf(s.o.Dir)
	if err != nil {
		return err
	}
	s.known, s.written, s.since, s.before = true, there, now, passwordsIn(there)
	return nil
}

// readable returns the sessions that FRR is to have, but those whose password is not known: a session is
// never brought up without it. It returns the passwords, by Secret, and why
// they are not known, by peer. At the end no Secret is worth a request.
func (s *Speaker) readable(ctx context.Context, ending bool) (out []frr.Peering, secrets map[string]string, mute map[string]error) {
	secrets, mute = map[string]string{}, map[string]error{}
	for _, m := range s.roster.Lineup() {
		p := frr.Peering{Peering: m.Peering, Closed: m.Step == roster.Closing}
		name := p.Peer.PasswordSecret
		if name == "" {
			out = append(out, p)
			continue
		}
		s.passwords.recall(name, s.before[routerOf(p.Peer)])
		if !ending {
			s.passwords.refresh(ctx, name)
		}
		value, err := s.passwords.get(name)
		if err != nil {
			mute[p.Peer.Name] = err
			continue
		}
		secrets[name] = value
		out = append(out, p)
	}
	return out, secrets, mute
}

// write replaces the configuration if it is another one. What is there and
// could not be read is never replaced.
func (s *Speaker) write(now time.Time, text string) error {
	s.current = s.known && text == s.written
	if s.current || !s.known {
		return nil
	}
	if err := writeConf(s.o.Dir, text); err != nil {
		return err
	}
	s.written, s.since, s.current, s.reported = text, now, true, false
	s.writes.Add(1)
	return nil
}

// tell logs trouble when it comes and when it is over, and each reload.
func (s *Speaker) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text != "" && text != s.trouble:
		s.o.Log.Warn("FRR does not advertise what it should, will retry", "err", err)
	case text == "" && s.trouble != "":
		s.o.Log.Info("FRR advertises what it should again")
	case text == "" && s.settled() && !s.reported:
		s.o.Log.Info("FRR has its configuration", "peers", strings.Join(slices.Sorted(maps.Keys(s.names())), " "))
	}
	s.trouble = text
	s.reported = s.reported || text == "" && s.settled()
}

func (s *Speaker) names() map[string]bool {
	out := map[string]bool{}
	for _, p := range s.roster.Lineup() {
		out[p.Peer.Name] = true
	}
	return out
}
