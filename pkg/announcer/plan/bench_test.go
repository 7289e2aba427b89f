package plan

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func BenchmarkDecide10000AddressesOn1000Nodes(b *testing.B) {
	benchDecide(b, largeCluster(b, 10000, 1000, false))
}

func BenchmarkDecide5000AddressesOn50Nodes(b *testing.B) {
	benchDecide(b, largeCluster(b, 5000, 50, false))
}

func BenchmarkDecide5000LocalAddressesOn500Nodes(b *testing.B) {
	benchDecide(b, largeCluster(b, 5000, 500, true))
}

func benchDecide(b *testing.B, s Snapshot) {
	b.ReportAllocs()
	for b.Loop() {
		if got := len(Decide(s)); got != len(s.Services) {
			b.Fatalf("%d verdicts", got)
		}
	}
}

// BenchmarkNaive5000AddressesOn50Nodes is the yardstick.
func BenchmarkNaive5000AddressesOn50Nodes(b *testing.B) {
	s := largeCluster(b, 5000, 50, false)
	for b.Loop() {
		naiveRanking(s)
	}
}

// naiveRanking is the rule of others: per Service the nodes are filtered and
// then sorted with a hash inside the comparator.
func naiveRanking(s Snapshot) {
	for _, svc := range s.Services {
		a := svc.Addresses[0]
		var candidates []string
		for _, m := range s.Members {
			i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == m.Name })
			if !m.Passive && !m.Draining && i >= 0 && !s.Nodes[i].NetworkUnavailable {
				candidates = append(candidates, m.Name)
			}
		}
		slices.SortFunc(candidates, func(x, y string) int {
			sx := sha256.Sum256([]byte(x + "#" + a.String()))
			sy := sha256.Sum256([]byte(y + "#" + a.String()))
			return strings.Compare(string(sx[:]), string(sy[:]))
		})
	}
}

// largeCluster has one Service per address with four endpoints, and a node in
// fifty that is left out.
func largeCluster(b testing.TB, addresses, nodes int, local bool) Snapshot {
	configs, err := loadDocuments()
	if err != nil {
		b.Fatal(err)
	}
	s := Snapshot{Config: configs[0], Node: nodeName(0)}
	for i := range nodes {
		own := netip.AddrFrom4([4]byte{192, 0, byte(8 + i/250), byte(1 + i%250)})
		s.Nodes = append(s.Nodes, Node{Name: nodeName(i), NetworkUnavailable: i%50 == 7, Addresses: []netip.Addr{own}})
		s.Members = append(s.Members, Member{Name: nodeName(i), Links: []Link{
			{Name: "bond0", Index: 2, Up: true, NodeIP: true, Default: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.0.0/20")}},
			{Name: "cni0", Index: 3, Up: true, Prefixes: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 250), byte(i % 250), 1}), 24)}},
		}})
	}
	s.Links = s.Members[0].Links
	address := netip.MustParseAddr("198.18.0.0")
	for i := range addresses {
		svc := Service{
			Namespace: "shop", Name: fmt.Sprint("web-", i), Allocated: true, Local: local, Addresses: []netip.Addr{address},
			Labels: map[string]string{"app": fmt.Sprint("web-", i)},
		}
		for k := range 4 {
			svc.Endpoints.Ready = append(svc.Endpoints.Ready, nodeName((i*31+k*97)%nodes))
		}
		slices.Sort(svc.Endpoints.Ready)
		s.Services = append(s.Services, svc)
		address = address.Next()
	}
	return s
}

func nodeName(i int) string { return fmt.Sprintf("worker-%04d.example.net", i) }
