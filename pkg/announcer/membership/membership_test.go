package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/memberlist"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

func TestOptionsAreChecked(t *testing.T) {
	_, err := New(Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"name", "address", "port", "label", "peers"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not speak of %s", err, want)
		}
	}
	c := newCluster(t)
	o := c.options("a")
	o.Detection = "slow"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), `unknown detection "slow"`) {
		t.Errorf("unknown detection: %v", err)
	}
	for want, secrets := range map[string][][]byte{
		"key is empty":                         {[]byte("a"), {}},
		"there are 0 gossip keys, want 1 to 8": {},
		"there are 9 gossip keys, want 1 to 8": make([][]byte, 9),
	} {
		o := c.options("a")
		o.Keys = secrets
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestEachDetectionHasSettings(t *testing.T) {
	o := newCluster(t).options("a")
	for _, d := range []config.Detection{config.Rapid, config.Fast, config.LAN, config.WAN} {
		o.Detection = d
		s, err := settings(o)
		if err != nil {
			t.Errorf("%s: %v", d, err)
		}
		if s.ProbeTimeout >= s.ProbeInterval || s.GossipInterval > s.ProbeInterval {
			t.Errorf("%s: probe %s within %s, gossip every %s", d, s.ProbeTimeout, s.ProbeInterval, s.GossipInterval)
		}
	}
}

func TestPortInUseIsAnErrorThatNamesIt(t *testing.T) {
	c := newCluster(t)
	o := c.options("a")
	l, err := net.Listen("tcp", netip.AddrPortFrom(o.Address, uint16(o.Port)).String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error is %v, want one that names %s", err, l.Addr())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestFiveMembersFindEachOther(t *testing.T) {
	noLeak(t)
	c := newCluster(t)
	c.know("off1", "off2")
	c.startAll("a", "b", "c", "d", "e")
	for name, r := range c.live {
		if s := r.Stats(); s.Members != 5 || s.Garbled != 0 || s.Rejected != 0 {
			t.Errorf("stats of %s are %+v", name, s)
		}
	}
	for _, name := range c.names() {
		c.leave(name)
	}
}

func TestFirstMetadataOfAProcessSaysPassive(t *testing.T) {
	c := newCluster(t)
	var mu sync.Mutex
	var seen []string
	o := c.options("a")
	var a *running
	kicked := make(chan struct{}, 1)
	o.Kick = func() { signal(kicked) }
	a = c.start(o)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range kicked {
			for _, m := range a.Members.Members() {
				mu.Lock()
				if s := fmt.Sprintf("%s passive=%v", m.Name, m.Passive); m.Name == "b" && (len(seen) == 0 || seen[len(seen)-1] != s) {
					seen = append(seen, s)
				}
				mu.Unlock()
			}
		}
	}()
	a.Publish(State{})
	c.start(c.options("b"))
	c.converge()
	c.live["b"].Publish(State{})
	c.eventually(func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(seen) < 2 {
			return fmt.Sprintf("saw %v", seen)
		}
		return ""
	})
	c.kill("a")
	close(kicked)
	<-done
	if got := strings.Join(seen, ", "); got != "b passive=true, b passive=false" {
		t.Errorf("saw %s", got)
	}
}

// TestDeathIsDetected measures the default detection time over several deaths.
func TestDeathIsDetected(t *testing.T) {
	c := newCluster(t)
	c.detection = config.Fast
	c.startAll("a", "b", "c", "d", "e")
	var times []time.Duration
	for i := range 4 {
		victim := c.names()[i%5]
		c.kill(victim)
		times = append(times, c.converge())
		c.start(c.options(victim))
		c.converge()
	}
	hold(t, "fast, until the last of four survivors knew", time.Second, times...)
}

// TestARestartIsNoReturn: only who is the same process as before returns.
func TestARestartIsNoReturn(t *testing.T) {
	c := newCluster(t)
	c.detection = config.WAN
	c.startAll("a", "b", "c")
	c.leave("b")
	c.converge()
	c.start(c.options("b"))
	c.converge()
	c.kill("c")
	c.start(c.options("c"))
	c.converge()
	for name, r := range c.live {
		if n := r.Returns(); n != 0 {
			t.Errorf("%s counts %d returns", name, n)
		}
	}
}

// TestSimultaneousUpdatesArriveEverywhere: memberlist loses updates that are
// queued at the same time, until the next full exchange. There is none here:
// published once and all of one length, they are lost in every second round, and
// what is lost never comes. So that each of 380 updates arrives is what this
// judges in every run; within what time, see hold.
func TestSimultaneousUpdatesArriveEverywhere(t *testing.T) {
	c := newCluster(t)
	c.detection = config.WAN
	c.know(numbered(20)...)
	for _, name := range numbered(20) {
		o := c.options(name)
		s, err := settings(o)
		if err != nil {
			t.Fatal(err)
		}
		s.PushPullInterval = 0
		s.GossipInterval = 100 * time.Millisecond
		m, err := create(o, s)
		if err != nil {
			t.Fatal(err)
		}
		c.run(m)
	}
	c.converge()
	var times []time.Duration
	rounds := 5
	if soak() {
		rounds = 100
	}
	for round := range rounds {
		passive := round%2 == 1
		for _, r := range c.live {
			r.Publish(State{Passive: passive})
		}
		times = append(times, eventuallyEvery(t, 50*time.Millisecond, func() string {
			for name, r := range c.live {
				for _, m := range r.Members.Members() {
					if m.Passive != passive {
						return fmt.Sprintf("round %d: %s sees %s with passive=%v", round, name, m.Name, m.Passive)
					}
				}
			}
			return ""
		}))
	}
	hold(t, "20 updates at once in all 20 views", time.Second, times...)
}

// TestFiftyMembersFindEachOther: they start at once, as after a power failure,
// and all in one process, which makes it hard for them.
func TestFiftyMembersFindEachOther(t *testing.T) {
	c := newCluster(t)
	c.detection = config.WAN
	begin := time.Now()
	c.startAll(numbered(50)...)
	t.Logf("50 members see each other after %s", time.Since(begin))
}

func TestDrainingIsKnownAtOnce(t *testing.T) {
	noLeak(t)
	c := newCluster(t)
	c.detection = config.WAN
	c.startAll(numbered(6)...)
	for _, r := range c.live {
		r.Publish(State{})
	}
	drained := func(name string, want bool) func() string {
		return func() string {
			for at, r := range c.live {
				for _, m := range r.Members.Members() {
					if m.Name == name && (m.Passive || m.Draining != want) {
						return fmt.Sprintf("%s sees %+v", at, m)
					}
				}
			}
			return ""
		}
	}
	var times []time.Duration
	for _, name := range c.names()[:4] {
		c.eventually(drained(name, false))
		// The announcer's Run has ended by then.
		c.live[name].cancel()
		<-c.live[name].done
		c.live[name].Publish(State{Draining: true})
		times = append(times, c.eventually(drained(name, true)))
	}
	hold(t, "draining known to all of 6", 200*time.Millisecond, times...)
	for _, name := range c.names() {
		c.leave(name)
	}
}

func TestLeaveIsSeenAsLeaveAtOnce(t *testing.T) {
	noLeak(t)
	c := newCluster(t)
	c.detection = config.WAN
	var log wire.Log
	o := c.options("a")
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	c.start(o)
	c.startAll("b", "c", "d", "e")
	var times []time.Duration
	for _, name := range []string{"b", "c", "d", "e"} {
		done := make(chan struct{})
		r := c.live[name]
		delete(c.live, name)
		go func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := r.Leave(ctx); err != nil {
				t.Errorf("leave: %v", err)
			}
		}()
		times = append(times, c.converge())
		<-done
		r.cancel()
		<-r.done
	}
	hold(t, "departure known to all", 200*time.Millisecond, times...)
	c.eventually(func() string {
		text := log.String()
		if strings.Contains(text, "member lost") || strings.Count(text, "member left") != 4 {
			return text
		}
		return ""
	})
	c.leave("a")
}

func TestLeaveTwiceWithoutRun(t *testing.T) {
	noLeak(t)
	c := newCluster(t)
	m, err := New(c.options("a"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Leave(context.Background()); err != nil {
			t.Error(err)
		}
	}
	m.Publish(State{Draining: true})
	if err := m.Run(context.Background()); err != nil {
		t.Errorf("run after leave: %v", err)
	}
	again, err := New(c.options("a"))
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	if err := again.Leave(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestLeaveEndsWithItsContext(t *testing.T) {
	noLeak(t)
	c := newCluster(t)
	c.startAll("a", "b")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := c.live["b"]
	delete(c.live, "b")
	b.cancel()
	<-b.done
	if err := b.Leave(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("leave: %v, want that it was cancelled", err)
	}
	c.converge()
	c.leave("a")
}

func TestLinksReachEverybody(t *testing.T) {
	c := newCluster(t)
	c.startAll("a", "b", "c")
	links := exampleLinks()
	sees := func(of string, want []plan.Link) func() string {
		return func() string {
			for name, r := range c.live {
				for _, m := range r.Members.Members() {
					if m.Name != of {
						continue
					}
					if d := cmp.Diff(want, m.Links, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
						return name + " sees of " + of + ":\n" + d
					}
				}
			}
			return ""
		}
	}
	c.eventually(sees("a", nil))
	c.live["a"].Publish(State{Links: links})
	told := c.eventually(sees("a", links))

	links = append([]plan.Link(nil), links...)
	links[0].Up = false
	c.live["a"].Publish(State{Links: links})
	changed := c.eventually(sees("a", links))

	// More than a packet holds.
	var many []plan.Link
	for i := range 60 {
		many = append(many, plan.Link{Name: fmt.Sprintf("eth%d", i), Index: i + 1, MAC: "02:00:00:00:00:01", Prefixes: links[0].Prefixes})
	}
	c.live["b"].Publish(State{Links: many})
	large := c.eventually(sees("b", many))

	c.start(c.options("d"))
	c.converge()
	newcomer := c.eventually(sees("a", links)) + c.eventually(sees("b", many))

	c.kill("a")
	c.start(c.options("a"))
	c.eventually(sees("a", nil)) // the new process has told nothing yet
	c.live["a"].Publish(State{Links: exampleLinks()})
	restarted := c.eventually(sees("a", exampleLinks()))
	hold(t, "links known to all", time.Second, told)
	hold(t, "changed links", time.Second, changed)
	hold(t, "60 links", time.Second, large)
	hold(t, "to a newcomer", time.Second, newcomer)
	hold(t, "after a restart", time.Second, restarted)
}

// TestLostLinksAreAskedFor: neither the message on change nor the full
// exchange arrives, only the gossip that says there is something new.
func TestLostLinksAreAskedFor(t *testing.T) {
	c := newCluster(t)
	c.startAll("a", "b")
	a, b := c.live["a"], c.live["b"]
	a.view.publish(State{Links: exampleLinks()}) // nobody is told
	a.update()
	c.eventually(func() string {
		if m := b.view.members()[0]; len(m.Links) != 2 {
			return fmt.Sprintf("b sees %+v", m)
		}
		return ""
	})
}

func TestStrangersAreRefused(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Options)
	}{
		{"another key", func(o *Options) { o.Keys = [][]byte{[]byte("another secret")} }},
		{"no key", func(o *Options) { o.Keys = nil }},
		{"another cluster", func(o *Options) { o.Label = "another" }},
	} {
		t.Run(c.what, func(t *testing.T) {
			cluster := newCluster(t)
			cluster.startAll("a", "b")
			o := cluster.options("stranger")
			c.change(&o)
			stranger := cluster.start(o)
			a := cluster.live["a"]
			for _, to := range []string{"a", "b"} {
				address := netip.AddrPortFrom(cluster.peers[to], uint16(o.Port)).String()
				if _, err := stranger.list.Join([]string{address}); err == nil {
					t.Errorf("%s lets the stranger in", to)
				}
			}
			cluster.eventually(func() string {
				if n := a.Stats().Rejected; n < 2 {
					return fmt.Sprintf("%d rejections, want those of a ping and of a connection", n)
				}
				return ""
			})
			if a.view.has("stranger") || cluster.live["b"].view.has("stranger") {
				t.Error("the stranger is a member")
			}
			if got := names(stranger.Members.Members()); got != "stranger" {
				t.Errorf("the stranger sees %s", got)
			}
		})
	}
}

func TestClearTextWorksWhereWanted(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b"} {
		o := c.options(name)
		o.Keys = nil
		c.start(o)
	}
	c.converge()
}

// TestForeignSpeakersOfTheProtocolAreNoMembers: with our key and label, but
// without metadata that we can read.
func TestForeignSpeakersOfTheProtocolAreNoMembers(t *testing.T) {
	c := newCluster(t)
	c.startAll("a", "b")
	o := c.options("foreign")
	s, err := settings(o)
	if err != nil {
		t.Fatal(err)
	}
	s.LogOutput = &wire.Log{}
	keys, err := newKeys(o.Keys)
	if err != nil {
		t.Fatal(err)
	}
	s.Keyring = keys.ring
	foreign, err := memberlist.Create(s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := foreign.Shutdown(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := foreign.Join([]string{netip.AddrPortFrom(c.peers["a"], uint16(o.Port)).String()}); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() string {
		if c.live["a"].Stats().Garbled == 0 {
			return "nothing garbled is counted"
		}
		return ""
	})
	if got := names(c.live["a"].Members.Members()); got != "a b" {
		t.Errorf("members are %s", got)
	}
}

// TestAnAddressMayChange: a Node comes back with another address, and its peers
// learn of it by the Node list only.
func TestAnAddressMayChange(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.detection = config.Fast
	c.startAll("a", "b", "c")
	c.kill("c")
	c.mu.Lock()
	c.peers["c"] = netip.MustParseAddr("127.0.77.200")
	c.mu.Unlock()
	c.start(c.options("c"))
	took := c.eventually(func() string {
		for _, name := range []string{"a", "b"} {
			for _, n := range c.live[name].view.nodes() {
				if n.Name == "c" && n.Addr.String() == "127.0.77.200" {
					return ""
				}
			}
		}
		return "c is not at its new address"
	})
	c.converge()
	t.Logf("back with another address after %s", took)
}

func TestPeersThatAreNotKnownChangeNothing(t *testing.T) {
	c := newCluster(t)
	c.startAll("a", "b")
	var log wire.Log
	o := c.options("c")
	peers, known := o.Peers, make(chan struct{})
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	o.Peers = func() (map[string]netip.Addr, error) {
		select {
		case <-known:
			return peers()
		default:
			return nil, errors.New("nodes have not synced")
		}
	}
	c.start(o)
	time.Sleep(meetEvery + meetEvery/2)
	close(known)
	c.converge()
	if n := strings.Count(log.String(), "peers are not known"); n != 1 {
		t.Errorf("logged %d times that peers are not known, want once:\n%s", n, log.String())
	}
}
