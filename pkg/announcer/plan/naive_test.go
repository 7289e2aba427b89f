package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// The rules once more, without anything that makes them fast: every address,
// every node and every Service is looked at anew.

func naiveDecide(s Snapshot) []Verdict {
	addresses := map[netip.Addr]bool{}
	for _, svc := range s.Services {
		for _, a := range svc.Addresses {
			addresses[a] = true
		}
	}
	out := []Verdict{}
	for _, a := range slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare) {
		out = append(out, naiveVerdict(s, a))
	}
	return out
}

func naiveVerdict(s Snapshot, a netip.Addr) Verdict {
	v := Verdict{Address: a}
	var heard []Service
	for _, svc := range naiveHolders(s, a) {
		key := svc.Namespace + "/" + svc.Name
		reason := naiveObjection(s, a, svc)
		if reason == Honoured {
			heard = append(heard, svc)
		}
		v.Services = append(v.Services, key)
		v.Holders = append(v.Holders, Holder{key, reason})
	}
	slices.Sort(v.Services)
	if len(heard) == 0 {
		v.Reason = gravest(v.Holders)
		return v
	}
	decisive := naivePoll(s, a, heard, &v)
	if decisive != "" {
		for i := range v.Holders {
			if v.Holders[i].Reason == Honoured && v.Holders[i].Service != decisive {
				v.Holders[i].Reason = Overruled
			}
		}
	}
	v.Eligible, v.LeftOut = len(v.Candidates), map[Reason]int{}
	for _, e := range v.Excluded {
		v.LeftOut[e.Reason]++
	}
	switch {
	case v.Eligible == 0:
		v.Reason = NoEligibleNode
	case s.Config.Membership.Quorum == config.QuorumMajority && naiveMinority(s):
		v.Reason = NoQuorum
	case v.Candidates[0] == s.Node:
		v.Owner, v.Reason = s.Node, Owner
	case slices.Contains(v.Candidates, s.Node):
		v.Owner, v.Reason = v.Candidates[0], NotOwner
	default:
		v.Owner, v.Reason = v.Candidates[0], NotCandidate
	}
	return v
}

func naiveMinority(s Snapshot) bool {
	missed := 0
	for _, n := range s.Nodes {
		gone := slices.ContainsFunc(s.Departed, func(m Member) bool { return m.Name == n.Name && !m.Draining })
		if len(s.Departed) == 0 && len(s.Members) < 2 {
			gone = n.Name != s.Node && n.Labels["kubernetes.io/os"] != "windows"
		}
		if gone && n.Ready {
			missed++
		}
	}
	return missed > 0 && 2*len(s.Members) <= len(s.Members)+missed
}

// naiveRules is the lowest number of rules that a member knows.
func naiveRules(s Snapshot) int {
	rules := []int{election.Rules}
	for _, m := range s.Members {
		rules = append(rules, max(1, m.Rules))
	}
	return slices.Min(rules)
}

func naiveHolders(s Snapshot, a netip.Addr) []Service {
	var out []Service
	for _, svc := range s.Services {
		if slices.Contains(svc.Addresses, a) {
			out = append(out, svc)
		}
	}
	slices.SortFunc(out, func(x, y Service) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name))
	})
	return out
}

func naiveObjection(s Snapshot, a netip.Addr, svc Service) Reason {
	for _, n := range s.Nodes {
		if slices.Contains(n.Addresses, a) {
			return NodeAddress
		}
	}
	endpoints := len(svc.Endpoints.Ready) + len(svc.Endpoints.Terminating)
	switch {
	case slices.Contains(s.Reserved, a):
		return NodeAddress
	case svc.Deleting:
		return Deleting
	case !svc.Allocated:
		return NotAllocated
	case endpoints == 0 && (svc.Local || !svc.Endpoints.Nodeless):
		return NoEndpoints
	case len(naiveMatching(s, a, svc)) == 0:
		return NoAdvertisement
	}
	return Honoured
}

func naiveMatching(s Snapshot, a netip.Addr, svc Service) []config.Advertisement {
	pool, inPool := s.Config.PoolOf(a)
	var out []config.Advertisement
	for _, ad := range s.Config.Advertisements {
		fits := !inPool || len(ad.Pools) == 0 || slices.Contains(ad.Pools, pool.Name)
		if ad.Layer2 != nil && fits && ad.ServiceSelector.Matches(svc.Labels) {
			out = append(out, ad)
		}
	}
	return out
}

// naivePoll fills in candidates, best first, and exclusions; it returns the
// Service that decided alone.
func naivePoll(s Snapshot, a netip.Addr, heard []Service, v *Verdict) string {
	order := []Reason{"", Settling, Stale, Draining, NodeNotReady, DataPathDown, LinkDown}
	try := func(services []Service, lastResort bool) Reason {
		v.Candidates, v.Excluded, v.Behind = nil, nil, nil
		byTier := map[Reason][]string{}
		for _, name := range naiveNodes(s) {
			if reason := naiveFault(s, a, name, services, lastResort); reason != "" {
				v.Excluded = append(v.Excluded, Exclusion{name, reason})
				continue
			}
			tier := naiveTier(s, a, name, services, lastResort)
			byTier[tier] = append(byTier[tier], name)
			if tier != "" {
				if v.Behind == nil {
					v.Behind = map[string]Reason{}
				}
				v.Behind[name] = tier
			}
		}
		best := NoEligibleNode
		for _, tier := range slices.Backward(order) {
			if len(byTier[tier]) > 0 {
				v.Candidates = append(election.Rank(byTier[tier], a), v.Candidates...)
				best = tier
			}
		}
		return best
	}
	for _, lastTier := range []Reason{Stale, Draining, DataPathDown, LinkDown, "nobody else"} {
		lastResort := lastTier != Stale && lastTier != LinkDown
		good := func(best Reason) bool {
			return best != NoEligibleNode && (slices.Index(order, best) <= slices.Index(order, lastTier) || lastTier == "nobody else")
		}
		if good(try(heard, lastResort)) {
			return ""
		}
		for _, svc := range heard {
			if len(heard) > 1 && good(try([]Service{svc}, lastResort)) {
				return svc.Namespace + "/" + svc.Name
			}
		}
	}
	try(heard, false)
	return ""
}

func naiveTier(s Snapshot, a netip.Addr, name string, services []Service, lastResort bool) Reason {
	if naiveRules(s) == 1 {
		if m := naiveMember(s, name); m.Draining && lastResort {
			return Draining
		}
		return ""
	}
	m := naiveMember(s, name)
	for _, svc := range services {
		if naiveLinksDown(s, a, m, svc) {
			return LinkDown
		}
	}
	switch {
	case m.Unfit != "" && lastResort:
		return m.Unfit
	case m.Draining && lastResort:
		return Draining
	case m.Stale:
		return Stale
	case m.Settling:
		return Settling
	}
	return ""
}

func naiveMember(s Snapshot, name string) Member {
	m := s.Members[slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == name })]
	if name == s.Node {
		m.Links = append([]Link{}, s.Links...)
	}
	return m
}

// naiveLinksDown tells whether a member's links for a Service are there but down.
func naiveLinksDown(s Snapshot, a netip.Addr, m Member, svc Service) bool {
	i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == m.Name })
	var wishes []config.Layer2
	for _, ad := range naiveMatching(s, a, svc) {
		if ad.NodeSelector.Matches(s.Nodes[i].Labels) {
			wishes = append(wishes, *ad.Layer2)
		}
	}
	links := chooseLinks(m.Links, a, wishes)
	return len(links) > 0 && !links[0].Up
}

func naiveNodes(s Snapshot) []string {
	names := map[string]bool{}
	for _, n := range s.Nodes {
		names[n.Name] = true
	}
	for _, m := range s.Members {
		names[m.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func naiveFault(s Snapshot, a netip.Addr, name string, services []Service, lastResort bool) Reason {
	member := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == name })
	object := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == name })
	switch {
	case member < 0:
		return NoAnnouncer
	case s.Members[member].Passive:
		return Passive
	case s.Members[member].Draining && !lastResort:
		return Draining
	case s.Members[member].Unfit != "" && naiveRules(s) > 1 && !lastResort:
		return s.Members[member].Unfit
	case object < 0:
		return NodeMissing
	case s.Nodes[object].Deleting:
		return NodeDeleting
	case s.Nodes[object].NetworkUnavailable:
		return NetworkUnavailable
	case s.Config.ExcludeLabel.Excludes(s.Nodes[object].Labels):
		return ExcludeLabel
	case slices.ContainsFunc(s.Nodes[object].Taints, IsAway):
		return Tainted
	case s.Nodes[object].Labels["kubernetes.io/os"] == "windows":
		return Windows
	}
	links := s.Members[member].Links
	if name == s.Node {
		links = append([]Link{}, s.Links...)
	}
	var faults []Reason
	for _, svc := range services {
		faults = append(faults, naiveServiceFault(s, a, s.Nodes[object], links, svc, naiveRules(s)))
	}
	for _, first := range []Reason{NotSelected, NoInterface, NoLocalEndpoint} {
		if slices.Contains(faults, first) {
			return first
		}
	}
	return ""
}

func naiveServiceFault(s Snapshot, a netip.Addr, n Node, links []Link, svc Service, rules int) Reason {
	var wishes []config.Layer2
	for _, ad := range naiveMatching(s, a, svc) {
		if ad.NodeSelector.Matches(n.Labels) {
			wishes = append(wishes, *ad.Layer2)
		}
	}
	local := svc.Endpoints.Ready
	if len(local) == 0 {
		local = svc.Endpoints.Terminating
	}
	switch {
	case len(wishes) == 0:
		return NotSelected
	case links != nil && len(chooseLinks(links, a, wishes)) == 0:
		return NoInterface
	case links != nil && rules == 1 && !chooseLinks(links, a, wishes)[0].Up:
		return NoInterface
	case svc.Local && !slices.Contains(local, n.Name):
		return NoLocalEndpoint
	}
	return ""
}

func TestDecideAgreesWithTheNaiveRules(t *testing.T) {
	for seed := range uint64(2000) {
		s := randomSnapshot(t, seed)
		got := Decide(s)
		for i := range got {
			got[i].Links, got[i].OwnerLinks, got[i].Layer2, got[i].outcome = nil, nil, config.Layer2{}, nil
		}
		if diff := difference(naiveDecide(s), got); diff != "" {
			t.Fatalf("seed %d (-naive +got):\n%s", seed, diff)
		}
	}
}

// difference is empty for deeply equal values. Looking for it is slow.
func difference(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return gocmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreUnexported(Verdict{}))
}

// Documents to draw from: none of the pools holds 198.51.100.0/24.
var documents = []string{
	``,
	`excludeLabel: ignore
`,
	`advertisements:
- {name: a, layer2: {interfaces: ["eth*"]}}
`,
	`advertisements:
- {name: a, pools: [low], layer2: {interfaces: [eth0], gratuitousRefresh: 30s}}
- {name: b, serviceSelector: app=x, nodeSelector: rack=a, layer2: {}}
- {name: c, nodeSelector: rack=b, layer2: {interfaces: [eth1, docker0], conflictDetection: refuse}}
`,
	`advertisements:
- {name: a, serviceSelector: app=x, nodeSelector: rack=a, layer2: {}}
- {name: b, pools: [high], serviceSelector: app=y, nodeSelector: "rack in (a,b)", layer2: {interfaces: ["*"]}}
`,
}

const randomPools = `pools:
- {name: low, addresses: [192.0.2.10-192.0.2.19, "2001:db8::/112"]}
- {name: high, addresses: [192.0.2.20-192.0.2.29]}
`

var loadDocuments = sync.OnceValues(func() ([]config.Config, error) {
	var out []config.Config
	for _, d := range documents {
		c, err := config.Load([]byte(documentHead + randomPools + d))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
})

// randomSnapshot draws from few values, so that Services share addresses and
// nodes fail filters often, and combinations of that occur.
func randomSnapshot(t testing.TB, seed uint64) Snapshot {
	r := rand.New(rand.NewPCG(seed, 1))
	configs, err := loadDocuments()
	if err != nil {
		t.Fatal(err)
	}
	s := Snapshot{Config: configs[r.IntN(len(configs))], Node: fmt.Sprint("n", r.IntN(8)), Reserved: []netip.Addr{netip.MustParseAddr("192.0.2.13")}}
	one := func(in int) bool { return r.IntN(in) == 0 }
	for i := range 8 {
		name := fmt.Sprint("n", i)
		if !one(12) {
			s.Nodes = append(s.Nodes, randomNode(r, name))
		}
		if !one(8) {
			m := Member{
				Name: name, Rules: election.Rules - r.IntN(2)*r.IntN(2)*r.IntN(2), Passive: one(12), Draining: one(8), Links: randomLinks(r),
				Standing: Standing{Settling: one(5), Stale: one(8)},
			}
			if one(10) {
				m.Unfit = DataPathDown
			}
			if name == s.Node {
				s.Links = m.Links
			}
			s.Members = append(s.Members, m)
		}
	}
	for i := range 1 + r.IntN(12) {
		s.Services = append(s.Services, randomService(r, fmt.Sprint("s", i)))
	}
	return s
}

func randomNode(r *rand.Rand, name string) Node {
	n := Node{
		Name: name, Deleting: r.IntN(15) == 0, NetworkUnavailable: r.IntN(15) == 0,
		Labels: map[string]string{"rack": []string{"a", "b", "c"}[r.IntN(3)]},
	}
	switch r.IntN(12) {
	case 0:
		n.Labels[config.LabelExclude] = []string{"", "true", "false"}[r.IntN(3)]
	case 1:
		n.Labels[osLabel] = "windows"
	case 2:
		n.Taints = []string{"a", awayTaints[r.IntN(3)]}
	case 3:
		n.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.12")}
	}
	return n
}

func randomLinks(r *rand.Rand) []Link {
	if r.IntN(8) == 0 {
		return nil
	}
	prefixes := []string{"192.0.2.0/24", "192.0.2.16/28", "198.51.100.0/24", "2001:db8::/64", "fe80::/64", "192.0.2.11/32"}
	links := []Link{}
	for i, name := range []string{"eth0", "eth1", "docker0", "eth2"}[:r.IntN(5)] {
		l := Link{Name: name, Index: i + 2, Up: r.IntN(6) > 0, NodeIP: i == 0, Default: r.IntN(2) == 0, Metric: r.IntN(3)}
		for _, p := range prefixes {
			if r.IntN(3) == 0 {
				l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
			}
		}
		links = append(links, l)
	}
	return links
}

func randomService(r *rand.Rand, name string) Service {
	pool := []string{
		"192.0.2.10", "192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.20", "192.0.2.21", "198.51.100.1", "203.0.113.9",
		"2001:db8::1", "2001:db8::2",
	}
	svc := Service{
		Namespace: "shop", Name: name, Created: time.Unix(int64(r.IntN(4)), 0),
		Labels:    map[string]string{"app": []string{"x", "y", "z"}[r.IntN(3)]},
		Allocated: r.IntN(10) > 0, Deleting: r.IntN(10) == 0, Local: r.IntN(2) == 0,
		Endpoints: Endpoints{Ready: randomNames(r), Terminating: randomNames(r), Nodeless: r.IntN(4) == 0},
	}
	for range r.IntN(3) {
		svc.Addresses = append(svc.Addresses, netip.MustParseAddr(pool[r.IntN(len(pool))]))
	}
	return svc
}

func randomNames(r *rand.Rand) []string {
	var out []string
	for range r.IntN(4) * r.IntN(2) {
		out = append(out, fmt.Sprint("n", r.IntN(10)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
