package frr

import (
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
// in that. No two places have one name, for neither a VRF nor a link has a /
// in its name, and none is the name of another kind of route map of ours.
func outMap(p config.Peer) string {
	if p.VRF != "" {
		return "ccm-to-" + p.VRF + "/" + neighbour(p)
	}
	return "ccm-to-" + neighbour(p)
}

// place is a prefix in a VRF.
type place struct {
	vrf    string
	prefix netip.Prefix
}

// classify gives each prefix a tag, which stays in FRR: prefixes have the same
// if all peers are told the same of them. Prefix lists would do as well, if FRR
// did not take time for each entry that grows with their number. That a peer
// takes leave changes no tag.
func classify(all []Peering) map[place]uint32 {
	heard := map[place][]string{}
	for _, p := range all {
		for _, r := range routes(p) {
			at := place{p.Peer.VRF, r.Prefix}
			heard[at] = append(heard[at], outMap(p.Peer)+" "+told(p.Peer, r))
		}
	}
	whole := func(heard []string) string { return strings.Join(slices.Sorted(slices.Values(heard)), "\n") }
	classes := map[string]uint32{}
	for _, h := range heard {
		classes[whole(h)] = 0
	}
	keys := sortedKeys(classes)
	for i, tag := range numbered(keys, func(key string) string { return key }, mostTag) {
		classes[keys[i]] = tag
	}
	out := map[place]uint32{}
	for at, h := range heard {
		out[at] = classes[whole(h)]
	}
	return out
}

// routes are those of a peer that are of its families.
func routes(p Peering) []plan.Route {
	return slices.DeleteFunc(slices.Clone(p.Routes), func(r plan.Route) bool {
		return !slices.Contains(p.Peer.Families, config.FamilyOf(r.Prefix.Addr()))
	})
}

// tagMap is the name of the route map that gives a route its tag.
func tagMap(tag uint32) string { return "ccm-tag-" + strconv.FormatUint(uint64(tag), 10) }

// tags writes the route maps that give routes their tags.
func (b *writer) tags(of map[place]uint32) {
	for _, tag := range slices.Compact(slices.Sorted(maps.Values(of))) {
		b.line(0, "route-map %s permit 1", tagMap(tag))
		b.line(1, "set tag %d", tag)
		b.line(0, "exit")
	}
}

// policy writes the route map of a peer. What has none of the tags in it is not
// told.
func (b *writer) policy(p Peering, of map[place]uint32) {
	name := outMap(p.Peer)
	sets := map[uint32]string{}
	if !p.Closed {
		for _, r := range routes(p) {
			sets[of[place{p.Peer.VRF, r.Prefix}]] = told(p.Peer, asked(p, r))
		}
	}
	b.line(0, "route-map %s deny 65535", name)
	b.line(0, "exit")
	tags := slices.Sorted(maps.Keys(sets))
	for i, number := range numbered(tags, tagMap, mostMapNumber) {
		b.line(0, "route-map %s permit %d", name, number)
		b.line(1, "match tag %d", tags[i])
		for set := range strings.SplitSeq(sets[tags[i]], "\n") {
			if set != "" {
				b.line(1, "set %s", set)
			}
		}
		b.line(0, "exit")
	}
}

// asked returns a route as its router is told it. One that is about to be
// withdrawn has the community that says so, and no preference (RFC 8326,
// section 4.2).
func asked(p Peering, r plan.Route) plan.Route {
	if p.Leaving != "" {
		r.Communities, r.LocalPref = with(r.Communities, config.GracefulShutdown), 0
	}
	return r
}

// told returns the set commands for a route, a line each.
func told(p config.Peer, r plan.Route) string {
	var standard, large []string
	for _, c := range r.Communities {
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
	if p.Internal() {
		out = append(out, "local-preference "+strconv.FormatUint(uint64(r.LocalPref), 10))
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
	mostMapNumber = 65534
	mostTag       = 1<<32 - 1
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
