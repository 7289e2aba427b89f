package bgp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/gobgpd"
)

// newGoBGPD runs gobgpd on a host, with an AS number and a neighbour for each
// address. The settings are more of each neighbour's.
func newGoBGPD(h *host, asn uint32, settings string, neighbours ...string) *gobgpd.Router {
	h.T.Helper()
	where := gobgpd.Host{Start: func(program string, args ...string) { h.start(program, args...) }, Output: h.output}
	return gobgpd.New(h.T, where, gobgpd.Options{ASN: asn, Password: "hush", Settings: settings, Neighbours: neighbours})
}

// guarded is a session with everything that gobgpd is asked for here.
func guarded(address string, more func(*config.Peer), prefixes ...string) plan.Peering {
	return peering("r1", address, func(p *config.Peer) {
		both(p)
		p.PasswordSecret, p.GracefulRestart = "tor", 60*time.Second
		if more != nil {
			more(p)
		}
	}, prefixes...)
}

var tor = map[string]string{"tor": "hush", "wrong": "loud"}

func TestRoutesReachGoBGP(t *testing.T) {
	l := newLAN(t, 3)
	g := newGoBGPD(l.router, 64500, "", "192.0.2.11", "192.0.2.12", "192.0.2.13")
	var speakers []*bgp.Speaker
	for _, n := range l.nodes {
		s := n.speaker(tor)
		w := guarded("192.0.2.1", internal, "198.51.100.1/32", "203.0.113.0/24", "2001:db8:1::1/128")
		w.Routes[0].LocalPref = 250
		w.Routes[0].Communities = []config.Community{{Global: 65000, Local1: 7}, {Large: true, Global: 4200000000, Local1: 1, Local2: 2}}
		s.Set([]plan.Peering{w})
		speakers = append(speakers, s)
	}
	g.WaitPaths("198.51.100.1/32", 3, "{LocalPref: 250}", "65000:7", "4200000000:1:2", "{Origin: i}")
	g.WaitPaths("203.0.113.0/24", 3, "{LocalPref: 100}")
	g.WaitPaths("2001:db8:1::1/128", 3, "2001:db8::1")
	speakers[0].Set([]plan.Peering{guarded("192.0.2.1", internal, "2001:db8:1::1/128")})
	g.WaitPaths("198.51.100.1/32", 2)
	g.WaitPaths("203.0.113.0/24", 2)
	g.WaitPaths("2001:db8:1::1/128", 3)
	leaving := guarded("192.0.2.1", internal, "203.0.113.0/24")
	leaving.Leaving, leaving.Pause = plan.Draining, 3*time.Second
	speakers[1].Set([]plan.Peering{guarded("192.0.2.1", internal, "203.0.113.0/24")})
	g.WaitPaths("198.51.100.1/32", 1)
	speakers[2].Set([]plan.Peering{guarded("192.0.2.1", internal, "198.51.100.1/32")})
	g.WaitPaths("203.0.113.0/24", 1, "{LocalPref: 100}")
	speakers[1].Set([]plan.Peering{leaving})
	g.WaitPaths("203.0.113.0/24", 1, "{LocalPref: 0}", "planned-shut")
	g.WaitPaths("203.0.113.0/24", 0)
	waitState(t, speakers[1], bgp.Left, "")
}

func TestB117PasswordsThatDifferOpenNoSessionWithGoBGP(t *testing.T) {
	l := newLAN(t, 1)
	g := newGoBGPD(l.router, 64501, "[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n", "192.0.2.11")
	s := l.nodes[0].speaker(tor)
	secure := func(secret string) plan.Peering {
		return guarded("192.0.2.1", func(p *config.Peer) { p.PasswordSecret, p.TTLSecurity = secret, 1 }, "198.51.100.1/32", "2001:db8:1::1/128")
	}
	s.Set([]plan.Peering{secure("wrong")})
	waitState(t, s, bgp.Idle, "authentication is failing")
	s.Set([]plan.Peering{secure("tor")})
	g.WaitPaths("198.51.100.1/32", 1, "192.0.2.11", " 64500 ")
	g.WaitPaths("2001:db8:1::1/128", 1, "2001:db8::11")
	if lines, err := g.Paths("198.51.100.1/32"); err != nil || strings.Contains(strings.Join(lines, ""), "LocalPref") {
		t.Errorf("an external router has been told a local preference: %q, %v", lines, err)
	}
}

func TestB128RestartLosesNoRouteInGoBGP(t *testing.T) {
	l := newLAN(t, 1)
	g := newGoBGPD(l.router, 64501, "", "192.0.2.11")
	here := func() {
		t.Helper()
		for _, prefix := range []string{"198.51.100.1/32", "2001:db8:1::1/128"} {
			if lines, err := g.Paths(prefix); err != nil || len(lines) != 1 {
				t.Errorf("%s has %q, %v", prefix, lines, err)
			}
		}
	}
	first := l.nodes[0].speaker(tor)
	w := guarded("192.0.2.1", nil, "198.51.100.1/32", "2001:db8:1::1/128")
	first.Set([]plan.Peering{w})
	g.WaitPaths("198.51.100.1/32", 1)
	g.WaitPaths("2001:db8:1::1/128", 1)
	first.Leave(t.Context())
	g.WaitGone()
	here()
	second := l.nodes[0].speaker(tor)
	second.Set([]plan.Peering{w})
	waitState(t, second, bgp.Established, "")
	here()
	second.Set([]plan.Peering{guarded("192.0.2.1", nil, "2001:db8:1::1/128")})
	g.WaitPaths("198.51.100.1/32", 0)
	g.WaitPaths("2001:db8:1::1/128", 1)
}
