package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// announceFrom tells everybody on the LAN that a host has an address, as a
// machine does that was given it by mistake.
func announceFrom(t *testing.T, host string, a netip.Addr) (mac string) {
	t.Helper()
	h, err := cluster.Host(host)
	must(t, err)
	must(t, netns.Do(h.Namespace, func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		mac = link.HardwareAddr.String()
		socket, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer syscall.Close(socket)
		four := a.As4()
		frame := slices.Concat(
			[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, link.HardwareAddr,
			[]byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1},
			link.HardwareAddr, four[:], make([]byte, 6), four[:])
		return syscall.Sendto(socket, frame, 0, &syscall.SockaddrLinklayer{Ifindex: link.Index})
	}))
	return mac
}

func layer2Metrics(ctx context.Context, node string) (string, error) {
	return cluster.Get(ctx, node, fmt.Sprintf("http://127.0.0.1:%d/metrics", product.HTTPPort))
}

// A station that is none of ours claims an address: the owner goes on, insists
// once, and says who it is.
func TestForeignStationIsNamed(t *testing.T) {
	atRest(t)
	_, a, o := serving(t, "foreign")
	who := owner(t, o)
	began := time.Now()
	mac := announceFrom(t, lab.Router, a)
	eventually(t, "the conflict to be shown", func(ctx context.Context) error {
		page, err := layer2Metrics(ctx, who)
		if err != nil {
			return err
		}
		want := fmt.Sprintf(`announcer_layer2_conflict{address="%s",cause="ForeignStation",link="eth0",mac="%s",node=""} 1`, a, mac)
		if !strings.Contains(page, want) {
			return fmt.Errorf("no %s", want)
		}
		text, err := installed.Debug(ctx, who, "/debug/plan?format=text")
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("conflict: %s is claimed on eth0 by %s (ForeignStation) since ", a, mac); !strings.Contains(text, want) {
			return fmt.Errorf("no %q in %s", want, text)
		}
		return nil
	})
	h, err := cluster.Host(who)
	must(t, err)
	eventually(t, "the owner to insist", func(context.Context) error {
		for _, announced := range o.Announcements(began, time.Now()) {
			if announced.MAC == h.MAC {
				return nil
			}
		}
		return errors.New("it has announced nothing")
	})
	if now := owner(t, o); now != who {
		t.Errorf("answered by %s, want %s still", now, who)
	}
}

// While an announcer runs, and after it was killed, its node's link is what it
// was: no address, no promiscuity, no group that nobody else has joined.
func TestKilledAnnouncerLeavesNothingOnTheNode(t *testing.T) {
	atRest(t)
	_, a, o := serving(t, "kill")
	who := owner(t, o)
	t.Cleanup(func() { startMissing(t) })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", installed.Announcer(who).PID))
	must(t, err)
	const netRaw = 1 << 13
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		if want := fmt.Sprintf("%s:\t%016x\n", set, netRaw); !strings.Contains(string(status), want) {
			t.Errorf("the announcer's capabilities are not %s:\n%s", want, status)
		}
	}
	running := state(t, who)
	if strings.Contains(running, a.String()+"/") || !strings.Contains(running, "promiscuity 0 ") {
		t.Errorf("while it announces %s:\n%s", a, running)
	}
	must(t, installed.Announcer(who).Kill())
	eventually(t, "the sockets to be closed", func(ctx context.Context) error {
		if open := packetSockets(t, who); open != 0 {
			return fmt.Errorf("%d packet sockets", open)
		}
		return nil
	})
	if after := state(t, who); after != running {
		t.Errorf("after the kill:\n%s\nbefore:\n%s", after, running)
	}
	startMissing(t)
	whole(t)
}

// state is what a node's links are like: addresses, flags and promiscuity.
func state(t *testing.T, node string) string {
	t.Helper()
	out := ""
	for _, what := range [][]string{{"ip", "-d", "-o", "link", "show", "eth0"}, {"ip", "-o", "address", "show", "eth0"}} {
		text, err := cluster.Run(bounded(t), node, what...)
		must(t, err)
		out += text
	}
	return out
}

// packetSockets counts those of a node's network namespace.
func packetSockets(t *testing.T, node string) int {
	t.Helper()
	text, err := cluster.Run(bounded(t), node, "cat", "/proc/net/packet")
	must(t, err)
	return strings.Count(text, "\n") - 1 // the first line is a heading
}
