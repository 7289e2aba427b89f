package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const fourRouters = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools: [{name: public, addresses: [198.18.0.0/16]}]
advertisements: [{name: tor, bgp: {communities: ["64500:1"]}}]
bgp:
  localASN: 64500
  peers:
  - {name: r1, address: 192.0.15.251, asn: 64501}
  - {name: r2, address: 192.0.15.252, asn: 64501}
  - {name: r3, address: 192.0.15.253, asn: 64501}
  - {name: r4, address: 192.0.15.254, asn: 64501, localASN: 65010}
`

// routedCluster is a largeCluster whose nodes speak with four routers.
func routedCluster(t testing.TB, addresses, nodes int, local bool) Snapshot {
	t.Helper()
	s := largeCluster(t, addresses, nodes, local)
	var err error
	if s.Config, err = config.Load([]byte(fourRouters)); err != nil {
		t.Fatal(err)
	}
	return s
}

// aggregated is the document of routedCluster with prefixes instead of single
// addresses.
func aggregated(t *testing.T, length int) config.Config {
	t.Helper()
	c, err := config.Load([]byte(strings.Replace(fourRouters, "bgp: {", fmt.Sprintf("bgp: {aggregationLength: %d, ", length), 1)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An aggregate is there for as long as any address in it is.
func TestAggregateIsToldWhileAnyMemberIs(t *testing.T) {
	s := routedCluster(t, 6, 3, false)
	s.Config = aggregated(t, 30)
	all := s.Services
	var p Planner
	for _, step := range []struct {
		left []Service
		want string
	}{
		{all, "198.18.0.0/30: 4, 198.18.0.4/30: 2, "},
		{all[1:], "198.18.0.0/30: 3, 198.18.0.4/30: 2, "},
		{all[3:], "198.18.0.0/30: 1, 198.18.0.4/30: 2, "},
		{all[4:], "198.18.0.4/30: 2, "},
		{all[5:], "198.18.0.4/30: 1, "},
		{nil, ""},
		{all[2:3], "198.18.0.0/30: 1, "},
	} {
		s.Services = step.left
		p.Decide(s)
		peerings := p.Peerings()
		if len(peerings) != 4 {
			t.Fatalf("%d peerings", len(peerings))
		}
		for _, peering := range peerings {
			got := ""
			for _, route := range peering.Routes {
				got += fmt.Sprintf("%s: %d, ", route.Prefix, len(route.Services))
			}
			if got != step.want {
				t.Errorf("%d Services: %s is told %q, want %q", len(step.left), peering.Peer.Name, got, step.want)
			}
		}
	}
}

func TestPlannerTellsRoutersWhatPeeringsDoes(t *testing.T) {
	told := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 11))
		all := routedCluster(t, 40, 5+r.IntN(20), seed%2 == 0)
		if seed%4 > 1 {
			all.Config = aggregated(t, 29)
		}
		s := all
		var p Planner
		for step := range 25 {
			s.Config = all.Config // happen changes it
			p.Decide(s)
			want := Peerings(s)
			if got := p.Peerings(); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d: got %+v, want %+v", seed, step, got, want)
			}
			for _, peering := range want {
				told += len(peering.Routes)
				if peering.ASN != 64500 {
					t.Errorf("%s: the document's AS number is %d", peering.Peer.Name, peering.ASN)
				}
			}
			s = happen(t, r, s, all, seed)
		}
	}
	if told == 0 {
		t.Error("no route was compared")
	}
}

// unfit has all members take themselves for unfit.
func unfit(members []Member) {
	for i := range members {
		members[i].Unfit = [...]Reason{NodeNotReady, DataPathDown}[i%2]
	}
}

// What a node says of all others is what they do.
func TestHeraldsAreThoseWhoTellRouters(t *testing.T) {
	compared := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 12))
		s := routedCluster(t, 20, 5+r.IntN(10), seed%2 == 0)
		for step := range 4 {
			want := map[netip.Addr][]string{}
			for _, m := range s.Members {
				seen := asSeenBy(s, m.Name)
				seen.Self = m.Standing
				for _, p := range Peerings(seen) {
					if p.Peer.Name != "r1" || p.Leaving != "" {
						continue
					}
					for _, route := range p.Routes {
						want[route.Prefix.Addr()] = append(want[route.Prefix.Addr()], m.Name)
					}
				}
			}
			got := Routed(s)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d: got %v, want %v", seed, step, got, want)
			}
			compared += len(want)
			s.Members = slices.Clone(s.Members)
			s.Members[r.IntN(len(s.Members))].Draining = true
			for i := range s.Members {
				s.Members[i].Unfit = [...]Reason{"", NodeNotReady, DataPathDown}[r.IntN(3-step%2)*min(step, 1)]
			}
			if step == 2 {
				unfit(s.Members)
			}
			s = Lose(s, nodeName(r.IntN(5)))
		}
	}
	if compared == 0 {
		t.Error("no address was compared")
	}
}

// A Service says of how many nodes routers hear of it, also where it shares its
// address and a node can serve it but not the others.
func TestServicesSayHowManyNodesTellRouters(t *testing.T) {
	fewer := 0
	for seed := range uint64(20) {
		s := routedCluster(t, 20, 5+int(seed)%10, false)
		for i := range s.Services {
			s.Services[i].Local = (uint64(i)+seed)%3 != 0
			if i%2 == 1 {
				s.Services[i].Addresses = s.Services[i-1].Addresses
			}
		}
		want := map[string]int{}
		for _, m := range s.Members {
			for _, route := range Peerings(asSeenBy(s, m.Name))[0].Routes {
				for _, service := range route.Services {
					want[service]++
				}
			}
		}
		got := map[string]int{}
		for _, v := range Decide(s) {
			maps.Copy(got, v.Routed)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}
		for i, svc := range s.Services {
			if svc.Local && i%2 == 1 && want[svc.Namespace+"/"+svc.Name] < len(svc.Endpoints.Ready) {
				fewer++
			}
		}
	}
	if fewer == 0 {
		t.Error("nowhere did the others on the address matter")
	}
}

// A pass with 2,000 Services and four routers; the bound is doubled as in
// TestLargeClusterIsDecidedInTime.
func TestPassWithFourRoutersIsDecidedInTime(t *testing.T) {
	s := routedCluster(t, manyAddresses/5, 100, false)
	one := s
	one.Services = s.Services[1:]
	var p Planner
	for _, step := range []struct {
		what  string
		s     Snapshot
		bound time.Duration
	}{
		{"cold", s, 100 * time.Millisecond},
		{"nothing changed", s, 10 * time.Millisecond},
		{"one Service less", one, 100 * time.Millisecond},
	} {
		before := processorTime(t)
		p.Decide(step.s)
		peerings := p.Peerings()
		took := processorTime(t) - before
		t.Logf("%s: %s", step.what, took)
		if took > 2*step.bound {
			t.Errorf("%s: %s, want %s", step.what, took, step.bound)
		}
		if len(peerings) != 4 || len(peerings[3].Routes) != len(step.s.Services) {
			t.Fatalf("%s: %d peerings", step.what, len(peerings))
		}
	}
}

func BenchmarkPlanner2000ServicesWith4Routers(b *testing.B) {
	s := routedCluster(b, 2000, 100, false)
	one := s
	one.Services = s.Services[1:]
	for _, bench := range []struct {
		name   string
		worlds []Snapshot
	}{
		{"Unchanged", []Snapshot{s}},
		{"OneService", []Snapshot{one, s}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			var p Planner
			p.Decide(s)
			for i := 0; b.Loop(); i++ {
				p.Decide(bench.worlds[i%len(bench.worlds)])
				if got := len(p.Peerings()); got != 4 {
					b.Fatalf("%d peerings", got)
				}
			}
		})
	}
}
