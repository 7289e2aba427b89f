package source

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// inNamespace runs the calling test once more as the only test of a process in
// a network namespace of its own, and tells whether this is that process.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const marker = "CCM_TEST_IN_NETNS"
	if os.Getenv(marker) == t.Name() {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), marker+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.Process != nil && err != nil:
		t.Fatalf("in its own namespace: %v\n%s", err, out)
	case err != nil && os.Getenv("CCM_REQUIRE_NETNS") == "1":
		t.Fatalf("no network namespace of its own: %v", err)
	case err != nil:
		t.Skipf("no network namespace of its own: %v", err)
	default:
		t.Logf("%s", out)
	}
	return false
}

// kernel changes real links and watches Links follow.
type kernel struct {
	t       *testing.T
	links   *Links
	slowest time.Duration
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{t: t, links: NewLinks(func() {}, (&journal{}).logger())}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.links.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return k
}

func (k *kernel) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernel) link(name string) netlink.Link {
	k.t.Helper()
	l, err := netlink.LinkByName(name)
	k.must(err)
	return l
}

// veth adds a pair that is up.
func (k *kernel) veth(name, peer string) {
	k.t.Helper()
	a := netlink.NewLinkAttrs()
	a.Name = name
	k.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: peer}))
	k.must(netlink.LinkSetUp(k.link(peer)))
	k.must(netlink.LinkSetUp(k.link(name)))
}

func (k *kernel) address(name, address string) {
	k.t.Helper()
	a, err := netlink.ParseAddr(address)
	k.must(err)
	k.must(netlink.AddrAdd(k.link(name), a))
}

// shows waits until the link is described like that.
func (k *kernel) shows(name, want string) {
	k.t.Helper()
	began := time.Now()
	eventually(k.t, name, func() string {
		if got := k.describe(name); got != want {
			return fmt.Sprintf("is %q, want %q", got, want)
		}
		return ""
	})
	k.slowest = max(k.slowest, time.Since(began))
}

func (k *kernel) describe(name string) string {
	table, err := k.links.current()
	if err != nil {
		return err.Error()
	}
	if cause, ok := table.leftOut[name]; ok {
		return "left out: " + string(cause)
	}
	i := slices.IndexFunc(table.links, func(l link) bool { return l.Name == name })
	if i < 0 {
		return "absent"
	}
	l := table.links[i]
	words := []string{"down"}
	if l.Up {
		words[0] = "up"
	}
	for _, p := range l.Prefixes {
		words = append(words, p.String())
	}
	if l.Default {
		words = append(words, fmt.Sprint("default metric ", l.Metric))
	}
	return strings.Join(words, " ")
}

func TestB108LinksFollowTheKernel(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	k := newKernel(t)
	k.shows("lo", "left out: Loopback")
	k.shows("eth0", "absent")

	k.veth("eth0", "far0")
	k.shows("eth0", "up")
	k.address("eth0", "192.0.2.11/24")
	k.shows("eth0", "up 192.0.2.0/24")
	k.address("eth0", "2001:db8::11/64")
	k.shows("eth0", "up 192.0.2.0/24 2001:db8::/64")
	k.must(netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 0, 2, 1), LinkIndex: k.link("eth0").Attrs().Index, Priority: 100}))
	k.shows("eth0", "up 192.0.2.0/24 2001:db8::/64 default metric 0")

	// The far end goes away and comes back, which counts after a while.
	k.must(netlink.LinkSetDown(k.link("far0")))
	k.shows("eth0", "down 192.0.2.0/24 2001:db8::/64 default metric 0")
	slowest, back := k.slowest, time.Now()
	k.must(netlink.LinkSetUp(k.link("far0")))
	k.shows("eth0", "up 192.0.2.0/24 2001:db8::/64 default metric 0")
	if took := time.Since(back); took < linkReturn {
		t.Errorf("the link counted again after %s, want %s", took, linkReturn)
	}
	k.slowest = slowest

	// A link is renamed while it is up.
	k.must(netlink.LinkSetName(k.link("eth0"), "lan0"))
	k.shows("eth0", "absent")
	k.shows("lan0", "up 192.0.2.0/24 2001:db8::/64 default metric 0")

	// Another MAC, as after a fail-over inside a bond.
	k.must(netlink.LinkSetHardwareAddr(k.link("lan0"), net.HardwareAddr{2, 0, 0, 0, 0, 9}))
	eventually(t, "the MAC", func() string {
		table, _ := k.links.current()
		for _, l := range table.links {
			if l.Name == "lan0" && l.MAC == "02:00:00:00:00:09" {
				return ""
			}
		}
		return fmt.Sprint(table.links)
	})

	// Deleted, and made again under the same name with another index.
	before := k.link("lan0").Attrs().Index
	k.must(netlink.LinkDel(k.link("lan0")))
	k.shows("lan0", "absent")
	k.veth("lan0", "far0")
	k.shows("lan0", "up")
	table, _ := k.links.current()
	for _, l := range table.links {
		if l.Name == "lan0" && l.Index == before {
			t.Error("the index is the old one")
		}
	}
	t.Logf("the slowest change was seen after %s", k.slowest)
}

func TestB080LinksThatCarryNothingAreLeftOut(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	k := newKernel(t)
	k.veth("eth0", "far0")
	k.shows("eth0", "up")

	// A bridge port stands in for the member of a bond.
	a := netlink.NewLinkAttrs()
	a.Name = "br0"
	k.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a}))
	k.must(netlink.LinkSetUp(k.link("br0")))
	k.must(netlink.LinkSetMaster(k.link("eth0"), k.link("br0")))
	k.shows("eth0", "left out: Enslaved")
	k.address("br0", "192.0.2.11/24")
	k.shows("br0", "up 192.0.2.0/24")
	k.must(netlink.LinkSetNoMaster(k.link("eth0")))
	k.shows("eth0", "up")

	k.must(netlink.LinkSetARPOff(k.link("eth0")))
	k.shows("eth0", "left out: NoARP")
	k.must(netlink.LinkSetARPOn(k.link("eth0")))
	k.shows("eth0", "up")

	m := netlink.NewLinkAttrs()
	m.Name, m.ParentIndex = "mac0", k.link("eth0").Attrs().Index
	k.must(netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: m, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	k.must(netlink.LinkSetUp(k.link("mac0")))
	k.shows("mac0", "up")

	tun := netlink.NewLinkAttrs()
	tun.Name = "tunnel"
	if err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: tun, Mode: netlink.TUNTAP_MODE_TUN}); err != nil {
		t.Logf("no tun device here, its stand-in is in TestB092LinksThatAreLeftOut: %v", err)
		return
	}
	k.shows("tunnel", "left out: NotEthernet")
}

func TestB108FlappingLinkLeavesNothingBehind(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	k := newKernel(t)
	k.veth("eth0", "far0")
	k.address("eth0", "192.0.2.11/24")
	k.shows("eth0", "up 192.0.2.0/24")
	files := openFiles(t)
	for range 20 {
		k.must(netlink.LinkSetDown(k.link("eth0")))
		k.must(netlink.LinkSetUp(k.link("eth0")))
	}
	for i := range 20 {
		k.veth(fmt.Sprint("a", i), fmt.Sprint("b", i))
		k.must(netlink.LinkDel(k.link(fmt.Sprint("a", i))))
	}
	k.shows("eth0", "up 192.0.2.0/24")
	k.shows("a19", "absent")
	eventually(t, "open files", func() string {
		if now := openFiles(t); now > files {
			return fmt.Sprintf("%d, before %d", now, files)
		}
		return ""
	})
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
