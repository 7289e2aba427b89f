package frr_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// places are the ways to say where a peer is.
var places = map[string]func(*config.Peer){
	"v4":   func(p *config.Peer) { p.Address = netip.MustParseAddr("192.0.2.1") },
	"v6":   func(p *config.Peer) { p.Address = netip.MustParseAddr("2001:db8::1") },
	"link": func(p *config.Peer) { p.Address = netip.MustParseAddr("fe80::1%eth0") },
	"wire": func(p *config.Peer) { p.Interface = "eth1" },
}

// families are the ways to say what is advertised.
var families = map[string][]config.Family{
	"four": {config.IPv4}, "six": {config.IPv6}, "both": {config.IPv4, config.IPv6},
}

// policies are what a session can be asked for besides. Each is for all peers
// of a file.
var policies = map[string]func(*config.Peer){
	"plain":        func(*config.Peer) {},
	"internal":     func(p *config.Peer) { p.ASN = 64500 },
	"any-external": func(p *config.Peer) { p.ASN, p.Kind = 0, config.External },
	"any-internal": func(p *config.Peer) { p.ASN, p.Kind = 0, config.Internal },
	"timers": func(p *config.Peer) {
		p.HoldTime, p.KeepaliveTime, p.ConnectTime, p.Port, p.Passive = 9*time.Second, 3*time.Second, 120*time.Second, 1179, true
	},
	"bfd": func(p *config.Peer) {
		p.BFD = &config.BFDProfile{
			Name: "fast", ReceiveInterval: 100 * time.Millisecond, TransmitInterval: 150 * time.Millisecond,
			DetectMultiplier: 5, EchoMode: true, EchoInterval: 60 * time.Millisecond, PassiveMode: true, MinimumTTL: 250,
		}
	},
	"bfd-usual": func(p *config.Peer) {
		p.BFD = &config.BFDProfile{
			Name: "usual", ReceiveInterval: 300 * time.Millisecond, TransmitInterval: 300 * time.Millisecond,
			DetectMultiplier: 3, EchoInterval: 50 * time.Millisecond, MinimumTTL: 254,
		}
	},
	"restart":       func(p *config.Peer) { p.GracefulRestart = 60 * time.Second },
	"restart-usual": func(p *config.Peer) { p.GracefulRestart = 120 * time.Second },
	"multihop": func(p *config.Peer) {
		if p.Interface == "" && !p.Address.IsLinkLocalUnicast() {
			p.Multihop = 254
		}
	},
	"security": func(p *config.Peer) {
		p.TTLSecurity = 3
		if p.Interface != "" {
			p.TTLSecurity = 1
		}
	},
	"password": func(p *config.Peer) { p.PasswordSecret = "tor" },
	"vrf":      func(p *config.Peer) { p.VRF = "red" },
	"source": func(p *config.Peer) {
		if p.Address.Is4() {
			p.SourceAddress = netip.MustParseAddr("192.0.2.11")
		} else if p.Address.Is6() && !p.Address.IsLinkLocalUnicast() {
			p.SourceAddress = netip.MustParseAddr("2001:db8::11")
		}
	},
	"other-as": func(p *config.Peer) {
		if p.Interface != "" {
			p.LocalASN = 4200000000
		}
	},
	"other-as-first": func(p *config.Peer) {
		if p.Address.Is4() {
			p.LocalASN = 4200000000
		}
	},
	"crossed-as": func(p *config.Peer) { // both numbers that we have are those of routers
		if p.Address.Is4() {
			p.ASN, p.LocalASN = 64500, 64501
		}
	},
	"id": func(p *config.Peer) { p.RouterID = netip.MustParseAddr("10.0.0.7") },
}

// advertisements are what is advertised.
var advertisements = map[string][]plan.Route{
	"nothing": nil,
	"plain":   {route("198.51.100.1/32", 100), route("2001:db8:1::1/128", 100)},
	"rich": {
		route("198.51.100.1/32", 100, "64500:100"), route("198.51.100.2/32", 200, "no-export", "64500:100", "64500:1:2", "4200000000:1:2"),
		route("198.51.100.3/32", 200, "64500:1:2", "64500:100", "4200000000:1:2", "no-export"), route("203.0.113.0/24", 0),
		route("2001:db8:1::1/128", 4294967295, "blackhole", "65535:6"), route("2001:db8:2::/64", 100),
	},
}

func route(prefix string, preference uint32, communities ...string) plan.Route {
	r := plan.Route{Prefix: netip.MustParsePrefix(prefix), LocalPref: preference}
	for _, text := range communities {
		c, err := config.ParseCommunity(text)
		if err != nil {
			panic(err)
		}
		r.Communities = append(r.Communities, c)
	}
	slices.SortFunc(r.Communities, config.Community.Compare)
	return r
}

// peering is a session that asks for nothing.
func peering(name string) plan.Peering {
	return plan.Peering{Backend: config.FRR, ASN: 64500, Peer: config.Peer{
		Name: name, Port: 179, ASN: 64501, LocalASN: 64500, Multihop: 1,
		HoldTime: 90 * time.Second, KeepaliveTime: 30 * time.Second, ConnectTime: 30 * time.Second,
	}}
}

// file is the configuration of a policy and an advertisement: a peer for each
// place and family.
func file(policy, advertisement string, leaving plan.Reason, closed bool) string {
	in := frr.Input{RouterID: netip.MustParseAddr("10.1.2.3"), Passwords: map[string]string{"tor": "s3-_.:+*/=@%&(){}[]<>,;~^|$"}}
	for _, place := range []string{"v4", "v6", "link", "wire"} {
		for i, f := range []string{"four", "six", "both"} {
			if policy != "plain" && policy != "internal" && f != "both" {
				continue
			}
			p := peering(place + "-" + f)
			places[place](&p.Peer)
			if p.Peer.Interface != "" {
				p.Peer.Interface = fmt.Sprint("eth", 1+i)
			} else {
				for range i {
					p.Peer.Address = p.Peer.Address.Next()
				}
			}
			p.Peer.Families = families[f]
			policies[policy](&p.Peer)
			p.Routes, p.Leaving = advertisements[advertisement], leaving
			in.Peerings = append(in.Peerings, frr.Peering{Peering: p, Closed: closed})
		}
	}
	return frr.Render(in)
}

// goldens are all files by name: every policy with the richest advertisement,
// every advertisement and a leave with two policies.
func goldens() map[string]string {
	out := map[string]string{"empty": frr.Render(frr.Input{})}
	for policy := range policies {
		out[policy+"-rich"] = file(policy, "rich", "", false)
	}
	for _, policy := range []string{"plain", "internal"} {
		for a := range advertisements {
			out[policy+"-"+a] = file(policy, a, "", false)
		}
		out[policy+"-leaving"] = file(policy, "rich", plan.Draining, false)
		out[policy+"-closed"] = file(policy, "rich", plan.Draining, true)
	}
	return out
}

func TestGolden(t *testing.T) {
	all := goldens()
	for name, got := range all {
		path := filepath.Join("testdata", name+".conf")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s: -want +got (-update rewrites it):\n%s", name, diff)
		}
	}
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) != len(all) {
		t.Errorf("%d files for %d cases (%v)", len(files), len(all), err)
	}
}

// Another number after router bgp resets all sessions of a VRF.
func TestTheRouterHasTheNumberOfTheDocumentWhoeverIsThere(t *testing.T) {
	peer := func(asn, localASN uint32) config.Peer {
		return config.Peer{Name: fmt.Sprint(asn, "-", localASN), ASN: asn, LocalASN: localASN, Port: 179, Multihop: 1}
	}
	usual, other := peer(64501, 64500), peer(64501, 65010)
	anyone := config.Peer{Name: "any", Kind: config.Internal, LocalASN: 65011}
	for _, test := range []struct {
		document uint32
		peers    []config.Peer
		want     uint32
		told     int // sessions with a number of their own
	}{
		{64500, []config.Peer{usual}, 64500, 0},
		{64500, []config.Peer{other, usual}, 64500, 1},
		{64500, []config.Peer{usual, other}, 64500, 1},
		{64500, []config.Peer{other}, 64500, 1},
		{64500, []config.Peer{usual, peer(64500, 64500)}, 64500, 0},
		{64500, []config.Peer{other, usual, peer(65011, 65011)}, 65011, 2}, // FRR knows no local-as for a router of our own AS
		{64500, []config.Peer{other, usual, anyone}, 65011, 2},
		{64500, []config.Peer{peer(64500, 65010)}, 65010, 0}, // nor for one that has the number
		{64500, []config.Peer{peer(64500, 65010), peer(65011, 65011)}, 65011, 1},
		{0, []config.Peer{other, usual}, 65010, 1},
		{65010, []config.Peer{peer(65010, 65011), peer(65011, 65010)}, 4294967294, 2},
		{65010, []config.Peer{peer(65010, 65011), peer(65011, 65010), peer(4294967294, 65010)}, 4294967293, 3},
		{64500, []config.Peer{peer(65010, 65010), peer(65011, 65011)}, 65010, 1}, // what FRR cannot do
	} {
		in := frr.Input{RouterID: netip.MustParseAddr("10.1.2.3")}
		for i, p := range test.peers {
			p.Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)})
			in.Peerings = append(in.Peerings, frr.Peering{Peering: plan.Peering{ASN: test.document, Peer: p}})
		}
		got := frr.Render(in)
		if !strings.Contains(got, fmt.Sprintf("\nrouter bgp %d\n", test.want)) || strings.Count(got, " local-as ") != test.told {
			t.Errorf("want %d, and %d others, of %d, %v:\n%s", test.want, test.told, test.document, test.peers, got)
		}
	}
}

// Sessions that still take leave would end at once if the router became another
// one.
func TestTheRouterIsThatOfThoseWhoLeave(t *testing.T) {
	staying, leaving := peering("staying"), peering("leaving")
	staying.Peer.Address, leaving.Peer.Address = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	staying.ASN, staying.Peer.LocalASN, leaving.Leaving = 64600, 64600, plan.Draining
	leaving.Peer.RouterID = netip.MustParseAddr("10.0.0.9")
	got := frr.Render(frr.Input{RouterID: netip.MustParseAddr("10.1.2.3"), Peerings: []frr.Peering{{Peering: staying}, {Peering: leaving}}})
	for _, want := range []string{"\nrouter bgp 64500\n", " bgp router-id 10.0.0.9\n", " neighbor 192.0.2.1 local-as 64600 "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
