package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

func TestALifeThatHasEndedIsRefusedUntilAnotherBegins(t *testing.T) {
	now := time.Now()
	v := newView("a")
	for _, name := range []string{"b", "c", "d"} {
		v.join(node(name, metadata{life: 1, second: true}))
	}
	v.leftOrLost("b", now, false)
	if err := v.refuse(node("b", metadata{life: 1, second: true}), now); !errors.Is(err, errDied) {
		t.Fatalf("the life that has ended: %v", err)
	}
	got := v.letters(now)
	if len(got) != 1 || got[0].to.Name != "b" || got[0].message.kind != kindReturned || got[0].message.life != 1 ||
		!got[0].message.counted || got[0].message.counter != 0 {
		t.Fatalf("letters are %+v", got)
	}
	if again := v.letters(now.Add(accuseEvery - 1)); len(again) != 0 {
		t.Errorf("told again too soon: %+v", again)
	}
	if again := v.letters(now.Add(accuseEvery)); len(again) != 1 {
		t.Errorf("not told again: %+v", again)
	}
	if err := v.refuse(node("b", metadata{life: 1, counter: 1, second: true}), now); err != nil {
		t.Errorf("the next life: %v", err)
	}
	if !v.join(node("b", metadata{life: 1, counter: 1, second: true})) {
		t.Error("it is not known as one that returned")
	}
	if got := v.letters(now.Add(time.Second)); len(got) != 0 {
		t.Errorf("told although it has begun another life: %+v", got)
	}
	v.leftOrLost("b", now, false)
	if err := v.refuse(node("b", metadata{life: 1, counter: 1, second: true}), now); !errors.Is(err, errDied) {
		t.Errorf("the second life after its end: %v", err)
	}
	if err := v.refuse(node("b", metadata{life: 2, second: true}), now); err != nil {
		t.Errorf("another process: %v", err)
	}
}

func TestAccusationsEndWithTime(t *testing.T) {
	now := time.Now()
	v := newView("a")
	for _, name := range []string{"b", "c"} {
		v.join(node(name, metadata{life: 1, second: true}))
	}
	v.leftOrLost("b", now, false)
	if err := v.refuse(node("b", metadata{life: 1, second: true}), now); err == nil {
		t.Fatal("it is let in")
	}
	if got := v.letters(now.Add(accuseFor + 1)); len(got) != 0 || len(v.accused) != 0 {
		t.Errorf("told %v, %d accused", got, len(v.accused))
	}
}

// TestMembersOfTheFirstReleaseAreNotShutOut: they cannot begin another life.
func TestMembersOfTheFirstReleaseAreNotShutOut(t *testing.T) {
	now := time.Now()
	v := newView("a")
	for _, name := range []string{"b", "c", "d"} {
		v.join(node(name, metadata{life: 1}))
	}
	v.leftOrLost("b", now, false)
	if err := v.refuse(node("b", metadata{life: 1}), now); err != nil {
		t.Errorf("refused: %v", err)
	}
}

func TestWhoWasCutOffDoesNotBlameTheOthers(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what   string
		lost   map[string]time.Duration // of b, c, d, e
		cutOff bool
		want   string // whose life has ended
	}{
		{"one of five", map[string]time.Duration{"b": 0}, false, "b"},
		{"two of five", map[string]time.Duration{"b": 0, "c": 100 * time.Millisecond}, false, "b c"},
		{"three of five", map[string]time.Duration{"b": 0, "c": 300 * time.Millisecond, "d": 600 * time.Millisecond}, false, ""},
		{"three of five, one after the other", map[string]time.Duration{"b": 0, "c": 2 * time.Second, "d": 4 * time.Second}, false, "b c d"},
		{"all within a moment", map[string]time.Duration{"b": 0, "c": 300 * time.Millisecond, "d": 600 * time.Millisecond, "e": 900 * time.Millisecond}, false, ""},
		{"one of five, while nothing is heard", map[string]time.Duration{"b": 0}, true, ""},
	} {
		v := newView("a")
		for _, name := range []string{"b", "c", "d", "e"} {
			v.join(node(name, metadata{life: 1, second: true}))
		}
		for _, name := range []string{"b", "c", "d", "e"} { // in the order of time
			if after, ok := c.lost[name]; ok {
				v.leftOrLost(name, now.Add(after), c.cutOff)
			}
		}
		got := ""
		for _, name := range []string{"b", "c", "d", "e"} {
			if v.refuse(node(name, metadata{life: 1, second: true}), now) != nil {
				got += " " + name
			}
		}
		if want := " " + c.want; got != want && (got != "" || c.want != "") {
			t.Errorf("%s: the lives of%s have ended, want%s", c.what, got, want)
		}
	}
}

// TestOnlyTheEndOfThisLifeBeginsAnother: several members tell of the same end,
// and an end that is over is none.
func TestOnlyTheEndOfThisLifeBeginsAnother(t *testing.T) {
	now := time.Now()
	v := newView("a")
	life := v.self.life
	tell := func(life, counter uint64) message {
		return message{kind: kindReturned, life: life, counted: true, counter: counter}
	}
	for i, step := range []struct {
		m       message
		news    bool
		counter uint64
	}{
		{tell(life+1, 0), false, 0},
		{tell(life, 0), true, 1},
		{tell(life, 0), false, 1},
		{message{kind: kindReturned, life: life}, false, 1}, // the same, by a member of the first release
		{tell(life, 1), true, 2},
		{tell(life, 7), true, 8},
	} {
		if got := v.wasGone(step.m, now); got != step.news {
			t.Errorf("step %d: news is %v", i, got)
		}
		if v.self.counter != step.counter {
			t.Errorf("step %d: counter is %d, want %d", i, v.self.counter, step.counter)
		}
	}
}

func TestFounders(t *testing.T) {
	established := metadata{life: 1, second: true, established: true}
	for _, c := range []struct {
		what   string
		events func(v *view)
		want   bool
	}{
		{"alone", func(*view) {}, true},
		{"with another that is new too", func(v *view) { v.join(node("b", metadata{life: 1, second: true})) }, true},
		{"with one that establishes itself later", func(v *view) {
			v.join(node("b", metadata{life: 1, second: true}))
			v.hear("b", metadata{life: 1, seq: 2, second: true, established: true})
		}, true},
		{"with one that was established before", func(v *view) { v.join(node("b", established)) }, false},
		{"with one that was, and has gone", func(v *view) {
			v.join(node("b", established))
			v.leftOrLost("b", time.Now(), false)
		}, false},
		{"with one that was lost for a moment and establishes itself meanwhile", func(v *view) {
			v.join(node("b", metadata{life: 1, second: true}))
			v.leftOrLost("b", time.Now(), false)
			v.join(node("b", metadata{life: 1, counter: 1, second: true, established: true}))
		}, true},
	} {
		v := newView("a")
		c.events(v)
		if got := v.founder(); got != c.want {
			t.Errorf("%s: founder is %v", c.what, got)
		}
	}
}

// TestStandingTravels: what a member says of itself arrives at the others.
func TestStandingTravels(t *testing.T) {
	c := newCluster(t)
	c.startAll("a", "b")
	s := State{
		Standing:    plan.Standing{Settling: true, Stale: true, NoAPI: true, Unfit: plan.DataPathDown},
		Established: true, Config: "0123456789ab",
	}
	c.live["a"].Publish(s)
	c.eventually(func() string {
		for name, r := range c.live {
			if m := r.Members.Members()[0]; m.Standing != s.Standing || m.Config != s.Config {
				return fmt.Sprintf("%s sees %+v", name, m)
			}
		}
		return ""
	})
	// Whoever comes may hear of it from b, so b's gossip must know it too.
	c.eventually(func() string {
		v := c.live["b"].view
		v.mu.Lock()
		defer v.mu.Unlock()
		if d, err := decodeMetadata(v.live["a"].node.Meta); err != nil || !d.established {
			return fmt.Sprintf("b has not heard it by gossip: %+v, %v", d, err)
		}
		return ""
	})
	c.start(c.options("c"))
	c.converge()
	c.eventually(func() string {
		if c.live["c"].Founder() {
			return "c takes itself for a founder"
		}
		return ""
	})
	for _, name := range []string{"a", "b"} {
		if !c.live[name].Founder() {
			t.Errorf("%s is no founder", name)
		}
	}
}

func TestIsolationIsNoticed(t *testing.T) {
	c := newCluster(t)
	c.detection = "fast"
	kicked := make(chan struct{}, 1)
	o := c.options("a")
	o.Kick = func() { signal(kicked) }
	a := c.start(o)
	if a.Isolated() {
		t.Error("alone from the beginning is no isolation")
	}
	c.startAll("b", "c")
	c.eventually(func() string {
		if a.Isolated() {
			return "isolated among others"
		}
		return ""
	})
	c.kill("b")
	c.kill("c")
	cut := time.Now()
	for len(kicked) > 0 {
		<-kicked
	}
	took := c.eventually(func() string {
		if !a.Isolated() {
			return "not isolated"
		}
		return ""
	})
	t.Logf("isolated %s after the others were gone", took)
	if early := time.Since(cut); early < quietAtLeast/2 {
		t.Errorf("isolated already after %s", early)
	}
	c.converge()
	if !a.Isolated() {
		t.Error("not isolated any more since the others are given up")
	}
	for len(kicked) > 0 {
		<-kicked
	}
	c.start(c.options("b"))
	c.converge()
	c.eventually(func() string {
		if a.Isolated() {
			return "still isolated"
		}
		return ""
	})
}

// TestB109WhoCannotBeUnderstoodIsNamed: who cannot be understood is said by name.
func TestB109WhoCannotBeUnderstoodIsNamed(t *testing.T) {
	v := newView("a")
	v.join(node("b", metadata{life: 1}))
	if got := v.nameAt(netip.MustParseAddr("192.0.2.1")); got != "b" {
		t.Errorf("at that address is %q", got)
	}
	if got := v.nameAt(netip.MustParseAddr("192.0.2.2")); got != "" {
		t.Errorf("at another address is %q", got)
	}
}
