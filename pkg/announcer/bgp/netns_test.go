package bgp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
)

// patience is how long a wire test waits for what must come. Only a test that
// fails waits that long.
const patience = time.Minute

// need skips a wire test where a right or a program is missing, and fails it
// where that would hide a failure.
func need(t testing.TB, programs ...string) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root, to make network namespaces"
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = p + " (scripts/need installs it)"
		}
	}
	switch {
	case missing == "":
	case os.Getenv("CCM_REQUIRE_NETNS") == "1":
		t.Fatalf("CCM_REQUIRE_NETNS is 1, and this is missing: %s", missing)
	default:
		t.Skipf("needs %s; CCM_REQUIRE_NETNS=1 makes this a failure", missing)
	}
}

// host is a network namespace without a name, and a thread that lives in it.
// Both end with the test, and so do its processes.
type host struct {
	t    testing.TB
	name string
	ns   netns.NsHandle
	nl   *netlink.Handle
	jobs chan func()
}

func newHost(t testing.TB, name string) *host {
	t.Helper()
	need(t)
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
	h.must(<-ready)
	t.Cleanup(func() {
		close(h.jobs)
		h.nl.Close()
		h.ns.Close()
	})
	for _, key := range []string{"all", "default"} {
		h.sysctl("net/ipv6/conf/"+key+"/accept_dad", "0")
	}
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

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v", h.name, err)
	}
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	h.must(err)
	return l
}

func (h *host) up(name string) { h.t.Helper(); h.must(h.nl.LinkSetUp(h.link(name))) }

// address gives a link an address with its prefix length.
func (h *host) address(link, cidr string) {
	h.t.Helper()
	a, err := netlink.ParseAddr(cidr)
	h.must(err)
	a.Flags = unix.IFA_F_NODAD
	h.must(h.nl.AddrReplace(h.link(link), a))
}

// lan is a router with a bridge, and nodes on it.
type lan struct {
	router *host
	nodes  []*host
}

// newLAN makes a router r1 with br0, 192.0.2.1/24 and 2001:db8::1/64, and nodes
// with eth0, 192.0.2.11/24 and 2001:db8::11/64 and so on.
func newLAN(t testing.TB, nodes int) *lan {
	t.Helper()
	l := &lan{router: newHost(t, "r1")}
	l.router.must(l.router.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	l.router.up("br0")
	l.router.address("br0", "192.0.2.1/24")
	l.router.address("br0", "2001:db8::1/64")
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		n := newHost(t, name)
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0", Namespace: netlink.NsFd(n.ns)},
			PeerName:  name, PeerNamespace: netlink.NsFd(l.router.ns),
		}
		l.router.must(l.router.nl.LinkAdd(veth))
		l.router.must(l.router.nl.LinkSetMaster(l.router.link(name), l.router.link("br0")))
		l.router.up(name)
		n.up("eth0")
		n.address("eth0", fmt.Sprintf("192.0.2.%d/24", 11+i))
		n.address("eth0", fmt.Sprintf("2001:db8::%d/64", 11+i))
		l.nodes = append(l.nodes, n)
	}
	return l
}

// command prepares a program that runs in the namespace.
func (h *host) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with the thread of the namespace
	return cmd
}

// start runs a program until the test ends.
func (h *host) start(name string, args ...string) *exec.Cmd {
	h.t.Helper()
	cmd := h.command(name, args...)
	log := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	var err error
	h.do(func() { err = cmd.Start() })
	h.must(err)
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	h.t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if h.t.Failed() {
			h.t.Logf("%s %s:\n%s", h.name, filepath.Base(name), log.String())
		}
	})
	return cmd
}

// output runs a program to its end.
func (h *host) output(name string, args ...string) (string, error) {
	cmd := h.command(name, args...)
	var out []byte
	var err error
	h.do(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (h *host) run(name string, args ...string) string {
	h.t.Helper()
	out, err := h.output(name, args...)
	h.must(err)
	return out
}

// dial is bgp.Dial from within the namespace.
func (h *host) dial(ctx context.Context, target bgp.Target) (via bgp.Transport, err error) {
	type result struct {
		via bgp.Transport
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // for good, like that of newHost
		if err := netns.Set(h.ns); err != nil {
			done <- result{err: err}
			return
		}
		via, err := bgp.Dial(ctx, target)
		done <- result{via, err}
	}()
	r := <-done
	return r.via, r.err
}

// eventually tries until check succeeds.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// speaker returns a Speaker on the node, which ends with the test.
func (h *host) speaker(passwords map[string]string) *bgp.Speaker {
	var w io.Writer = io.Discard
	if testing.Verbose() {
		w = os.Stderr
	}
	s := bgp.New(bgp.Options{
		Node: h.name,
		Password: func(_ context.Context, secret string) (string, error) {
			if p, ok := passwords[secret]; ok {
				return p, nil
			}
			return "", errors.New("no such Secret")
		},
		Dial: h.dial,
		Log:  slog.New(slog.NewTextHandler(w, nil)).With("node", h.name),
	})
	h.t.Cleanup(s.Close)
	return s
}

// lockedBuffer collects what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
