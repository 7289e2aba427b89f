package frrhost_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/gobgpd"
)

// gobgpd runs gobgpd on a host.
func (h *host) gobgpd(o gobgpd.Options) *gobgpd.Router {
	h.t.Helper()
	return gobgpd.New(h.t, gobgpd.Host{
		Start: func(program string, args ...string) { h.start(nil, append([]string{program}, args...)...) },
		Output: func(program string, args ...string) (string, error) {
			out, err := exec.Command("ip", h.inside(append([]string{program}, args...)...)...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s %v: %w: %s", program, args, err, out)
			}
			return string(out), err
		},
	}, o)
}

// One life of a node's FRR with two routers, each with a password and both
// families: one of another AS over IPv4, with TTL security and graceful
// restart, and one of our own over IPv6, whose number nobody has said.
func TestRoutesOfARealFRRReachGoBGP(t *testing.T) {
	t.Parallel()
	node, outside, inside := newHost(t, "n"), newHost(t, "o"), newHost(t, "i")
	cable(node, outside, "eth0", "192.0.2.", "2001:db8::")
	cable(node, inside, "eth1", "198.18.0.", "2001:db8:2::")
	far := outside.gobgpd(gobgpd.Options{
		ASN: 64501, Password: password, Neighbours: []string{"192.0.2.11"},
		Settings: "[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n",
	})
	near := inside.gobgpd(gobgpd.Options{ASN: 64500, Port: 1179, Password: password, Neighbours: []string{"2001:db8:2::11"}})
	node.frr("")
	node.reloader()

	external, internal := peers()
	external.BFD = nil
	external.TTLSecurity, external.GracefulRestart = 1, 180*time.Second
	internal.Name, internal.Port = "near", 1179
	internal.ASN, internal.Kind, internal.PasswordSecret = 0, config.Internal, "tor"
	all := routes("203.0.113.1/32", "203.0.113.64/26", "2001:db8:1::/64")
	all[0].Communities = slices.Insert(all[0].Communities, 1, config.Community{Global: 65535, Local1: 65281}) // no-export
	want := func(routes []plan.Route) []plan.Peering {
		return []plan.Peering{
			{Backend: config.FRR, ASN: 64500, Peer: external, Routes: routes, Pause: 15 * time.Second}, // long enough to be seen
			{Backend: config.FRR, ASN: 64500, Peer: internal, Routes: routes, Pause: 15 * time.Second},
		}
	}
	s, _ := node.speaker()
	s.Set(want(all))
	far.WaitPaths("203.0.113.1/32", 1, "192.0.2.11", " 64500 ", "64500:7", "64500:1:2", "no-export", "{Origin: i}")
	far.WaitPaths("203.0.113.64/26", 1, "192.0.2.11", "64500:7", "64500:1:2")
	far.WaitPaths("2001:db8:1::/64", 1, "2001:db8::11", "64500:7", "64500:1:2")
	near.WaitPaths("203.0.113.1/32", 1, "2001:db8:2::11", "{LocalPref: 250}", "64500:7", "64500:1:2", "no-export")
	near.WaitPaths("2001:db8:1::/64", 1, "2001:db8:2::11", "{LocalPref: 250}")
	if lines, err := far.Paths("203.0.113.1/32"); err != nil || strings.Contains(strings.Join(lines, ""), "LocalPref") {
		t.Errorf("an external router has been told a local preference: %q, %v", lines, err)
	}
	if out, err := far.Ask("neighbor", "192.0.2.11"); err != nil || !strings.Contains(out, "restart time 180 sec") {
		t.Errorf("no restart time of 180 s is agreed on: %v in\n%s", err, out)
	}

	// What gobgpd keeps while FRR is away, FRR confirms when it is back.
	node.kill("bgpd")
	far.WaitGone()
	far.WaitPaths("203.0.113.1/32", 1)
	far.WaitPaths("2001:db8:1::/64", 1)
	near.WaitPaths("203.0.113.1/32", 0)
	node.daemon("bgpd")
	near.WaitPaths("203.0.113.1/32", 1)
	node.waitPeer(s, "tor", 3)
	node.waitPeer(s, "near", 3)
	far.WaitPaths("203.0.113.1/32", 1)
	s.Set(want(all[2:]))
	far.WaitPaths("203.0.113.1/32", 0)
	far.WaitPaths("2001:db8:1::/64", 1, "2001:db8::11")

	// A peer that is removed takes leave, and the other does not notice.
	node.waitPeer(s, "near", 1)
	times := session(s, "near").Times
	s.Set(want(all[2:])[1:])
	far.WaitPaths("2001:db8:1::/64", 1, "planned-shut")
	far.WaitPaths("2001:db8:1::/64", 0)
	far.WaitGone()
	near.WaitPaths("2001:db8:1::/64", 1, "{LocalPref: 250}")
	node.eventually(func() error { // on a busy machine nothing may have been heard of FRR for a while
		if x := session(s, "near"); x.State != bgp.Established || x.Times != times {
			return fmt.Errorf("the other session: %s %q, come up %d times, was %d", x.State, x.Why, x.Times, times)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	left := make(chan struct{})
	go func() { s.Leave(ctx); close(left) }()
	near.WaitPaths("2001:db8:1::/64", 1, "{LocalPref: 0}", "planned-shut")
	near.WaitPaths("2001:db8:1::/64", 0)
	near.WaitGone()
	<-left
}
