// Package wire is what tests with real sockets have in common: hosts in network
// namespaces of their own, and a place for what runs beside a test to write to.
// Only tests may import it.
package wire

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Need skips a test where the right to make namespaces or one of the programs
// is missing. With CCM_REQUIRE_NETNS=1 it fails it instead, where a skip would
// hide a failure.
func Need(t testing.TB, programs ...string) {
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

// Host is a network namespace without a name outside the process, and a thread
// that lives in it. Both end with the test. Its methods fail the test where
// something does not work; they are for the test's own goroutine, but Do may be
// called from any.
type Host struct {
	T     testing.TB
	Name  string          // in what the test says
	Space netns.NsHandle  // the namespace
	Net   *netlink.Handle // rtnetlink inside it

	jobs chan func()
}

// NewHost makes a host whose loopback is up. Duplicate address detection is
// off, so that addresses can be used at once.
func NewHost(t testing.TB, name string) *Host {
	t.Helper()
	Need(t)
	h := &Host{T: t, Name: name, jobs: make(chan func())}
	ready := make(chan error)
	go h.live(ready)
	h.Must(<-ready)
	t.Cleanup(func() {
		close(h.jobs)
		h.Net.Close()
		_ = h.Space.Close()
	})
	for _, links := range []string{"all", "default"} {
		h.Sysctl("net/ipv6/conf/"+links+"/accept_dad", "0")
	}
	h.Up("lo")
	return h
}

// live makes the namespace and runs jobs in it.
func (h *Host) live(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	var err error
	if h.Space, err = netns.New(); err == nil {
		h.Net, err = netlink.NewHandle()
	}
	ready <- err
	for job := range h.jobs {
		job()
	}
}

// Do runs f on the thread that lives in the namespace, and waits for its end.
// What f starts on other goroutines is not in the namespace.
func (h *Host) Do(f func()) {
	done := make(chan struct{})
	h.jobs <- func() { defer close(done); f() }
	<-done
}

// Must fails the test if err is one.
func (h *Host) Must(err error) {
	h.T.Helper()
	if err != nil {
		h.T.Fatalf("%s: %v", h.Name, err)
	}
}

// Sysctl sets a file below /proc/sys, which is named with slashes.
func (h *Host) Sysctl(key, value string) {
	h.T.Helper()
	var err error
	h.Do(func() { err = os.WriteFile("/proc/sys/"+key, []byte(value), 0o644) })
	h.Must(err)
}

// Link finds a link by its name.
func (h *Host) Link(name string) netlink.Link {
	h.T.Helper()
	l, err := h.Net.LinkByName(name)
	h.Must(err)
	return l
}

// Up sets a link up. Its carrier may follow a moment later.
func (h *Host) Up(name string) { h.T.Helper(); h.Must(h.Net.LinkSetUp(h.Link(name))) }

// Down sets a link down.
func (h *Host) Down(name string) { h.T.Helper(); h.Must(h.Net.LinkSetDown(h.Link(name))) }

// Address gives a link an address with its prefix length, as in 192.0.2.1/24.
func (h *Host) Address(link, cidr string) {
	h.T.Helper()
	a, err := netlink.ParseAddr(cidr)
	h.Must(err)
	a.Flags = unix.IFA_F_NODAD
	h.Must(h.Net.AddrReplace(h.Link(link), a))
}
