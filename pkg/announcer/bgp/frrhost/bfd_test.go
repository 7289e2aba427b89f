package frrhost_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
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

// bfdPeer is what FRR has for one router. Times are in milliseconds.
type bfdPeer struct {
	Peer     string
	Status   string
	Multiply int  `json:"detect-multiplier"`
	Receive  int  `json:"receive-interval"`
	Transmit int  `json:"transmit-interval"`
	EchoIn   int  `json:"echo-receive-interval"`
	EchoOut  int  `json:"echo-transmit-interval"`
	Passive  bool `json:"passive-mode"`

	RemoteMultiply int `json:"remote-detect-multiplier"`
}

// bfdPeer returns the only session of BFD there is.
func (h *host) bfdPeer() (bfdPeer, error) {
	text := h.vtysh("show bfd peers json")
	var all []bfdPeer
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 {
		return bfdPeer{}, fmt.Errorf("%d sessions (%v) in %s", len(all), err, text)
	}
	return all[0], nil
}

// What a profile says is what the session with a router has, and not only what
// FRR has written down; writing it again changes nothing.
func TestFRRHasEveryParameterOfABFDProfile(t *testing.T) {
	t.Parallel()
	node, tor := newHost(t, "n"), newHost(t, "t")
	cable(node, tor, "eth0", "192.0.2.", "2001:db8::")
	tor.frr(torConfiguration)
	node.frr("")
	node.reloader()
	s, _ := node.speaker()
	external, _ := peers()
	external.BFD = &config.BFDProfile{
		Name: "all", ReceiveInterval: 400 * time.Millisecond, TransmitInterval: 500 * time.Millisecond, DetectMultiplier: 7,
		EchoMode: true, EchoInterval: 600 * time.Millisecond, PassiveMode: true, MinimumTTL: 250,
	}
	s.Set([]plan.Peering{{Peer: external, Routes: routes("203.0.113.1/32"), Pause: time.Second}})
	want := bfdPeer{Peer: "192.0.2.1", Status: "up", Multiply: 7, Receive: 400, Transmit: 500, EchoIn: 600, EchoOut: 600, Passive: true, RemoteMultiply: 3}
	node.eventually(func() error {
		if got, err := node.bfdPeer(); err != nil || got != want {
			return fmt.Errorf("got %+v, want %+v (%v) of\n%s", got, want, err, node.vtysh("show bfd peers json"))
		}
		return nil
	})
	before := node.vtysh("show running-config")
	for _, line := range []string{
		"profile all", "detect-multiplier 7", "receive-interval 400", "transmit-interval 500", "echo-mode", "echo receive-interval 600", "echo transmit-interval 600",
		"passive-mode", "minimum-ttl 250", "neighbor 192.0.2.1 bfd profile all",
	} {
		if !strings.Contains(before, " "+line+"\n") {
			t.Errorf("no %q in\n%s", line, before)
		}
	}

	s.Close()
	text, err := os.ReadFile(filepath.Join(node.dir, "frr.conf"))
	if err != nil {
		t.Fatal(err)
	}
	node.give(append(text, "! again\n"...))
	if after := node.vtysh("show running-config"); before != after {
		t.Errorf("FRR has been changed by what it had: before\n%s\nafter\n%s", before, after)
	}
	got, err := node.bfdPeer()
	got.Status = want.Status // on a busy machine BFD may be late, and down for a moment
	if err != nil || got != want {
		t.Errorf("after that %+v, want %+v (%v)", got, want, err)
	}
}
