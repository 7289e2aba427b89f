package frrhost_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// mute drops all that a host sends, without its peers' links going down.
func (h *host) mute() {
	h.t.Helper()
	h.must(append([]string{"ip"}, h.inside("nft", "add table inet mute; add chain inet mute out { type filter hook output priority 0; policy drop; }")...)...)
}

// reaches tells whether the kernel of a host has a route to a prefix.
func (h *host) reaches(prefix string) bool {
	out, err := exec.Command("ip", "-n", h.ns, "route", "show", prefix).CombinedOutput()
	return err != nil || len(out) > 0
}

// A node that dies takes no link of the router down. Without BFD its routes
// would stay for the hold time. The 1.2 s that are promised are judged on a quiet
// machine only.
func TestRouterLeavesADeadNodeByBFD(t *testing.T) {
	need(t, "nft")
	node, tor := newHost(t, "n"), newHost(t, "t")
	cable(node, tor, "eth0", "192.0.2.", "2001:db8::")
	tor.frr(torConfiguration)
	node.frr("")
	node.reloader()
	s, _ := node.speaker()
	external, _ := peers()
	external.HoldTime, external.KeepaliveTime = 180*time.Second, 60*time.Second
	external.BFD.ReceiveInterval, external.BFD.TransmitInterval = 300*time.Millisecond, 300*time.Millisecond
	s.Set([]plan.Peering{{Peer: external, Routes: routes("203.0.113.1/32"), Pause: time.Second}})
	node.eventually(func() error {
		if x := session(s, "tor"); x.State != bgp.Established || x.BFD != "up" {
			return fmt.Errorf("%s, BFD %q: %s", x.State, x.BFD, x.Why)
		}
		return nil
	})
	tor.eventually(func() error {
		if !tor.reaches("203.0.113.1") {
			return errors.New("the router does not use the route")
		}
		return nil
	})

	began := time.Now()
	node.mute()
	tor.eventually(func() error {
		if tor.reaches("203.0.113.1") {
			return errors.New("the router still uses the route")
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("the router stopped using the node after %s", took)
	within := 10 * time.Second
	if os.Getenv("CCM_SOAK") == "1" {
		within = 1200 * time.Millisecond
	}
	if took > within {
		t.Errorf("took %s, want %s at most", took, within)
	}
	if got := tor.vtysh("show bfd peers"); !strings.Contains(got, "Status: down") {
		t.Errorf("not for BFD:\n%s", got)
	}
}
