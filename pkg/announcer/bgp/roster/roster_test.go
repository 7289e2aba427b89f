package roster_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	spread   = 2 * time.Second
	patience = 5 * time.Second
	between  = 4 * time.Second
	pause    = 3 * time.Second
)

// Two programs: one that closes sessions, and one that forgets them.
var (
	closes  = roster.Rules{Spread: spread, Patience: patience, Closes: true, Excludes: otherNumber}
	forgets = roster.Rules{Spread: spread, Patience: patience, Between: between, Excludes: otherNumber}
)

func otherNumber(a, b plan.Peering) bool { return a.ASN != b.ASN }

func peering(name string, restart time.Duration, leaving plan.Reason, routes int) plan.Peering {
	p := plan.Peering{Peer: config.Peer{Name: name, Interface: name, GracefulRestart: restart}, Leaving: leaving, Pause: pause}
	for range routes {
		p.Routes = append(p.Routes, plan.Route{Prefix: netip.MustParsePrefix("192.0.2.1/32")})
	}
	return p
}

// lines shows who has a session and in what mood.
func lines(r *roster.Roster) string {
	out := ""
	for _, m := range r.Lineup() {
		out += fmt.Sprintf("%s %d %s", m.Peer.Name, len(m.Routes), m.Leaving)
		if m.Step == roster.Closing {
			out += " closed"
		}
		out += ";"
	}
	return out
}

// play is a roster in the time of a test.
type play struct {
	*testing.T
	roster.Roster
	now time.Time
}

func begin(t *testing.T, r roster.Rules) *play {
	return &play{t, roster.New(r), time.Unix(1000, 0)}
}

// step lets time pass, and asks for peerings; with applied the program has taken
// what was there before.
func (p *play) step(wait time.Duration, ending, applied bool, want string, wanted ...plan.Peering) {
	p.Helper()
	p.now = p.now.Add(wait)
	if applied {
		p.Applied(p.now)
	}
	p.Update(wanted, ending, p.now)
	if got := lines(&p.Roster); got != want {
		p.Errorf("at %s: got %q, want %q", p.now.UTC().Format("04:05"), got, want)
	}
	if next := p.Next(p.now); !next.IsZero() && !next.After(p.now) {
		p.Errorf("at %s: the next change is in the past", p.now.UTC().Format("04:05"))
	}
}

func TestALeaveIsOverWhenTheProgramHasHadItForThePause(t *testing.T) {
	p := begin(t, closes)
	a, b, kept := peering("a", 0, "", 1), peering("b", 0, "", 0), peering("kept", time.Minute, "", 1)
	p.step(0, false, false, "a 1 ;b 0 ;kept 1 ;", a, b, kept)
	p.step(0, false, false, "b 0 ;kept 1 ;a 1 Draining;", b, kept)          // removed: its routes are to be avoided
	p.step(time.Second, false, true, "b 0 ;kept 1 ;a 1 Draining;", b, kept) // it has been taken
	p.step(4*time.Second, false, true, "b 0 ;kept 1 ;a 1 Draining;", b, kept)
	p.step(time.Second, false, true, "b 0 ;kept 1 ;a 1 Draining closed;", b, kept)
	p.step(0, false, false, "b 0 ;kept 1 ;a 1 Draining closed;", b, kept)
	p.step(0, false, true, "b 0 ;kept 1 ;", b, kept)
	p.step(0, false, false, "a 1 ;b 0 ;kept 1 ;", a, b, kept) // it returns

	excluded := []plan.Peering{peering("a", 0, plan.ExcludeLabel, 1), peering("b", 0, plan.ExcludeLabel, 0), peering("kept", time.Minute, plan.ExcludeLabel, 1)}
	p.step(0, false, false, "a 1 ExcludeLabel;b 0 ExcludeLabel closed;kept 1 ExcludeLabel;", excluded...) // without routes there is nothing to ask for
	p.step(0, false, true, "a 1 ExcludeLabel;kept 1 ExcludeLabel;", excluded...)
	p.step(0, false, false, "a 1 ;kept 1 ;", a, kept) // the label is gone again

	p.step(0, true, false, "a 1 Draining;kept 1 ;", a, kept)
	p.step(9*time.Second, true, false, "a 1 Draining;kept 1 ;", a, kept)
	p.step(time.Second, true, false, "a 1 Draining closed;kept 1 ;", a, kept) // nobody takes it: each step is bounded
	if !p.Leaving() {
		t.Error("the leave is over too early")
	}
	p.step(patience, true, false, "kept 1 ;", a, kept)
	if p.Leaving() {
		t.Error("the leave is not over")
	}
}

func TestAProgramThatForgetsHasNoStepOfClosing(t *testing.T) {
	p := begin(t, forgets)
	a := peering("a", 0, "", 1)
	p.step(0, false, false, "a 1 ;", a)
	p.step(time.Second, false, true, "a 1 Draining;")
	p.step(time.Second, false, true, "a 1 Draining;")
	if got := p.Next(p.now).Sub(p.now); got != pause+spread {
		t.Errorf("the next change is in %s", got)
	}
	p.step(pause+spread-1, false, true, "a 1 Draining;")
	p.step(1, false, false, "")
	p.step(0, false, false, "a 1 ;", a)
	if !p.Next(p.now).IsZero() {
		t.Error("there is something to wait for")
	}
}

func TestANodeThatIsExcludedFromTheStartClosesWhatIsThere(t *testing.T) {
	p := begin(t, closes)
	want := peering("a", 0, plan.ExcludeLabel, 1)
	p.step(0, false, false, "a 0 ExcludeLabel closed;", want)
	p.step(time.Second, false, true, "", want)
}

func TestOtherTermsNeedAnotherSession(t *testing.T) {
	old := peering("a", 0, "", 1)
	renamed, slower := old, old
	renamed.Peer.Name = "b"
	slower.Peer.HoldTime = time.Minute
	drained := slower
	drained.Leaving = plan.Draining

	p := begin(t, closes)
	p.step(0, false, true, "a 1 ;", old)
	p.step(0, false, true, "b 1 ;", renamed) // the router does not know its name
	p.step(0, false, true, "b 1 Draining;", slower)
	p.step(time.Second, false, true, "b 1 Draining;", slower)
	p.step(5*time.Second, false, true, "b 1 Draining closed;", slower)
	p.step(time.Second, false, true, "a 1 ;", slower)
	if got := p.Lineup()[0].Peer.HoldTime; got != time.Minute {
		t.Errorf("a hold time of %s", got)
	}

	p = begin(t, forgets)
	p.step(0, false, true, "a 1 ;", old)
	p.step(0, false, true, "a 1 Draining;", slower)
	p.step(0, false, true, "a 1 Draining;", slower)
	p.step(pause+spread, false, true, "", slower)
	p.step(time.Minute, false, false, "", slower) // it is there still, as far as is known
	p.step(0, false, true, "", slower)
	p.step(between-1, false, true, "", slower)
	if got := p.Next(p.now).Sub(p.now); got != 1 {
		t.Errorf("the next change is in %s", got)
	}
	p.step(1, false, false, "a 1 ;", slower)

	p.step(0, false, true, "a 1 Draining;", old)
	p.step(0, false, true, "a 1 ;", slower)        // taken back: nothing is lost
	p.step(0, false, true, "a 1 Draining;", old)   // and again
	p.step(0, false, true, "a 1 Draining;", old)   // it has been taken
	p.step(pause+spread, false, true, "", drained) // and is over, when the node drains
	p.step(0, false, true, "", drained)
	p.step(time.Hour, false, true, "", drained)
	if !p.Next(p.now).IsZero() {
		t.Error("there is something to wait for")
	}
}

// What ends is the session that there is.
func TestANodeThatDrainsWithOtherTermsKeepsThoseOfBefore(t *testing.T) {
	p := begin(t, closes)
	old := peering("a", 0, "", 1)
	old.ASN = 64500
	next := peering("b", 0, plan.Draining, 1)
	next.ASN, next.Peer.Interface, next.Peer.HoldTime = 64600, "a", time.Minute
	p.step(0, false, true, "a 1 ;", old)
	p.step(0, false, true, "a 1 Draining;", next)
	if m := p.Lineup()[0]; m.ASN != 64500 || m.Peer.HoldTime != 0 {
		t.Errorf("AS %d and a hold time of %s", m.ASN, m.Peer.HoldTime)
	}
}

func TestAnAnnouncerThatEndsAtOnceKeepsWhatRoutersKeep(t *testing.T) {
	p := begin(t, closes)
	p.step(0, true, false, "kept 1 ;a 0 Draining closed;", peering("kept", time.Minute, "", 1), peering("a", 0, "", 1))
}

func TestLeavesThatAreHurriedAreOver(t *testing.T) {
	for _, rules := range []roster.Rules{closes, forgets} {
		p := begin(t, rules)
		a, b := peering("a", 0, "", 1), peering("b", 0, "", 1)
		p.step(0, false, true, "a 1 ;b 1 ;", a, b)
		p.step(0, false, true, "b 1 ;a 1 Draining;", b)
		p.Hurry()
		if got := lines(&p.Roster); got != "b 1 ;" || p.Leaving() {
			t.Errorf("got %q", got)
		}
	}
}

// Sessions of a new document begin when those of the old one have left.
func TestWhoIsExcludedWaitsForThoseThatLeave(t *testing.T) {
	old, beside, next := peering("a", 0, "", 1), peering("b", 0, "", 1), peering("b", 0, "", 1)
	old.ASN, beside.ASN, next.ASN = 64500, 64500, 64600
	for name, c := range map[string]struct {
		next  plan.Peering
		waits bool
	}{"the same number": {beside, false}, "another number": {next, true}} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, closes)
			step := func(wait time.Duration, want string, wanted plan.Peering) {
				t.Helper()
				if c.waits {
					want = strings.ReplaceAll(want, "b 1 ;a", "a")
				}
				p.step(wait, false, true, want, wanted)
			}
			step(0, "a 1 ;", old)
			step(time.Second, "b 1 ;a 1 Draining;", c.next)
			step(time.Second, "b 1 ;a 1 Draining;", c.next)
			step(4*time.Second, "b 1 ;a 1 Draining;", c.next)
			step(time.Second, "b 1 ;a 1 Draining closed;", c.next)
			step(time.Second, "b 1 ;", c.next)
		})
	}
}

// Nothing is known of a session with a router that appears on a node which drains:
// to close what may be there must not end the leaves of others.
func TestAStrangerOnANodeThatDrainsCutsNoLeaveShort(t *testing.T) {
	a, stranger := peering("a", 0, "", 1), peering("b", 0, plan.Draining, 1)
	drained := a
	drained.Leaving = plan.Draining
	for asn, want := range map[uint32]string{0: "b 0 Draining closed;a 1 Draining;", 64600: "a 1 Draining;"} {
		p := begin(t, closes)
		stranger.ASN = asn
		p.step(0, false, true, "a 1 ;", a)
		p.step(0, false, true, "a 1 Draining;", drained)
		p.step(0, false, true, want, stranger, drained)
	}
	p := begin(t, closes)
	stranger.ASN = 64600
	p.step(0, false, true, "a 1 ;", a)
	p.step(0, false, true, "a 1 Draining;", stranger, drained) // all at once
}

func TestWhoWaitsAndIsNotWantedAnyMoreNeverBegins(t *testing.T) {
	old, next := peering("a", 0, "", 1), peering("b", 0, "", 1)
	next.ASN = 64600
	drained := next
	drained.Leaving = plan.Draining
	for name, c := range map[string]struct {
		want   []plan.Peering
		ending bool
	}{"removed": {nil, false}, "drained": {[]plan.Peering{drained}, false}, "at the end": {[]plan.Peering{next}, true}} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, closes)
			p.Update([]plan.Peering{old}, false, p.now)
			p.Update([]plan.Peering{next}, false, p.now)
			for range 10 {
				p.now = p.now.Add(time.Second)
				p.Applied(p.now)
				p.Update(c.want, c.ending, p.now)
				if got := lines(&p.Roster); got != "" && got != "a 1 Draining;" && got != "a 1 Draining closed;" {
					t.Errorf("got %q", got)
				}
			}
			if got := lines(&p.Roster); got != "" || p.Leaving() {
				t.Errorf("at the end %q", got)
			}
		})
	}
}

// All sessions of a program are others when its own number is: those that differ
// in nothing else take leave too, and begin when all have left.
func TestAnotherNumberOfTheProgramRenewsAllSessions(t *testing.T) {
	p := begin(t, closes)
	a, b := peering("a", 0, "", 1), peering("b", 0, "", 1)
	p.step(0, false, false, "a 1 ;b 1 ;", a, b)
	a.ASN, b.ASN = 64600, 64600
	p.step(time.Second, false, true, "a 1 Draining;b 1 Draining;", a, b)
	p.step(time.Second, false, true, "a 1 Draining;b 1 Draining;", a, b)
	for _, m := range p.Lineup() {
		if m.ASN != 0 {
			t.Errorf("%s takes leave under the number %d", m.Peer.Name, m.ASN)
		}
	}
	p.step(pause+spread, false, true, "a 1 Draining closed;b 1 Draining closed;", a, b)
	p.step(0, false, true, "a 1 ;b 1 ;", a, b)
	a.ASN = 0
	b.ASN = 0
	p.step(time.Second, false, true, "a 1 Draining;b 1 Draining;", a, b)
	a.ASN, b.ASN = 64600, 64600
	p.step(time.Second, false, true, "a 1 ;b 1 ;", a, b) // taken back: nothing is reset
}
