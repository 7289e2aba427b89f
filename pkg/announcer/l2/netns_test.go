package l2

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// patience is how long a wire test waits for what must come. Only a test that
// fails waits that long.
const patience = 15 * time.Second

// needNamespaces skips a wire test where the right is missing, and fails it
// where that would hide a failure.
func needNamespaces(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CCM_REQUIRE_NETNS") == "1" {
		t.Fatal("CCM_REQUIRE_NETNS is 1, but only root can make network namespaces")
	}
	t.Skip("needs root to make network namespaces; CCM_REQUIRE_NETNS=1 makes this a failure")
}

// host is a network namespace without a name, and a thread that lives in it.
// Both end with the test.
type host struct {
	t    testing.TB
	name string
	ns   netns.NsHandle
	nl   *netlink.Handle
	jobs chan func()
}

func newHost(t testing.TB, name string) *host {
	t.Helper()
	needNamespaces(t)
	h := &host{t: t, name: name, jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		var err error
		if h.ns, err = netns.New(); err == nil {
			h.nl, err = netlink.NewHandle()
		}
		ready <- err
		for job := range h.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	t.Cleanup(func() {
		close(h.jobs)
		h.nl.Close()
		h.ns.Close()
	})
	h.sysctl("net/ipv6/conf/all/accept_dad", "0")
	h.sysctl("net/ipv6/conf/default/accept_dad", "0")
	h.up("lo")
	return h
}

// do runs f on the thread that lives in the namespace.
func (h *host) do(f func()) {
	done := make(chan struct{})
	h.jobs <- func() { defer close(done); f() }
	<-done
}

func (h *host) sysctl(key, value string) {
	h.t.Helper()
	var err error
	h.do(func() { err = os.WriteFile("/proc/sys/"+key, []byte(value), 0o644) })
	h.must(err)
}

// proc reads a file of the namespace below /proc/net.
func (h *host) proc(name string) string {
	h.t.Helper()
	var b []byte
	var err error
	h.do(func() { b, err = os.ReadFile("/proc/thread-self/net/" + name) })
	h.must(err)
	return string(b)
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v", h.name, err)
	}
}

func (h *host) byName(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	h.must(err)
	return l
}

func (h *host) up(name string)   { h.t.Helper(); h.must(h.nl.LinkSetUp(h.byName(name))) }
func (h *host) down(name string) { h.t.Helper(); h.must(h.nl.LinkSetDown(h.byName(name))) }

// address gives a link an address with its prefix length.
func (h *host) address(link, cidr string) {
	h.t.Helper()
	a, err := netlink.ParseAddr(cidr)
	h.must(err)
	a.Flags = unix.IFA_F_NODAD
	h.must(h.nl.AddrReplace(h.byName(link), a))
}

// link describes a link as the source of a real announcer would.
func (h *host) link(name string) plan.Link {
	h.t.Helper()
	a := h.byName(name).Attrs()
	return plan.Link{
		Name: a.Name, Index: a.Index, MAC: a.HardwareAddr.String(),
		Up: a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown,
	}
}

func (h *host) mac(name string) mac {
	h.t.Helper()
	return mac(h.byName(name).Attrs().HardwareAddr)
}

// cable connects two hosts.
func cable(a *host, aLink string, b *host, bLink string) {
	a.t.Helper()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aLink}, PeerName: bLink, PeerNamespace: netlink.NsFd(b.ns),
	}
	a.must(a.nl.LinkAdd(veth))
	a.up(aLink)
	b.up(bLink)
	// The carrier comes a moment after the second end is up.
	a.eventually("carrier", func() bool { return a.link(aLink).Up && b.link(bLink).Up })
}

// lan is a switch that hosts are plugged into.
type lan struct{ *host }

func newLAN(t testing.TB) lan {
	t.Helper()
	sw := lan{newHost(t, "switch")}
	sw.must(sw.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}))
	sw.up("br")
	return sw
}

// plug connects a host by a new link.
func (sw lan) plug(h *host, link string) {
	sw.t.Helper()
	port := h.name + "-" + link
	cable(h, link, sw.host, port)
	sw.must(sw.nl.LinkSetMaster(sw.byName(port), sw.byName("br")))
	sw.eventually("forwarding", func() bool {
		p, err := sw.nl.LinkByName(port)
		return err == nil && p.Attrs().OperState == netlink.OperUp
	})
}

// eventually waits for a condition.
func (h *host) eventually(what string, cond func() bool) {
	h.t.Helper()
	eventually(h.t, h.name+": "+what, cond)
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain for: %s", patience, what)
		}
	}
}

// packet opens a real socket in the namespace.
func (h *host) packet(l plan.Link, etherType int, f []bpf.RawInstruction) (c conn, err error) {
	h.do(func() { c, err = systemSockets{}.packet(l, etherType, f) })
	return c, err
}

// counter opens a real one in the namespace.
func (h *host) counter(l plan.Link, etherType int, f []bpf.RawInstruction) (c counter, err error) {
	h.do(func() { c, err = systemSockets{}.counter(l, etherType, f) })
	return c, err
}

// reporter opens a real one in the namespace.
func (h *host) reporter(l plan.Link) (r reporter, err error) {
	h.do(func() { r, err = systemSockets{}.reporter(l) })
	return r, err
}

// speaker starts a speaker on the host.
func (h *host) speaker() *Speaker {
	s := New(Options{Log: slog.New(slog.NewTextHandler(testLog{h}, nil)), sockets: h})
	h.t.Cleanup(s.Close)
	return s
}

// testLog writes to the test's own log.
type testLog struct{ h *host }

func (l testLog) Write(b []byte) (int, error) {
	l.h.t.Logf("%s: %s", l.h.name, bytes.TrimSpace(b))
	return len(b), nil
}

func set(t testing.TB, s *Speaker, want ...plan.Announcement) {
	t.Helper()
	if err := s.Set(t.Context(), want); err != nil {
		t.Fatalf("Set: %v", err)
	}
}

// packetSockets counts the packet sockets in the namespace.
func (h *host) packetSockets() int {
	return strings.Count(h.proc("packet"), "\n") - 1 // the first line is a heading
}
