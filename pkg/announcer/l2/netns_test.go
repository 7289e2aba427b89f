package l2

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// patience is how long a wire test waits for what must come. Only a test that
// fails waits that long.
const patience = 60 * time.Second

// host is a host on which speakers run.
type host struct{ *wire.Host }

func newHost(t testing.TB, name string) *host {
	t.Helper()
	return &host{wire.NewHost(t, name)}
}

// proc reads a file of the namespace below /proc/net.
func (h *host) proc(name string) string {
	h.T.Helper()
	var b []byte
	var err error
	h.Do(func() { b, err = os.ReadFile("/proc/thread-self/net/" + name) })
	h.Must(err)
	return string(b)
}

// link describes a link as the source of a real announcer would.
func (h *host) link(name string) plan.Link {
	h.T.Helper()
	a := h.Link(name).Attrs()
	return plan.Link{
		Name: a.Name, Index: a.Index, MAC: a.HardwareAddr.String(),
		Up: a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown,
	}
}

func (h *host) mac(name string) mac {
	h.T.Helper()
	return mac(h.Link(name).Attrs().HardwareAddr)
}

// cable connects two hosts.
func cable(a *host, aLink string, b *host, bLink string) {
	a.T.Helper()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aLink}, PeerName: bLink, PeerNamespace: netlink.NsFd(b.Space),
	}
	a.Must(a.Net.LinkAdd(veth))
	a.Up(aLink)
	b.Up(bLink)
	// The carrier comes a moment after the second end is up.
	a.eventually("carrier", func() bool { return a.link(aLink).Up && b.link(bLink).Up })
}

// lan is a switch that hosts are plugged into.
type lan struct{ *host }

func newLAN(t testing.TB) lan {
	t.Helper()
	sw := lan{newHost(t, "switch")}
	sw.Must(sw.Net.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}))
	sw.Up("br")
	return sw
}

// plug connects a host by a new link.
func (sw lan) plug(h *host, link string) {
	sw.T.Helper()
	port := h.Name + "-" + link
	cable(h, link, sw.host, port)
	sw.Must(sw.Net.LinkSetMaster(sw.Link(port), sw.Link("br")))
	sw.eventually("forwarding", func() bool {
		p, err := sw.Net.LinkByName(port)
		return err == nil && p.Attrs().OperState == netlink.OperUp
	})
}

// eventually waits for a condition.
func (h *host) eventually(what string, cond func() bool) {
	h.T.Helper()
	eventually(h.T, h.Name+": "+what, cond)
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
	h.Do(func() { c, err = systemSockets{}.packet(l, etherType, f) })
	return c, err
}

// counter opens a real one in the namespace.
func (h *host) counter(l plan.Link, etherType int, f []bpf.RawInstruction) (c counter, err error) {
	h.Do(func() { c, err = systemSockets{}.counter(l, etherType, f) })
	return c, err
}

// reporter opens a real one in the namespace.
func (h *host) reporter(l plan.Link) (r reporter, err error) {
	h.Do(func() { r, err = systemSockets{}.reporter(l) })
	return r, err
}

// speaker starts a speaker on the host.
func (h *host) speaker() *Speaker {
	s := New(Options{Log: slog.New(slog.NewTextHandler(testLog{h}, nil)), sockets: h})
	h.T.Cleanup(s.Close)
	return s
}

// testLog writes to the test's own log.
type testLog struct{ h *host }

func (l testLog) Write(b []byte) (int, error) {
	l.h.T.Logf("%s: %s", l.h.Name, bytes.TrimSpace(b))
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
