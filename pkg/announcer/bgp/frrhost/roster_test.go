package frrhost

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func peering(name string, restart time.Duration, leaving plan.Reason, routes int) plan.Peering {
	p := plan.Peering{Peer: config.Peer{Name: name, Interface: name, GracefulRestart: restart}, Leaving: leaving, Pause: 3 * time.Second}
	for range routes {
		p.Routes = append(p.Routes, plan.Route{Prefix: netip.MustParsePrefix("192.0.2.1/32")})
	}
	return p
}

// lines shows who has a session and in what mood.
func (r *roster) lines() string {
	out := ""
	for _, p := range r.lineup() {
		out += fmt.Sprintf("%s %d %s", p.Peer.Name, len(p.Routes), p.Leaving)
		if p.Closed {
			out += " closed"
		}
		out += ";"
	}
	return out
}

func TestALeaveIsOverWhenFRRHasHadItForThePause(t *testing.T) {
	var r roster
	now := time.Unix(1000, 0)
	step := func(wait time.Duration, ending, applied bool, want string, wanted ...plan.Peering) {
		t.Helper()
		now = now.Add(wait)
		if applied {
			r.applied(now)
		}
		r.update(wanted, ending, now)
		if got := r.lines(); got != want {
			t.Errorf("at %s: got %q, want %q", now.UTC().Format("04:05"), got, want)
		}
	}
	a, b, kept := peering("a", 0, "", 1), peering("b", 0, "", 0), peering("kept", time.Minute, "", 1)
	step(0, false, false, "a 1 ;b 0 ;kept 1 ;", a, b, kept)
	step(0, false, false, "b 0 ;kept 1 ;a 1 Draining;", b, kept)          // removed: its routes are to be avoided
	step(time.Second, false, true, "b 0 ;kept 1 ;a 1 Draining;", b, kept) // FRR has taken it
	step(4*time.Second, false, true, "b 0 ;kept 1 ;a 1 Draining;", b, kept)
	step(time.Second, false, true, "b 0 ;kept 1 ;a 1 Draining closed;", b, kept)
	step(0, false, false, "b 0 ;kept 1 ;a 1 Draining closed;", b, kept)
	step(0, false, true, "b 0 ;kept 1 ;", b, kept)
	step(0, false, false, "a 1 ;b 0 ;kept 1 ;", a, b, kept) // it returns

	excluded := []plan.Peering{peering("a", 0, plan.ExcludeLabel, 1), peering("b", 0, plan.ExcludeLabel, 0), peering("kept", time.Minute, plan.ExcludeLabel, 1)}
	step(0, false, false, "a 1 ExcludeLabel;b 0 ExcludeLabel closed;kept 1 ExcludeLabel;", excluded...) // without routes there is nothing to ask for
	step(0, false, true, "a 1 ExcludeLabel;kept 1 ExcludeLabel;", excluded...)
	step(0, false, false, "a 1 ;kept 1 ;", a, kept) // the label is gone again

	step(0, true, false, "a 1 Draining;kept 1 ;", a, kept)
	step(9*time.Second, true, false, "a 1 Draining;kept 1 ;", a, kept)
	step(time.Second, true, false, "a 1 Draining closed;kept 1 ;", a, kept) // FRR does not answer: each step is bounded
	if !r.leaving() {
		t.Error("the leave is over too early")
	}
	step(5*time.Second, true, false, "kept 1 ;", a, kept)
	if r.leaving() {
		t.Error("the leave is not over")
	}
}

func TestANodeThatIsExcludedFromTheStartClosesWhatIsThere(t *testing.T) {
	var r roster
	want := []plan.Peering{peering("a", 0, plan.ExcludeLabel, 1)}
	r.update(want, false, time.Unix(0, 0))
	if got := r.lines(); got != "a 0 ExcludeLabel closed;" {
		t.Errorf("got %q", got)
	}
	r.applied(time.Unix(1, 0))
	r.update(want, false, time.Unix(1, 0))
	if got := r.lines(); got != "" {
		t.Errorf("got %q after FRR has closed it", got)
	}
}

func TestOtherTermsNeedAnotherSession(t *testing.T) {
	var r roster
	now := time.Unix(0, 0)
	step := func(wait time.Duration, p plan.Peering, want string) {
		t.Helper()
		now = now.Add(wait)
		r.applied(now)
		r.update([]plan.Peering{p}, false, now)
		if got := r.lines(); got != want {
			t.Errorf("at %s: got %q, want %q", now.UTC().Format("04:05"), got, want)
		}
	}
	old := peering("a", 0, "", 1)
	renamed, slower := old, old
	renamed.Peer.Name = "b"
	slower.Peer.HoldTime = time.Minute
	step(0, old, "a 1 ;")
	step(0, renamed, "b 1 ;") // the router does not know its name
	step(0, slower, "b 1 Draining;")
	step(time.Second, slower, "b 1 Draining;")
	step(5*time.Second, slower, "b 1 Draining closed;")
	step(time.Second, slower, "a 1 ;")
	if got := r.lineup()[0].Peer.HoldTime; got != time.Minute {
		t.Errorf("a hold time of %s", got)
	}
}

func TestAnAnnouncerThatEndsAtOnceKeepsWhatRoutersKeep(t *testing.T) {
	var r roster
	r.update([]plan.Peering{peering("kept", time.Minute, "", 1), peering("a", 0, "", 1)}, true, time.Unix(0, 0))
	if got := r.lines(); got != "kept 1 ;a 0 Draining closed;" {
		t.Errorf("got %q", got)
	}
}

// FRR has one AS number and one router ID, and would end all sessions to change
// them: those of a new document begin when those of the old one have left.
func TestWhoNeedsAnotherRouterWaitsForThoseThatLeave(t *testing.T) {
	number := func(p plan.Peering, document, local uint32) plan.Peering {
		p.ASN, p.Peer.LocalASN, p.Peer.ASN = document, local, 64501
		return p
	}
	old := number(peering("a", 0, "", 1), 64500, 64500)
	identified := number(peering("b", 0, "", 1), 64500, 64500)
	identified.Peer.RouterID = netip.MustParseAddr("10.0.0.1")
	elsewhere := number(peering("b", 0, "", 1), 64600, 64600)
	elsewhere.Peer.VRF = "red"
	internal := number(peering("b", 0, "", 1), 64500, 64501)
	for name, c := range map[string]struct {
		next  plan.Peering
		waits bool
	}{
		"the same numbers":                 {number(peering("b", 0, "", 1), 64500, 64500), false},
		"another number by local-as":       {number(peering("b", 0, "", 1), 64500, 64600), false},
		"another number of the document":   {number(peering("b", 0, "", 1), 64600, 64600), true},
		"an internal router of another AS": {internal, true},
		"another router ID":                {identified, true},
		"in another VRF":                   {elsewhere, false},
	} {
		t.Run(name, func(t *testing.T) {
			var r roster
			now := time.Unix(1000, 0)
			step := func(wait time.Duration, want string, wanted ...plan.Peering) {
				t.Helper()
				now = now.Add(wait)
				r.applied(now)
				r.update(wanted, false, now)
				if c.waits {
					want = strings.ReplaceAll(want, "b 1 ;a", "a")
				}
				if got := r.lines(); got != want {
					t.Errorf("at %s: got %q, want %q", now.UTC().Format("04:05"), got, want)
				}
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
			var r roster
			now := time.Unix(1000, 0)
			r.update([]plan.Peering{old}, false, now)
			r.update([]plan.Peering{next}, false, now)
			for range 10 {
				now = now.Add(time.Second)
				r.applied(now)
				r.update(c.want, c.ending, now)
				if got := r.lines(); got != "" && got != "a 1 Draining;" && got != "a 1 Draining closed;" {
					t.Errorf("got %q", got)
				}
			}
			if got := r.lines(); got != "" || r.leaving() {
				t.Errorf("at the end %q", got)
			}
		})
	}
}
