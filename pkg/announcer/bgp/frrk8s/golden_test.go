package frrk8s_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrk8s"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

// places are the ways to say where a peer is.
var places = map[string]func(*config.Peer){
	"four": func(p *config.Peer) { p.Address = netip.MustParseAddr("192.0.2.1") },
	"six":  func(p *config.Peer) { p.Address = netip.MustParseAddr("2001:db8::1") },
	"wire": func(p *config.Peer) { p.Interface = "eth1" },
}

// policies are what sessions can be asked for besides.
var policies = map[string]func(*config.Peer){
	"plain":        func(*config.Peer) {},
	"internal":     func(p *config.Peer) { p.ASN = 64500 },
	"any-external": func(p *config.Peer) { p.ASN, p.Kind = 0, config.External },
	"any-internal": func(p *config.Peer) { p.ASN, p.Kind = 0, config.Internal },
	"times": func(p *config.Peer) {
		p.HoldTime, p.KeepaliveTime, p.ConnectTime, p.Port = 9*time.Second, 3*time.Second, 120*time.Second, 1179
	},
	"bfd": func(p *config.Peer) {
		p.BFD = &config.BFDProfile{
			Name: "fast", ReceiveInterval: 100 * time.Millisecond, TransmitInterval: 150 * time.Millisecond,
			DetectMultiplier: 5, EchoInterval: 60 * time.Millisecond, PassiveMode: true, MinimumTTL: 250,
		}
		if p.Address.Is4() {
			p.BFD.EchoMode = true
		}
	},
	"restart":  func(p *config.Peer) { p.GracefulRestart = 120 * time.Second },
	"multihop": func(p *config.Peer) { p.Multihop = 3 },
	"password": func(p *config.Peer) { p.PasswordSecret = "tor" },
	"vrf":      func(p *config.Peer) { p.VRF = "red" },
	"source":   func(p *config.Peer) { p.SourceAddress = netip.MustParseAddr("192.0.2.11") },
	"big":      func(p *config.Peer) { p.ASN, p.LocalASN = 4200000001, 4200000000 },
	"id":       func(p *config.Peer) { p.RouterID = netip.MustParseAddr("10.0.0.7") },
}

// inPlace are the policies that make no sense for a session of every kind.
var inPlace = map[string]string{"source": "four", "multihop": "four"}

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

// routes are what is advertised, of both families.
var routes = map[string][]plan.Route{
	"nothing": nil,
	"plain":   {route("198.51.100.1/32", 100), route("2001:db8:1::1/128", 100)},
	"rich": {
		route("198.51.100.1/32", 100, "64500:100"), route("198.51.100.2/32", 200, "no-export", "64500:100", "64500:1:2", "4200000000:1:2"),
		route("203.0.113.0/24", 0, "graceful-shutdown"),
		route("2001:db8:1::1/128", 4294967295, "blackhole", "65535:6"), route("2001:db8:2::/64", 200),
	},
}

// peering is a session that asks for nothing, with routes of its families.
func peering(place string, families []config.Family, advertised string) plan.Peering {
	p := plan.Peering{Backend: config.FRRK8s, Peer: config.Peer{
		Name: fmt.Sprint(place, len(families)), Port: 179, ASN: 64501, LocalASN: 64500, Multihop: 1, Families: families,
		HoldTime: 90 * time.Second, KeepaliveTime: 30 * time.Second, ConnectTime: 30 * time.Second,
	}}
	places[place](&p.Peer)
	for _, r := range routes[advertised] {
		if slices.Contains(families, config.FamilyOf(r.Prefix.Addr())) {
			p.Routes = append(p.Routes, r)
		}
	}
	return p
}

var node = frrk8s.Node{Name: "n1", UID: "6f1c", Hostname: "host-1"}

// object is the FRRConfiguration of a policy and an advertisement, with a peer
// for each place and family.
func object(policy, advertised string, leaving plan.Reason) frrk8s.Object {
	in := frrk8s.Input{Node: node, Namespace: "frr-k8s-system"}
	for place := range places {
		if only, limited := inPlace[policy]; limited && only != place {
			continue
		}
		for i, f := range [][]config.Family{{config.IPv4}, {config.IPv6}, {config.IPv4, config.IPv6}} {
			p := peering(place, f, advertised)
			if p.Peer.Interface != "" {
				p.Peer.Interface = fmt.Sprint("eth", i)
			}
			for range i {
				p.Peer.Address = p.Peer.Address.Next()
			}
			policies[policy](&p.Peer)
			p.Leaving = leaving
			in.Peerings = append(in.Peerings, p)
		}
	}
	return frrk8s.Render(in)
}

func TestGolden(t *testing.T) {
	all := map[string]frrk8s.Object{
		"leaving":          object("plain", "rich", plan.Draining),
		"leaving-internal": object("internal", "rich", plan.Draining),
		"nothing":          object("plain", "nothing", ""),
		"rich":             object("plain", "rich", ""),
		"rich-internal":    object("internal", "rich", ""),
	}
	for policy := range policies {
		all["policy-"+policy] = object(policy, "plain", "")
	}
	for name, o := range all {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", name+".yaml"), string(text))
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) != len(all) {
		t.Errorf("%d files for %d cases (%v)", len(files), len(all), err)
	}
}
