package membership

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// memberEnv makes this test binary a member in the namespace that it was
// started in, instead of running tests. It holds a memberSpec.
const memberEnv = "CCM_MEMBERSHIP_TEST_MEMBER"

// memberSpec is what a member that is a process of its own is given.
type memberSpec struct {
	Name      string
	Peers     map[string]netip.Addr
	Detection config.Detection
	DeadFor   time.Duration // GossipToTheDeadTime, if not 0
}

// report is a line that such a member prints whenever its view changes.
type report struct {
	Members []string
	Returns int
	Deaths  int // of its own
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(memberEnv); spec != "" {
		if err := beMember(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beMember is a member until standard input ends, which also happens when the
// test dies. It then goes as a crash would.
func beMember(spec string) error {
	var s memberSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	kicked := make(chan struct{}, 1)
	deaths := &atomic.Int64{}
	o := Options{
		Name: s.Name, Address: s.Peers[s.Name], Port: 7956, Label: "test", Keys: [][]byte{[]byte("a secret")},
		Detection: s.Detection, Kick: func() { signal(kicked) }, Died: func() { deaths.Add(1) },
		Peers: func() (map[string]netip.Addr, error) { return s.Peers, nil },
	}
	c, err := settings(o)
	if err != nil {
		return err
	}
	if s.DeadFor > 0 {
		c.GossipToTheDeadTime = s.DeadFor
	}
	m, err := create(o, c)
	if err != nil {
		return err
	}
	m.Publish(State{Links: exampleLinks()})
	ended := make(chan error, 3)
	go func() { ended <- m.Run(context.Background()) }()
	go func() { ended <- m.reportTo(os.Stdout, kicked, deaths) }()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	return <-ended
}

// reportTo prints a report after each kick.
func (m *Members) reportTo(w io.Writer, kicked chan struct{}, deaths *atomic.Int64) error {
	out := json.NewEncoder(w)
	for range kicked {
		r := report{Returns: m.Returns(), Deaths: int(deaths.Load())}
		for _, member := range m.Members() {
			r.Members = append(r.Members, member.Name)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// lan is hosts in namespaces of their own behind two switches, left and right.
// Nothing of it has a name outside this process, so nothing is left behind.
type lan struct {
	t        *testing.T
	switches *netlink.Handle // in the namespace that holds both
	space    netns.NsHandle
	members  map[string]*process
	peers    map[string]netip.Addr
}

// process is a member in its own namespace.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer

	mu   sync.Mutex
	last report
	done chan struct{} // closed when its output has ended
}

func (p *process) report() report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// newLAN makes the switches and the cable between them.
func newLAN(t *testing.T) *lan {
	t.Helper()
	if os.Geteuid() != 0 {
		refuse(t, "network namespaces need root")
	}
	l := &lan{t: t, members: map[string]*process{}, peers: map[string]netip.Addr{}}
	l.space = newSpace(t)
	l.switches = handle(t, l.space)
	t.Cleanup(l.stop)
	for _, side := range []string{"left", "right"} {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: side}}
		if err := l.switches.LinkAdd(bridge); err != nil {
			refuse(t, "no bridge: "+err.Error())
		}
		l.up(side)
	}
	if err := l.switches.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cable-left"}, PeerName: "cable-right"}); err != nil {
		refuse(t, "no veth: "+err.Error())
	}
	l.plug("cable-left", "left")
	l.plug("cable-right", "right")
	return l
}

// refuse skips the test, or fails it where the right to run it is a must.
func refuse(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CCM_REQUIRE_NETNS") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// newSpace makes a network namespace without a name.
func newSpace(t *testing.T) netns.NsHandle {
	t.Helper()
	type result struct {
		space netns.NsHandle
		err   error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		space, err := netns.New()
		made <- result{space, err}
	}()
	r := <-made
	if r.err != nil {
		refuse(t, "no network namespace: "+r.err.Error())
	}
	t.Cleanup(func() {
		if err := r.space.Close(); err != nil {
			t.Error(err)
		}
	})
	return r.space
}

func handle(t *testing.T, space netns.NsHandle) *netlink.Handle {
	t.Helper()
	h, err := netlink.NewHandleAt(space)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// must ends the test if an error stands in its way.
func (l *lan) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lan) link(name string) netlink.Link {
	l.t.Helper()
	link, err := l.switches.LinkByName(name)
	l.must(err)
	return link
}

func (l *lan) up(name string)   { l.t.Helper(); l.must(l.switches.LinkSetUp(l.link(name))) }
func (l *lan) down(name string) { l.t.Helper(); l.must(l.switches.LinkSetDown(l.link(name))) }

// plug connects a port to a switch.
func (l *lan) plug(port, side string) {
	l.t.Helper()
	l.must(l.switches.LinkSetMaster(l.link(port), l.link(side)))
	l.up(port)
}

// host adds a host to a side and starts a member on it.
func (l *lan) host(side string, s memberSpec) {
	l.t.Helper()
	space := newSpace(l.t)
	h := handle(l.t, space)
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: s.Name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(space),
	}
	l.must(l.switches.LinkAdd(veth))
	l.plug(s.Name, side)
	eth0, err := h.LinkByName("eth0")
	l.must(err)
	address := s.Peers[s.Name]
	bits := 24
	if address.Is6() {
		bits = 64
	}
	a, err := netlink.ParseAddr(netip.PrefixFrom(address, bits).String())
	l.must(err)
	a.Flags = 0x02 // IFA_F_NODAD: usable at once
	l.must(h.AddrAdd(eth0, a))
	l.must(h.LinkSetUp(eth0))
	l.start(space, s)
}

// start starts a member in a namespace.
func (l *lan) start(space netns.NsHandle, s memberSpec) {
	l.t.Helper()
	spec, err := json.Marshal(s)
	l.must(err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), memberEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	l.must(err)
	stdout, err := cmd.StdoutPipe()
	l.must(err)
	l.must(startIn(space, cmd))
	p := &process{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	l.members[s.Name] = p
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				p.mu.Lock()
				p.last = r
				p.mu.Unlock()
			}
		}
	}()
}

// startIn starts a command in a namespace: a child gets that of the thread.
func startIn(space netns.NsHandle, cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		if err := netns.Set(space); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	}()
	return <-started
}

// stop ends all members.
func (l *lan) stop() {
	for _, p := range l.members {
		if err := p.stdin.Close(); err != nil {
			l.t.Errorf("stop member: %v", err)
		}
	}
	for name, p := range l.members {
		<-p.done
		if err := p.cmd.Wait(); err != nil {
			l.t.Errorf("member %s: %v", name, err)
		}
	}
	clear(l.members)
}

// see waits until each of the named members sees exactly those, and returns
// how long it took.
func (l *lan) see(viewers, want []string) time.Duration {
	l.t.Helper()
	return eventually(l.t, func() string {
		for _, name := range viewers {
			if got := l.members[name].report().Members; !slices.Equal(got, want) {
				return fmt.Sprintf("%s sees %v, want %v", name, got, want)
			}
		}
		return ""
	})
}

// spread gives names addresses.
func spread(format string, names ...string) map[string]netip.Addr {
	peers := map[string]netip.Addr{}
	for i, name := range names {
		peers[name] = netip.MustParseAddr(fmt.Sprintf(format, i+1))
	}
	return peers
}

// TestPartitionHeals: memberlist does not reconnect the halves of a partition
// by itself once they have forgotten each other.
func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	left, right := []string{"a", "b", "c"}, []string{"d", "e"}
	all := slices.Concat(left, right)
	for _, c := range []struct {
		what    string
		deadFor time.Duration
	}{
		{"short, each half remembers the other as dead", 0},
		{"long, each half has forgotten the other", 500 * time.Millisecond},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t)
			peers := spread("192.0.2.%d", "a", "b", "c", "d", "e", "off1", "off2")
			for i, name := range all {
				side := "left"
				if i >= len(left) {
					side = "right"
				}
				l.host(side, memberSpec{Name: name, Peers: peers, Detection: config.Fast, DeadFor: c.deadFor})
			}
			l.see(all, all)

			l.down("cable-left")
			cut := max(l.see(left, left), l.see(right, right))
			time.Sleep(2 * time.Second) // rejoining goes on in vain
			before := map[string]int{}
			for name, p := range l.members {
				before[name] = p.report().Returns
			}

			l.up("cable-left")
			healed := l.see(all, all)
			hold(t, "each half alone", time.Second, cut)
			hold(t, "one view after healing", 3*time.Second, healed)
			for i, name := range all {
				back := len(right)
				if i >= len(left) {
					back = len(left)
				}
				if n := l.members[name].report().Returns - before[name]; n < back {
					t.Errorf("%s counts %d returns, want at least %d", name, n, back)
				}
			}
		})
	}
}

// TestWhoWasOnlyStalledLearnsThatItReturned: a process that was frozen never
// notices by itself that others have taken over meanwhile.
func TestWhoWasOnlyStalledLearnsThatItReturned(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	all := []string{"a", "b", "c"}
	for _, name := range all {
		l.host("left", memberSpec{Name: name, Peers: spread("192.0.2.%d", all...), Detection: config.Fast})
	}
	l.see(all, all)
	before := l.members["c"].report().Returns
	l.must(l.members["c"].cmd.Process.Signal(syscall.SIGSTOP))
	l.see(all[:2], all[:2])
	l.must(l.members["c"].cmd.Process.Signal(syscall.SIGCONT))
	l.see(all, all)
	took := eventually(t, func() string {
		for _, name := range []string{"a", "c"} {
			if n := l.members[name].report().Returns; n <= before {
				return fmt.Sprintf("%s counts %d returns", name, n)
			}
		}
		return ""
	})
	t.Logf("known to itself %s after all were one again", took)
}

// TestEachPresetDetectsACut measures how long each preset takes until the last
// of four others knows that a cable is pulled: unlike on loopback, nothing
// answers that a port is closed.
func TestEachPresetDetectsACut(t *testing.T) {
	for _, c := range []struct {
		preset config.Detection
		want   time.Duration // of the median, on a machine at rest
	}{
		{config.Rapid, 600 * time.Millisecond},
		{config.Fast, time.Second},
		{config.LAN, 6 * time.Second},
		{config.WAN, 45 * time.Second},
	} {
		t.Run(string(c.preset), func(t *testing.T) {
			if c.preset == config.WAN && !soak() {
				return // it takes minutes
			}
			measureCuts(t, c.preset, c.want)
		})
	}
}

func measureCuts(t *testing.T, preset config.Detection, want time.Duration) {
	l := newLAN(t)
	all := []string{"a", "b", "c", "d", "e"}
	for _, name := range all {
		l.host("left", memberSpec{Name: name, Peers: spread("192.0.2.%d", all...), Detection: preset})
	}
	l.see(all, all)
	victims := all[:2]
	if soak() {
		victims = slices.Concat(all, all)
	}
	var detected, healed []time.Duration
	for _, victim := range victims {
		rest := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == victim })
		l.down(victim)
		detected = append(detected, l.see(rest, rest))
		l.see([]string{victim}, []string{victim})
		l.up(victim)
		healed = append(healed, l.see(all, all))
	}
	hold(t, string(preset)+", cut off: known to the last of four", want, detected...)
	hold(t, string(preset)+", back in all views", 3*time.Second+want, healed...)
}

// TestWhoWasCutOffBeginsAnotherLife: who was cut off begins another life when it is back, and
// the others, of which most were together, do not.
func TestWhoWasCutOffBeginsAnotherLife(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	all := []string{"a", "b", "c", "d", "e"}
	for _, name := range all {
		l.host("left", memberSpec{Name: name, Peers: spread("192.0.2.%d", all...), Detection: config.LAN}) // no stall of this machine is a death
	}
	l.see(all, all)
	before := map[string]int{}
	for _, name := range all {
		before[name] = l.members[name].report().Deaths
	}
	l.down("c")
	l.see([]string{"a", "b", "d", "e"}, []string{"a", "b", "d", "e"})
	l.see([]string{"c"}, []string{"c"})
	l.up("c")
	l.see(all, all)
	deaths := func(name string) int { return l.members[name].report().Deaths - before[name] }
	eventually(t, func() string {
		if n := deaths("c"); n != 1 {
			return fmt.Sprintf("c knows of %d deaths of its own, want 1", n)
		}
		return ""
	})
	for _, name := range []string{"a", "b", "d", "e"} {
		if n := deaths(name); n != 0 {
			t.Errorf("%s was told %d times that it had died", name, n)
		}
	}
}

// TestB113IPv6OnlyMembersFindEachOther: an address with colons is no host name.
func TestB113IPv6OnlyMembersFindEachOther(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	all := []string{"a", "b", "c"}
	for _, name := range all {
		l.host("left", memberSpec{Name: name, Peers: spread("2001:db8:51::%d", all...), Detection: config.LAN})
	}
	t.Logf("one view after %s", l.see(all, all))
}
