package frrhost_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrhost"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// allWays is a router with which a node has several sessions, each of another
// kind.
const allWays = `
router bgp 4200000001
 bgp router-id 10.0.0.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 192.0.2.11 remote-as 64500
 neighbor 192.0.2.11 password s3cret
 neighbor 192.0.2.11 timers connect 1
 neighbor eth1 interface v6only remote-as external
 neighbor 192.0.2.12 remote-as 4200000005
 neighbor 192.0.2.12 ebgp-multihop 2
 neighbor 192.0.2.12 update-source 198.51.100.1
 neighbor 192.0.2.12 passive
 neighbor 192.0.2.13 remote-as 64999
 neighbor 192.0.2.13 local-as 64500 no-prepend replace-as
 neighbor 192.0.2.13 passive
 address-family ipv4 unicast
  network 198.18.99.0/24
  neighbor eth1 activate
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:99::/64
  neighbor eth1 activate
  neighbor 192.0.2.12 activate
 exit-address-family
`

// linkWay is another one, which knows the node by a link-local address.
const linkWay = `
router id 10.0.0.2;
protocol device {}
protocol bgp node {
  local fe80::1%eth2 as 64501;
  neighbor fe80::11%eth2 as 64500;
  connect retry time 1;
  error wait time 1, 2;
  ipv4 { import all; export none; extended next hop; };
  ipv6 { import all; export none; };
}
`

// ways are peers for both, one for each way to have a session. Their
// document has the number 64500.
func ways() []config.Peer {
	common := config.Peer{
		Port: 179, LocalASN: 64500, ASN: 4200000001, Multihop: 1, HoldTime: 90 * time.Second, KeepaliveTime: 30 * time.Second,
		ConnectTime: time.Second, Families: []config.Family{config.IPv4, config.IPv6}, RouterID: netip.MustParseAddr("10.0.0.99"),
	}
	passive, link, unnumbered, far, ours, away := common, common, common, common, common, common
	passive.Name, passive.Address, passive.Passive = "passive", netip.MustParseAddr("192.0.2.1"), true
	passive.PasswordSecret, passive.KeepaliveTime, passive.Families = "tor", time.Second, passive.Families[:1]
	link.Name, link.Address, link.ASN = "link", netip.MustParseAddr("fe80::1%eth2"), 64501
	unnumbered.Name, unnumbered.Interface, unnumbered.ASN, unnumbered.Kind = "unnumbered", "eth1", 0, config.External
	far.Name, far.Address, far.Multihop = "far", netip.MustParseAddr("198.51.100.1"), 2
	far.SourceAddress, far.LocalASN = netip.MustParseAddr("192.0.2.12"), 4200000005
	ours.Name, ours.Address, ours.SourceAddress = "ours", netip.MustParseAddr("192.0.2.4"), netip.MustParseAddr("192.0.2.13")
	ours.ASN, ours.Kind, ours.LocalASN = 0, config.External, 64999
	away.Name, away.Address, away.Port, away.ConnectTime = "away", netip.MustParseAddr("192.0.2.3"), 1179, 2*time.Second
	return []config.Peer{passive, link, unnumbered, far, ours, away}
}

// path is what a router has been told of a prefix.
type path struct {
	AS struct {
		Path string `json:"string"`
	} `json:"aspath"`
	Community struct {
		Words string `json:"string"`
	}
	Peer     struct{ PeerID, Interface string }
	Nexthops []struct{ IP netip.Addr }
}

// ask decodes what a command has FRR say.
func ask[T any](h *host, command string) (out T) {
	h.t.Helper()
	text := h.vtysh(command)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		h.t.Fatalf("%v in %s", err, text)
	}
	return out
}

// hears waits until a router has a path for a prefix from each of some
// neighbours, with its AS path and its next hop; where no next hop is given it
// has to be link-local.
func (h *host) hears(prefix string, want map[string][2]string) {
	h.t.Helper()
	family := map[bool]string{false: "ipv4", true: "ipv6"}[strings.Contains(prefix, ":")]
	h.eventually(func() error {
		got := ask[struct{ Paths []path }](h, "show bgp "+family+" unicast "+prefix+" json").Paths
		for _, p := range got {
			from := cmp.Or(p.Peer.Interface, p.Peer.PeerID)
			told, known := want[from]
			if hop := p.Nexthops[0].IP; !known || p.AS.Path != told[0] || hop.String() != told[1] && (told[1] != "" || !hop.IsLinkLocalUnicast()) {
				return fmt.Errorf("%s from %s by %q over %s, want %q", prefix, from, p.AS.Path, hop, told)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("%s: %d paths, want %d: %+v", prefix, len(got), len(want), got)
		}
		return nil
	})
}

// side is what FRR says of its end of a session.
type side struct {
	State    string `json:"bgpState"`
	Port     int    `json:"portForeign"`
	RouterID string `json:"remoteRouterId"`
	Hold     int    `json:"bgpTimerHoldTimeMsecs"`
	Messages struct {
		Keepalives int `json:"keepalivesRecv"`
	} `json:"messageStats"`
}

func (h *host) side(neighbour string) side {
	h.t.Helper()
	return ask[map[string]side](h, "show bgp neighbors "+neighbour+" json")[neighbour]
}

// attempts returns how many connections to a port that is closed have been
// begun.
func (h *host) attempts() int {
	h.t.Helper()
	out := h.must(append([]string{"ip"}, h.inside("nft", "list", "table", "inet", "attempts")...)...)
	n, err := strconv.Atoi(regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(out)[1])
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// Each cell of the table in docs/reference/bgp-backends.md that says that FRR
// can, and that no other test shows by the table of a router.
func TestRealFRRHasSessionsInEveryWay(t *testing.T) {
	t.Parallel()
	node, router, neighbour := newHost(t, "n"), newHost(t, "r"), newHost(t, "l")
	need(t, "nft")
	cable(node, router, "eth0", "192.0.2.", "2001:db8::")
	cable(node, neighbour, "eth2", "198.18.2.", "2001:db8:2::")
	node.must("ip", "-n", node.ns, "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", router.ns)
	for h, more := range map[*host][]string{
		node:      {"192.0.2.12/24 dev eth0", "192.0.2.13/24 dev eth0", "fe80::11/64 dev eth2 nodad"},
		router:    {"192.0.2.3/24 dev eth0", "192.0.2.4/24 dev eth0", "198.51.100.1/32 dev lo"},
		neighbour: {"fe80::1/64 dev eth2 nodad"},
	} {
		for _, a := range more {
			h.must(append([]string{"ip", "-n", h.ns, "address", "add"}, strings.Fields(a)...)...)
		}
	}
	node.must("ip", "-n", node.ns, "link", "set", "eth1", "up")
	router.must("ip", "-n", router.ns, "link", "set", "eth1", "up")
	node.must("ip", "-n", node.ns, "route", "add", "198.51.100.1", "via", "192.0.2.1")
	router.must(append([]string{"ip"}, router.inside("nft",
		"add table inet attempts; add chain inet attempts in { type filter hook input priority 0; }; add rule inet attempts in ip daddr 192.0.2.3 tcp dport 1179 tcp flags syn counter")...)...)
	router.frr(allWays)
	birdc := neighbour.bird(linkWay)
	node.frr("")
	node.reloader()

	var secret atomic.Value
	secret.Store(password)
	s := frrhost.New(frrhost.Options{
		Node: "n1", Dir: node.dir, Log: slog.New(slog.DiscardHandler),
		Password: func(context.Context, string) (string, error) { return secret.Load().(string), nil },
	})
	t.Cleanup(s.Close)
	var want []plan.Peering
	for _, p := range ways() {
		want = append(want, plan.Peering{Backend: config.FRR, ASN: 64500, Peer: p, Routes: routes("203.0.113.0/24", "2001:db8:1::/64"), Pause: time.Second})
	}
	s.Set(want)
	router.hears("203.0.113.0/24", map[string][2]string{
		"192.0.2.11": {"64500", "192.0.2.11"},
		"192.0.2.12": {"4200000005", "192.0.2.12"},
		"eth1":       {"64500", ""}, // an IPv6 one (RFC 8950)
	})
	router.hears("2001:db8:1::/64", map[string][2]string{"192.0.2.12": {"4200000005", "2001:db8::11"}, "eth1": {"64500", ""}})
	neighbour.eventually(func() error {
		got := birdc("show", "route", "all")
		for _, w := range []string{"203.0.113.0/24", "2001:db8:1::/64", "from fe80::11", "via 2001:db8:2::11 on eth2", "BGP.as_path: 64500"} {
			if !strings.Contains(got, w) {
				return fmt.Errorf("no %q in %s", w, got)
			}
		}
		return nil
	})

	t.Run("TheRouterHasOpenedThePassiveOne", func(t *testing.T) {
		got := router.side("192.0.2.11")
		if got.State != "Established" || got.Port != 179 || got.RouterID != "10.0.0.99" || got.Hold != 90_000 {
			t.Errorf("the router has %+v", got)
		}
		was := got.Messages.Keepalives
		router.eventually(func() error {
			if n := router.side("192.0.2.11").Messages.Keepalives - was; n < 4 {
				return fmt.Errorf("%d signs of life", n)
			}
			return nil
		})
	})

	t.Run("AttemptsComeAtTheConnectTime", func(t *testing.T) {
		was, began := router.attempts(), time.Now()
		router.eventually(func() error {
			if n := router.attempts() - was; n < 4 {
				return fmt.Errorf("%d attempts", n)
			}
			return nil
		})
		if took := time.Since(began); took > 90*time.Second { // with FRR's own of 120 s only one
			t.Errorf("four attempts took %s", took)
		}
	})

	t.Run("RoutesThatRoutersOfferAreDropped", func(t *testing.T) {
		type summary struct {
			Peers map[string]struct{ PfxRcd, PfxSnt int }
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			router.eventually(func() error {
				of := ask[summary](router, "show bgp "+family+" unicast summary json").Peers["192.0.2.12"]
				if of.PfxSnt == 0 || of.PfxRcd != 1 {
					return fmt.Errorf("%s: the router has offered %d, and has %d", family, of.PfxSnt, of.PfxRcd)
				}
				return nil
			})
		}
		if got := node.table(); len(got) != 2 {
			t.Errorf("the node's FRR has %v", got)
		}
		if node.reaches("198.18.99.0/24") {
			t.Error("the node uses a route of a router")
		}
	})

	t.Run("AnExternalRouterInFRRsOwnASIsNamed", func(t *testing.T) {
		node.eventually(func() error {
			if x := session(s, "ours"); x.State != bgp.Idle || !strings.Contains(x.Why, "say its number in asn") {
				return fmt.Errorf("%s %q", x.State, x.Why)
			}
			return nil
		})
	})

	t.Run("APasswordIsChangedWithoutAResetOfOthers", func(t *testing.T) {
		times := map[string]uint64{}
		for _, x := range s.Sessions() {
			times[x.Peer] = x.Times
		}
		secret.Store("n3w")
		router.vtysh("configure terminal", "router bgp 4200000001", "neighbor 192.0.2.11 password n3w")
		node.eventually(func() error { // within the 30 s in which Secrets are read again
			for _, peer := range []string{"passive", "link", "unnumbered", "far"} {
				if x := session(s, peer); x.State != bgp.Established || (x.Times == times[peer]) == (peer == "passive") {
					return fmt.Errorf("%s: %s %q, come up %d times, was %d", peer, x.State, x.Why, x.Times, times[peer])
				}
			}
			return nil
		})
	})

	// FRR gets another number of its own, and would reset the far session, which
	// does not have it.
	t.Run("AnotherNumberOfTheDocumentTakesLeaveOfTheOthers", func(t *testing.T) {
		next := slices.Clone(want[3:5])
		next[1].Peer.ASN, next[1].Peer.Kind = 64500, config.ByNumber // which is that of the document no more
		for i := range next {
			next[i].ASN, next[i].Pause = 64600, 15*time.Second // long enough to be seen
		}
		s.Set(next)
		router.eventually(func() error {
			got := ask[struct{ Paths []path }](router, "show bgp ipv4 unicast 203.0.113.0/24 json").Paths
			if !slices.ContainsFunc(got, func(p path) bool {
				return p.Peer.PeerID == "192.0.2.12" && strings.Contains(p.Community.Words, "graceful-shutdown")
			}) {
				return fmt.Errorf("none is to be avoided of %+v", got)
			}
			return nil
		})
		router.hears("203.0.113.0/24", map[string][2]string{"192.0.2.12": {"4200000005", "192.0.2.12"}, "192.0.2.13": {"64999", "192.0.2.13"}})
	})
}
