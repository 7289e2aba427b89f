package bgp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// peering returns a peer with usual settings, changed as edit says, and routes.
func peering(name, address string, edit func(*config.Peer), prefixes ...string) plan.Peering {
	p := config.Peer{
		Name: name, Address: netip.MustParseAddr(address), Port: 179, ASN: 64501, LocalASN: 64500, Multihop: 1,
		HoldTime: 9 * time.Second, KeepaliveTime: 3 * time.Second, ConnectTime: time.Second,
	}
	p.Families = []config.Family{config.FamilyOf(p.Address)}
	if edit != nil {
		edit(&p)
	}
	w := plan.Peering{Peer: p, Pause: time.Second}
	for _, prefix := range prefixes {
		w.Routes = append(w.Routes, plan.Route{Prefix: netip.MustParsePrefix(prefix), LocalPref: 100})
	}
	return w
}

func both(p *config.Peer) { p.Families = []config.Family{config.IPv4, config.IPv6} }

// waitState waits until the only session is in a state.
func waitState(t testing.TB, s *bgp.Speaker, want bgp.State, why string) {
	t.Helper()
	eventually(t, func() error {
		sessions := s.Sessions()
		if len(sessions) != 1 || sessions[0].State != want || !strings.Contains(sessions[0].Why, why) {
			return fmt.Errorf("got %+v, want %s because of %q", sessions, want, why)
		}
		return nil
	})
}

const openRouter = `
router bgp 64501
 bgp router-id 10.0.0.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor nodes peer-group
 neighbor nodes remote-as 64500
 neighbor nodes timers 3 9
 neighbor nodes graceful-restart-helper
 bgp listen range 192.0.2.0/24 peer-group nodes
 bgp listen range 2001:db8::/64 peer-group nodes
 address-family ipv4 unicast
  neighbor nodes activate
  maximum-paths 8
 exit-address-family
 address-family ipv6 unicast
  neighbor nodes activate
  maximum-paths 8
 exit-address-family
`

func TestRoutesReachFRRWithTheRightNextHops(t *testing.T) {
	for _, test := range []struct{ router, four, six string }{
		{"192.0.2.1", "192.0.2.11", "2001:db8::11"},
		{"2001:db8::1", "192.0.2.11", "2001:db8::11"},
	} {
		t.Run(test.router, func(t *testing.T) {
			l := newLAN(t, 1)
			router := newFRR(l.router, openRouter)
			s := l.nodes[0].speaker(nil)
			s.Set([]plan.Peering{peering("r1", test.router, both, "198.51.100.1/32", "203.0.113.0/24", "2001:db8:1::1/128")})
			router.waitPrefixes("198.51.100.1/32", "203.0.113.0/24", "2001:db8:1::1/128")
			if got := router.table("ipv4")["198.51.100.1/32"][0]; got.Nexthops[0].IP.String() != test.four || !got.Valid || got.Path != "64500" {
				t.Errorf("got %+v", got)
			}
			if got := router.table("ipv6")["2001:db8:1::1/128"][0]; got.Nexthops[0].IP.String() != test.six || !got.Valid {
				t.Errorf("got %+v", got)
			}
			s.Set([]plan.Peering{peering("r1", test.router, both, "203.0.113.0/24")})
			router.waitPrefixes("203.0.113.0/24")
		})
	}
}

// nextHopsOf returns how many next hops the kernel of a router has for a prefix.
func nextHopsOf(h *host, prefix string) int {
	h.T.Helper()
	family := "-4"
	if strings.Contains(prefix, ":") {
		family = "-6"
	}
	out := h.run("ip", family, "route", "show", prefix)
	n := strings.Count(out, "nexthop")
	if n == 0 {
		n = strings.Count(out, "via")
	}
	return n
}

func waitNextHops(h *host, prefix string, want int) {
	h.T.Helper()
	eventually(h.T, func() error {
		if got := nextHopsOf(h, prefix); got != want {
			return fmt.Errorf("%s has %d next hops in the kernel, want %d", prefix, got, want)
		}
		return nil
	})
}

// Paths that differ in an attribute would leave the router with one.
func TestB140RouterSharesTrafficAmongThreeNodes(t *testing.T) {
	l := newLAN(t, 3)
	router := newFRR(l.router, openRouter)
	var speakers []*bgp.Speaker
	for _, n := range l.nodes {
		s := n.speaker(nil)
		w := peering("r1", "192.0.2.1", both, "198.51.100.1/32", "2001:db8:1::1/128")
		w.Routes[0].Communities = []config.Community{{Global: 65000, Local1: 7}, {Large: true, Global: 65000, Local1: 1, Local2: 2}}
		s.Set([]plan.Peering{w})
		speakers = append(speakers, s)
	}
	waitNextHops(l.router, "198.51.100.1", 3)
	waitNextHops(l.router, "2001:db8:1::1", 3)
	detail := router.detail("198.51.100.1/32")
	if strings.Count(detail, "65000:7") != 3 || strings.Count(detail, "65000:1:2") != 3 {
		t.Errorf("not three times both communities:\n%s", detail)
	}
	// A node that can serve no more withdraws, and another one dies.
	speakers[0].Set([]plan.Peering{peering("r1", "192.0.2.1", both)})
	waitNextHops(l.router, "198.51.100.1", 2)
	speakers[1].Close()
	waitNextHops(l.router, "198.51.100.1", 1)
}

func TestB117PasswordsThatDifferNeverOpenASession(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 1)
	router := newFRR(l.router, openRouter)
	s := l.nodes[0].speaker(map[string]string{"bgp": "right", "other": "wrong"})
	set := func(secret string) {
		w := peering("r1", "192.0.2.1", func(p *config.Peer) { p.PasswordSecret = secret }, "198.51.100.1/32")
		w.Pause = 0
		s.Set([]plan.Peering{w})
	}
	set("bgp") // and the router has none
	waitState(t, s, bgp.Idle, "authentication is failing, or it is away")
	router.vtysh("configure terminal", "router bgp 64501", "neighbor nodes password right")
	router.waitPrefixes("198.51.100.1/32")
	set("other")
	waitState(t, s, bgp.Idle, "authentication is failing, or it is away")
	set("") // and the router has one
	waitState(t, s, bgp.Idle, "it is away, drops our packets, or expects a password")
	if got := s.Sessions()[0].Times; got != 0 {
		t.Errorf("came up %d times", got)
	}
	set("bgp")
	router.waitPrefixes("198.51.100.1/32")
}

// A node without an IPv4 address is a next hop all the same where the router
// can have an IPv6 one for IPv4 (RFC 8950).
func TestIPv4RoutesOverAnIPv6NextHop(t *testing.T) {
	l := newLAN(t, 1)
	n := l.nodes[0]
	n.run("ip", "address", "del", "192.0.2.11/24", "dev", "eth0")
	router := newFRR(l.router, strings.Replace(openRouter, " neighbor nodes timers", " neighbor nodes capability extended-nexthop\n neighbor nodes timers", 1))
	s := n.speaker(nil)
	s.Set([]plan.Peering{peering("r1", "2001:db8::1", both, "198.51.100.1/32", "2001:db8:1::1/128")})
	router.waitPrefixes("198.51.100.1/32", "2001:db8:1::1/128")
	if got := router.table("ipv4")["198.51.100.1/32"][0]; got.Nexthops[0].IP != netip.MustParseAddr("2001:db8::11") {
		t.Errorf("got %+v", got)
	}
}

// By default a session has the routes of its own family; a family without a
// next hop is left out, and that is said.
func TestB136FamilyWithoutNextHopIsLeftOutAndSaidSo(t *testing.T) {
	l := newLAN(t, 1)
	n := l.nodes[0]
	n.run("ip", "address", "flush", "dev", "eth0", "scope", "global")
	n.Address("eth0", "192.0.2.11/24")
	n.run("ip", "-6", "address", "flush", "dev", "eth0")
	router := newFRR(l.router, openRouter)
	s := n.speaker(nil)
	s.Set([]plan.Peering{peering("r1", "192.0.2.1", both, "198.51.100.1/32", "2001:db8:1::1/128")})
	router.waitPrefixes("198.51.100.1/32")
	eventually(t, func() error {
		if got := s.Sessions()[0]; !strings.Contains(got.Mute[config.IPv6], "no next hop") || len(got.Advertised) != 1 || got.Wanted != 2 {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
}

func TestB124DistantRoutersNeedMultihopAndTTLSecurityWorks(t *testing.T) {
	l := newLAN(t, 1)
	n := l.nodes[0]
	l.router.Address("lo", "203.0.113.1/32")
	n.run("ip", "route", "add", "203.0.113.1", "via", "192.0.2.1")
	router := newFRR(l.router, openRouter)
	s := n.speaker(nil)
	set := func(edit func(*config.Peer)) {
		w := peering("r1", "203.0.113.1", edit, "198.51.100.1/32")
		w.Pause = 0
		s.Set([]plan.Peering{w})
	}
	set(func(p *config.Peer) { p.Multihop = 2; p.SourceAddress = netip.MustParseAddr("192.0.2.11") })
	router.waitPrefixes("198.51.100.1/32")
	set(func(p *config.Peer) { p.SourceAddress = netip.MustParseAddr("192.0.2.99") })
	waitState(t, s, bgp.Idle, "cannot assign requested address")
	router.waitPrefixes()
}

func TestB124TTLSecurityIsAgreedOnWithFRR(t *testing.T) {
	l := newLAN(t, 1)
	router := newFRR(l.router, strings.ReplaceAll(openRouter, "\n bgp listen range 192.0.2.0/24 peer-group nodes",
		"\n neighbor 192.0.2.11 peer-group nodes\n neighbor 192.0.2.11 passive\n neighbor 192.0.2.11 ttl-security hops 1"))
	s := l.nodes[0].speaker(nil)
	s.Set([]plan.Peering{peering("r1", "192.0.2.1", func(p *config.Peer) { p.TTLSecurity = 1 }, "198.51.100.1/32")})
	router.waitPrefixes("198.51.100.1/32")
}

// A large cluster meets a real router: its table, not ours, says when all is there.
func TestTenThousandPrefixesReachFRR(t *testing.T) {
	const many = 10_000
	l := newLAN(t, 1)
	router := newFRR(l.router, openRouter)
	w := peering("r1", "192.0.2.1", nil)
	for i := range many {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		w.Routes = append(w.Routes, plan.Route{Prefix: netip.PrefixFrom(a, 32), LocalPref: 100})
	}
	began := time.Now()
	s := l.nodes[0].speaker(nil)
	s.Set([]plan.Peering{w})
	eventually(t, func() error {
		if n := strings.Count(router.vtysh("show bgp ipv4 unicast json"), `"prefix":"10.1.`); n != many {
			return fmt.Errorf("the router has %d prefixes", n)
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("%d prefixes took %s", many, took)
	if took > 20*time.Second { // twice what the product promises
		t.Errorf("%d prefixes took %s, want 10 s", many, took)
	}
	s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil)})
	router.waitPrefixes()
}

func TestB128RestartLosesNoRouteInFRR(t *testing.T) {
	l := newLAN(t, 1)
	router := newFRR(l.router, openRouter)
	graceful := peering("r1", "192.0.2.1", func(p *config.Peer) { both(p); p.GracefulRestart = 60 * time.Second }, "198.51.100.1/32", "2001:db8:1::1/128")
	old := l.nodes[0].speaker(nil)
	old.Set([]plan.Peering{graceful})
	router.waitPrefixes("198.51.100.1/32", "2001:db8:1::1/128")
	if !old.Sessions()[0].Restarting {
		t.Fatal("graceful restart is not agreed on")
	}
	old.Leave(t.Context())
	eventually(t, func() error {
		if got := router.table("ipv4")["198.51.100.1/32"]; len(got) != 1 || !got[0].Stale {
			return fmt.Errorf("not stale: %+v", got)
		}
		return nil
	})
	if nextHopsOf(l.router, "198.51.100.1") != 1 || nextHopsOf(l.router, "2001:db8:1::1") != 1 {
		t.Error("the kernel of the router has lost a route")
	}
	// The one that comes back serves only one of them.
	graceful.Routes = graceful.Routes[:1]
	again := l.nodes[0].speaker(nil)
	again.Set([]plan.Peering{graceful})
	router.waitPrefixes("198.51.100.1/32")
	if got := router.table("ipv4")["198.51.100.1/32"]; got[0].Stale {
		t.Errorf("still stale: %+v", got)
	}
	// Taken out of the configuration, it is gone at once.
	again.Set(nil)
	router.waitPrefixes()
}

func TestB120RestartedRouterGetsEverythingAgain(t *testing.T) {
	l := newLAN(t, 1)
	s := l.nodes[0].speaker(nil)
	s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32", "198.51.100.2/32")})
	for range 2 {
		router := newFRR(l.router, openRouter)
		router.waitPrefixes("198.51.100.1/32", "198.51.100.2/32")
		router.stop()
	}
}

func TestRouterThatAsksForEverythingGetsIt(t *testing.T) {
	l := newLAN(t, 1)
	router := newFRR(l.router, openRouter)
	s := l.nodes[0].speaker(nil)
	s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
	router.waitPrefixes("198.51.100.1/32")
	router.vtysh("configure terminal", "route-map deny deny 10", "exit", "router bgp 64501", "address-family ipv4 unicast", "neighbor nodes route-map deny in")
	router.vtysh("clear bgp ipv4 unicast * soft in")
	router.waitPrefixes()
	router.vtysh("configure terminal", "router bgp 64501", "address-family ipv4 unicast", "no neighbor nodes route-map deny in")
	router.vtysh("clear bgp ipv4 unicast * soft in")
	router.waitPrefixes("198.51.100.1/32")
	if got := s.Sessions()[0].Times; got != 1 {
		t.Errorf("came up %d times", got)
	}
}

// echo answers UDP on an address of the node, as a Service there would.
func (h *host) echo(address string) {
	h.T.Helper()
	h.Address("lo", address+"/32")
	var conn net.PacketConn
	var err error
	h.Do(func() { conn, err = net.ListenPacket("udp", address+":7") })
	h.Must(err)
	h.T.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			conn.WriteTo(buffer[:n], from)
		}
	}()
}

// asker sends datagrams from many ports of a host, a thousand a second, and
// counts the answers.
type asker struct {
	sent, answered atomic.Int64
	stop           func()
}

func newAsker(h *host, address string) *asker {
	h.T.Helper()
	const ports = 40
	a := &asker{}
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for range ports {
		var conn net.Conn
		var err error
		h.Do(func() { conn, err = net.Dial("udp", address+":7") })
		h.Must(err)
		h.T.Cleanup(func() { conn.Close() })
		go func() {
			buffer := make([]byte, 64)
			for {
				if _, err := conn.Read(buffer); errors.Is(err, net.ErrClosed) {
					return
				} else if err == nil {
					a.answered.Add(1)
				}
			}
		}()
		senders.Go(func() {
			for ctx.Err() == nil {
				if _, err := conn.Write([]byte("ask")); err == nil {
					a.sent.Add(1)
				}
				time.Sleep(ports * time.Millisecond)
			}
		})
	}
	a.stop = func() {
		cancel()
		senders.Wait()
		for end := time.Now().Add(5 * time.Second); a.answered.Load() < a.sent.Load() && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return a
}

func TestPlannedLeaveLosesNoDatagram(t *testing.T) {
	const vip = "198.51.100.1"
	l := newLAN(t, 2)
	l.router.Sysctl("net/ipv4/fib_multipath_hash_policy", "1") // by ports too
	router := newFRR(l.router, openRouter)
	var speakers []*bgp.Speaker
	for _, n := range l.nodes {
		n.echo(vip)
		s := n.speaker(nil)
		w := peering("r1", "192.0.2.1", nil, vip+"/32")
		w.Pause = 10 * time.Second // long enough to be seen
		s.Set([]plan.Peering{w})
		speakers = append(speakers, s)
	}
	waitNextHops(l.router, vip, 2)
	a := newAsker(l.router, vip)
	time.Sleep(300 * time.Millisecond)
	left := make(chan struct{})
	go func() { defer close(left); speakers[0].Leave(t.Context()) }()
	waitNextHops(l.router, vip, 1)
	if n := len(router.table("ipv4")[vip+"/32"]); n != 2 {
		t.Errorf("the router has %d paths when it avoids one: it was withdrawn, not avoided", n)
	}
	<-left
	a.stop()
	if sent, answered := a.sent.Load(), a.answered.Load(); sent < 500 || answered != sent {
		t.Errorf("%d of %d datagrams were answered", answered, sent)
	}
}
