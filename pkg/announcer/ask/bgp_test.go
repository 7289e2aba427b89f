package ask

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

// sessionsPage is page with three sessions: up, not up, and taking leave.
func sessionsPage(t *testing.T) status.Plan {
	p := page(t)
	p.Time = time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)
	p.BGP = []status.BGPSession{
		{
			Peer: "tor-a", Address: "192.0.2.1", Port: 179, ASN: 64501, LocalASN: 64500, RouterID: "10.0.0.1", Local: "192.0.2.11",
			State: "Established", Since: p.Time.Add(-time.Hour), Families: []config.Family{config.IPv4},
			Mute: map[config.Family]string{config.IPv6: "the router does not speak it"}, Wanted: 3, BFD: "up",
			Advertised: []plan.Route{
				{
					Prefix: netip.MustParsePrefix("192.0.2.101/32"), LocalPref: 200, Services: []string{"web/shared", "web/shop"},
					Communities:    []config.Community{{Global: 65000, Local1: 1}, {Large: true, Global: 65000, Local1: 1, Local2: 2}},
					Advertisements: []string{"lan", "rest"}, Conflict: []string{"rest"},
				},
				{Prefix: netip.MustParsePrefix("198.51.100.0/24"), LocalPref: 100, Services: []string{"web/shop"}, Advertisements: []string{"rest"}},
			},
		},
		{Peer: "tor-b", Address: "192.0.2.2", Port: 1179, LocalASN: 64500, RouterID: "10.0.0.1", State: "Idle", Since: p.Time, Why: "connection refused", Wanted: 3},
		{
			Peer: "tor-c", Address: "fe80::1%eth0", Port: 179, ASN: 64503, LocalASN: 64500, RouterID: "10.0.0.1", Local: "fe80::11%eth0",
			State: "Left", Since: p.Time.Add(-time.Minute), Why: "Draining",
		},
	}
	return p
}

func TestBGP(t *testing.T) {
	for file, args := range map[string][]string{
		"bgp.txt":      {"bgp"},
		"bgp.json":     {"bgp", "-o", "json"},
		"bgp-peer.txt": {"bgp", "tor-b"},
	} {
		t.Run(file, func(t *testing.T) {
			out, err := ask(t, sessionsPage(t), args...)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", file), out)
		})
	}
}

func TestBGPWithoutSessions(t *testing.T) {
	out, err := ask(t, page(t), "bgp")
	if err != nil || out != "n1 speaks with no router: no peer in the configuration selects it\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := ask(t, sessionsPage(t), "bgp", "tor-z"); err == nil || !strings.Contains(err.Error(), `n1 has no session with a peer "tor-z"`) {
		t.Errorf("got %v", err)
	}
}
