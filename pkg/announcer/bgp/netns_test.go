package bgp_test

import (
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
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// patience is how long a wire test waits for what must come. Only a test that
// fails waits that long.
const patience = 3 * time.Minute

// host is a host on which speakers, routers and programs run. Its programs end
// with the test too.
type host struct{ *wire.Host }

func newHost(t testing.TB, name string) *host {
	t.Helper()
	return &host{wire.NewHost(t, name)}
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
	l.router.Must(l.router.Net.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	l.router.Up("br0")
	l.router.Address("br0", "192.0.2.1/24")
	l.router.Address("br0", "2001:db8::1/64")
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		n := newHost(t, name)
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0", Namespace: netlink.NsFd(n.Space)},
			PeerName:  name, PeerNamespace: netlink.NsFd(l.router.Space),
		}
		l.router.Must(l.router.Net.LinkAdd(veth))
		l.router.Must(l.router.Net.LinkSetMaster(l.router.Link(name), l.router.Link("br0")))
		l.router.Up(name)
		n.Up("eth0")
		n.Address("eth0", fmt.Sprintf("192.0.2.%d/24", 11+i))
		n.Address("eth0", fmt.Sprintf("2001:db8::%d/64", 11+i))
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
	h.T.Helper()
	cmd := h.command(name, args...)
	log := &wire.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	var err error
	h.Do(func() { err = cmd.Start() })
	h.Must(err)
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	h.T.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if h.T.Failed() {
			h.T.Logf("%s %s:\n%s", h.Name, filepath.Base(name), log.String())
		}
	})
	return cmd
}

// output runs a program to its end.
func (h *host) output(name string, args ...string) (string, error) {
	cmd := h.command(name, args...)
	var out []byte
	var err error
	h.Do(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (h *host) run(name string, args ...string) string {
	h.T.Helper()
	out, err := h.output(name, args...)
	h.Must(err)
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
		if err := netns.Set(h.Space); err != nil {
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
	wire.Eventually(t, patience, 20*time.Millisecond, check)
}

// speaker returns a Speaker on the node, which ends with the test.
func (h *host) speaker(passwords map[string]string) *bgp.Speaker {
	return h.speakerThatAsks(func(secret string) (string, error) {
		if p, ok := passwords[secret]; ok {
			return p, nil
		}
		return "", errors.New("no such Secret")
	})
}

// speakerThatAsks is speaker with passwords that may change.
func (h *host) speakerThatAsks(password func(secret string) (string, error)) *bgp.Speaker {
	var w io.Writer = io.Discard
	if testing.Verbose() {
		w = os.Stderr
	}
	s := bgp.New(bgp.Options{
		Node:     h.Name,
		Password: func(_ context.Context, secret string) (string, error) { return password(secret) },
		Dial:     h.dial,
		Log:      slog.New(slog.NewTextHandler(w, nil)).With("node", h.Name),
	})
	h.T.Cleanup(s.Close)
	return s
}
