package bgp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// external is a session of BIRD with the node n1, with more settings.
func external(local, neighbour, settings string) string {
	return fmt.Sprintf(`
protocol bgp n1 {
 local %s as 64501;
 neighbor %s as 64500;
 passive;
 ipv4 { import all; export none; extended next hop on; };
 ipv6 { import all; export none; };
%s
}
`, local, neighbour, settings)
}

// waitWithout waits until BIRD has no route for a prefix.
func (b *bird) waitWithout(prefix string) {
	b.T.Helper()
	eventually(b.T, func() error {
		out, err := b.ask("show route for " + prefix)
		if err != nil && strings.Contains(err.Error(), "Network not found") { // birdc ends with 1
			return nil
		}
		return errors.Join(err, errors.New(out))
	})
}

// established tells whether BIRD has the session up.
func (b *bird) established() bool {
	b.T.Helper()
	out, err := b.ask("show protocols n1")
	b.Must(err)
	return strings.Contains(out, "Established")
}

func TestB124PasswordAndTTLSecurityAreAgreedOnWithBIRD(t *testing.T) {
	l := newLAN(t, 1)
	b := newBIRD(l.router, external("192.0.2.1", "192.0.2.11", ` password "hush"; ttl security on;`))
	s := l.nodes[0].speaker(map[string]string{"right": "hush", "wrong": "loud"})
	guarded := func(secret string) plan.Peering {
		return peering("r1", "192.0.2.1", func(p *config.Peer) {
			both(p)
			p.PasswordSecret, p.TTLSecurity = secret, 1
		}, "198.51.100.1/32", "203.0.113.0/24", "2001:db8:2::/64")
	}
	s.Set([]plan.Peering{guarded("wrong")})
	waitState(t, s, "Idle", "authentication is failing")
	if b.established() {
		t.Error("BIRD has a session")
	}
	s.Set([]plan.Peering{guarded("right")})
	b.waitRoute("198.51.100.1/32", "[n1", "BGP.as_path: 64500", "BGP.next_hop: 192.0.2.11")
	b.waitRoute("203.0.113.0/24", "[n1")
	b.waitRoute("2001:db8:2::/64", "[n1", "BGP.next_hop: 2001:db8::11")
	changed := guarded("right")
	changed.Routes = changed.Routes[:1]
	changed.Routes[0].Communities = []config.Community{{Global: 64500, Local1: 9}, {Large: true, Global: 4200000000, Local1: 1, Local2: 2}}
	s.Set([]plan.Peering{changed})
	b.waitWithout("203.0.113.0/24")
	b.waitRoute("198.51.100.1/32", "(64500,9)", "(4200000000, 1, 2)")
}

func TestIPv4RoutesOverAnIPv6NextHopInBIRD(t *testing.T) {
	l := newLAN(t, 1)
	l.nodes[0].run("ip", "-4", "address", "flush", "dev", "eth0")
	b := newBIRD(l.router, external("2001:db8::1", "2001:db8::11", ""))
	s := l.nodes[0].speaker(nil)
	s.Set([]plan.Peering{peering("r1", "2001:db8::1", both, "198.51.100.1/32", "2001:db8:1::1/128")})
	b.waitRoute("198.51.100.1/32", "[n1", "BGP.next_hop: 2001:db8::11")
	waitNextHops(l.router, "198.51.100.1", 1)
	waitNextHops(l.router, "2001:db8:1::1", 1)
}

// While no announcer runs BIRD keeps the routes, and the next one confirms them.
func TestB128RestartLosesNoRouteInBIRD(t *testing.T) {
	l := newLAN(t, 1)
	b := newBIRD(l.router, external("192.0.2.1", "192.0.2.11", ""))
	keeping := peering("r1", "192.0.2.1", func(p *config.Peer) {
		both(p)
		p.GracefulRestart = 60 * time.Second
	}, "198.51.100.1/32", "2001:db8:1::1/128")
	here := func() {
		t.Helper()
		for _, prefix := range []string{"198.51.100.1/32", "2001:db8:1::1/128"} {
			if out, err := b.ask("show route for " + prefix); err != nil || !strings.Contains(out, "[n1") {
				t.Errorf("BIRD has lost %s: %v\n%s", prefix, err, out)
			}
		}
	}
	first := l.nodes[0].speaker(nil)
	first.Set([]plan.Peering{keeping})
	b.waitRoute("198.51.100.1/32", "[n1")
	b.waitRoute("2001:db8:1::1/128", "[n1")
	eventually(t, func() error {
		if s := first.Sessions(); len(s) != 1 || !s[0].Restarting {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first.Leave(ctx)
	eventually(t, func() error {
		if b.established() {
			return errors.New("the session is still up")
		}
		return nil
	})
	here()
	second := l.nodes[0].speaker(nil)
	second.Set([]plan.Peering{keeping})
	waitState(t, second, "Established", "")
	here()
	second.Set([]plan.Peering{peering("r1", "192.0.2.1", func(p *config.Peer) {
		both(p)
		p.GracefulRestart = 60 * time.Second
	}, "2001:db8:1::1/128")})
	b.waitWithout("198.51.100.1/32")
	b.waitRoute("2001:db8:1::1/128", "[n1")
}

func TestLeavingIsSeenByBIRD(t *testing.T) {
	l := newLAN(t, 1)
	b := newBIRD(l.router, `
protocol bgp n1 {
 local 192.0.2.1 as 64500;
 neighbor 192.0.2.11 as 64500;
 passive;
 ipv4 { import all; export none; };
}
`)
	s := l.nodes[0].speaker(nil)
	w := peering("r1", "192.0.2.1", internal, "198.51.100.1/32")
	w.Routes[0].LocalPref, w.Pause = 250, 3*time.Second
	s.Set([]plan.Peering{w})
	b.waitRoute("198.51.100.1/32", "[n1", "BGP.local_pref: 250")
	w.Leaving = plan.Draining
	s.Set([]plan.Peering{w})
	b.waitRoute("198.51.100.1/32", "BGP.local_pref: 0", "(65535,0)")
	b.waitWithout("198.51.100.1/32")
	waitState(t, s, "Left", "")
	if b.established() {
		t.Error("the session is still up")
	}
}
