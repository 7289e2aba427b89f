package frr

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// denyAll is the route map for what routers offer.
const denyAll = "ccm-nothing"

// outMap is the name of the route map for what a peer is told. It is made from
// where the peer is: two that have one name, of which one takes leave, differ
// in that.
func outMap(p config.Peer) string {
	if p.VRF != "" {
		return "ccm-" + p.VRF + "-" + neighbour(p)
	}
	return "ccm-" + neighbour(p)
}

// group is the routes of a peer that are told alike.
type group struct {
	family   config.Family
	told     string // the set commands, a line each
	prefixes []netip.Prefix
}

// policy writes the route map of a peer, and its prefix lists. What is in none
// of them is not told.
func (b *writer) policy(p Peering) {
	name := outMap(p.Peer)
	groups := grouped(p)
	numbers := numbered(groups, func(g group) string { return keyword(g.family) + g.told }, mostMapNumber)
	for i, g := range groups {
		b.list(listName(name, numbers[i]), g)
	}
	b.line(0, "route-map %s deny 65535", name)
	b.line(0, "exit")
	for i, g := range groups {
		b.line(0, "route-map %s permit %d", name, numbers[i])
		match := "ip"
		if g.family == config.IPv6 {
			match = "ipv6"
		}
		b.line(1, "match %s address prefix-list %s", match, listName(name, numbers[i]))
		for set := range strings.SplitSeq(g.told, "\n") {
			if set != "" {
				b.line(1, "set %s", set)
			}
		}
		b.line(0, "exit")
	}
}

func listName(routeMap string, number uint32) string {
	return routeMap + "-" + strconv.FormatUint(uint64(number), 10)
}

// list writes the prefix list of a group.
func (b *writer) list(name string, g group) {
	words := "ip"
	if g.family == config.IPv6 {
		words = "ipv6"
	}
	for i, number := range numbered(g.prefixes, netip.Prefix.String, mostListNumber) {
		b.line(0, "%s prefix-list %s seq %d permit %s", words, name, number, g.prefixes[i])
	}
}

// grouped sorts the routes of a peer by what is told of them.
func grouped(p Peering) []group {
	type key struct {
		family config.Family
		told   string
	}
	of := map[key]*group{}
	for _, r := range p.Routes {
		k := key{config.FamilyOf(r.Prefix.Addr()), told(p, r)}
		if !slices.Contains(p.Peer.Families, k.family) {
			continue
		}
		if of[k] == nil {
			of[k] = &group{family: k.family, told: k.told}
		}
		of[k].prefixes = append(of[k].prefixes, r.Prefix)
	}
	var out []group
	for _, g := range of {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b group) int { return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.told, b.told)) })
	return out
}

// told returns the set commands for a route. One that is about to be withdrawn
// has the community that says so, and no preference (RFC 8326, section 4.2).
func told(p Peering, r plan.Route) string {
	communities, preference := r.Communities, r.LocalPref
	if p.Leaving != "" {
		communities, preference = with(communities, config.GracefulShutdown), 0
	}
	var standard, large []string
	for _, c := range communities {
		if c.Large {
			large = append(large, c.String())
		} else {
			standard = append(standard, word(c))
		}
	}
	var out []string
	if standard != nil {
		out = append(out, "community "+strings.Join(standard, " "))
	}
	if large != nil {
		out = append(out, "large-community "+strings.Join(large, " "))
	}
	if p.Peer.Internal() {
		out = append(out, "local-preference "+strconv.FormatUint(uint64(preference), 10))
	}
	return strings.Join(out, "\n")
}

// with adds a community where it belongs.
func with(all []config.Community, c config.Community) []config.Community {
	out := append(slices.Clone(all), c)
	slices.SortFunc(out, config.Community.Compare)
	return slices.Compact(out)
}

// words are what FRR shows instead of numbers, for communities of 65535.
var words = map[uint32]string{
	0: "graceful-shutdown", 1: "accept-own", 2: "route-filter-translated-v4", 3: "route-filter-v4", 4: "route-filter-translated-v6",
	5: "route-filter-v6", 6: "llgr-stale", 7: "no-llgr", 8: "accept-own-nexthop", 666: "blackhole",
	65281: "no-export", 65282: "no-advertise", 65283: "local-AS", 65284: "no-peer",
}

func word(c config.Community) string {
	if w, ok := words[c.Local1]; ok && c.Global == 65535 {
		return w
	}
	return c.String()
}

// The largest numbers of entries; that of a route map leaves room for the last
// one, which denies.
const (
	mostMapNumber  = 65534
	mostListNumber = 1<<32 - 1
)

// numbered gives each thing a number from 1 to most that depends on its key
// alone, as long as no two hash alike: then the later one gets the next free
// number. There must be fewer things than numbers.
func numbered[T any](all []T, key func(T) string, most uint32) []uint32 {
	taken := map[uint32]bool{}
	out := make([]uint32, len(all))
	for i, one := range all {
		h := fnv.New32a()
		h.Write([]byte(key(one)))
		n := h.Sum32()%most + 1
		for taken[n] {
			n = n%most + 1
		}
		taken[n], out[i] = true, n
	}
	return out
}

func sortedKeys[T any](of map[string]T) []string { return slices.Sorted(maps.Keys(of)) }
