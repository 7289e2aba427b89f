package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// bgp makes the BGP, with the checks that need several values.
func (d *decoder) bgp(doc bgpDoc) BGP {
	b := doc.BGP
	b.Backend = doc.backend.value
	profiles := d.profiles(doc.profiles)
	var entities []entity
	for _, p := range doc.peers {
		entities = append(entities, entity{p.place, p.value.name})
	}
	for i, name := range d.names("peer", entities) {
		p := d.peer(doc.peers[i], b, profiles)
		p.Name = name
		b.Peers = append(b.Peers, p)
	}
	d.peersApart(doc.peers, b.Peers)
	d.able(doc, b)
	return b
}

// peer fills in what a peer has from others, and checks what does not go together.
func (d *decoder) peer(doc placed[peerDoc], b BGP, profiles map[string]*BFDProfile) Peer {
	v := doc.value
	p := v.Peer
	p.Address, p.Interface, p.VRF, p.Port = v.address.value, v.link.value, v.vrf.value, v.port.value
	p.ASN, p.Kind, p.Passive, p.GracefulRestart = v.asn.number, v.asn.kind, v.passive.value, v.restart.value
	p.SourceAddress, p.Multihop, p.TTLSecurity = v.source.value, v.multihop.value, v.security.value
	p.LocalASN = cmp.Or(v.localASN.value, b.LocalASN)
	if p.RouterID = v.routerID.value; !p.RouterID.IsValid() {
		p.RouterID = b.RouterID
	}
	slices.Sort(p.Families)
	switch {
	case p.Families != nil:
	case p.Interface != "":
		p.Families = []Family{IPv4, IPv6}
	case p.Address.IsValid():
		p.Families = []Family{FamilyOf(p.Address)}
	}
	d.whereabouts(doc, p)
	d.times(v, &p)
	if p.LocalASN == 0 {
		d.fail(doc.place, "our AS number is missing: set bgp.localASN, or localASN here")
	}
	d.hops(v, p)
	d.bfd(v, &p, profiles)
	return p
}

// whereabouts checks what says where a peer is, and from where we speak to it.
func (d *decoder) whereabouts(doc placed[peerDoc], p Peer) {
	v := doc.value
	switch {
	case v.address.path == "" && v.link.path == "":
		at := doc.place
		at.path = join(at.path, "address")
		d.fail(at, "is missing; for example address: 192.0.2.1")
	case v.address.path != "" && v.link.path != "":
		d.fail(v.link.place, "does not go together with address: with an interface the router's address does not matter, remove one")
	case v.link.path != "" && v.source.path != "":
		d.fail(v.source.place, "does not go together with interface: such a session is between link-local addresses")
	case p.SourceAddress.IsValid() && p.Address.IsValid() && FamilyOf(p.SourceAddress) != FamilyOf(p.Address):
		d.fail(v.source.place, "%s is of another family than the peer's address %s", p.SourceAddress, p.Address)
	}
}

// times works out the times of a session.
func (d *decoder) times(v peerDoc, p *Peer) {
	p.HoldTime, p.KeepaliveTime = v.hold.value, v.keep.value
	switch {
	case p.KeepaliveTime == 0:
		p.KeepaliveTime = p.HoldTime / 3
	case p.HoldTime > 0 && 3*p.KeepaliveTime > p.HoldTime:
		d.fail(v.keep.place, "%s is more than a third of the hold time of %s: one lost packet would end the session", seconds(p.KeepaliveTime), seconds(p.HoldTime))
	}
}

// hops checks what says how far away a peer is.
func (d *decoder) hops(v peerDoc, p Peer) {
	onLink := p.Address.IsLinkLocalUnicast() || p.Interface != ""
	if onLink && p.TTLSecurity > 1 {
		d.fail(v.security.place, "%d makes no sense for a router on the link: it is one hop away", p.TTLSecurity)
	}
	switch far := v.multihop; {
	case far.path == "":
	case v.security.path != "":
		d.fail(far.place, "does not go together with ttlSecurity, which says how many hops there are: remove one")
	case p.LocalASN != 0 && p.Internal():
		d.fail(far.place, "is for routers of another AS: one of our own may be any number of hops away")
	case onLink:
		d.fail(far.place, "makes no sense for a link-local address, which no packet reaches from another link")
	}
}

// peersApart reports peers with one address that a Node could have both, each
// with the first other one: all pairs of a thousand would be more than anybody reads.
func (d *decoder) peersApart(docs []placed[peerDoc], peers []Peer) {
	for i, p := range peers {
		for j, other := range peers[:i] {
			if p.sameRouter(other) && p.Port == other.Port && !disjoint(p.NodeSelector, other.NodeSelector) {
				d.fail(docs[i].value.whereabouts(), "%s port %d is the router of %s too, and a Node may match both node selectors: make them exclude each other by a label",
					p.Router(), p.Port, docs[j].place)
				break
			}
		}
	}
}

// whereabouts is the place of what says where the peer is.
func (v peerDoc) whereabouts() place {
	if v.link.path != "" {
		return v.link.place
	}
	return v.address.place
}

// sameRouter tells whether two peers are at one place.
func (p Peer) sameRouter(other Peer) bool {
	there := p.Address.IsValid() || p.Interface != ""
	return there && p.Address == other.Address && p.Interface == other.Interface && p.VRF == other.VRF
}

// disjoint tells whether it can be seen that no labels match both selectors.
func disjoint(a, b Selector) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	for _, x := range a {
		for _, y := range b {
			if !exclusive(x, y) {
				return false
			}
		}
	}
	return true
}

// exclusive tells whether two selectors ask for different things of one label.
func exclusive(a, b labels.Selector) bool {
	left, _ := a.Requirements()
	right, _ := b.Requirements()
	for _, x := range left {
		for _, y := range right {
			if x.Key() == y.Key() && (contradicts(x, y) || contradicts(y, x)) {
				return true
			}
		}
	}
	return false
}

// contradicts tells whether no value can meet both requirements on a label.
func contradicts(x, y labels.Requirement) bool {
	switch {
	case isAnyOf(x) && isAnyOf(y):
		return !x.Values().HasAny(y.ValuesUnsorted()...)
	case isAnyOf(x) && isNoneOf(y):
		return y.Values().IsSuperset(x.Values())
	default:
		return y.Operator() == selection.DoesNotExist && (isAnyOf(x) || x.Operator() == selection.Exists)
	}
}

func isAnyOf(r labels.Requirement) bool {
	return slices.Contains([]selection.Operator{selection.In, selection.Equals, selection.DoubleEquals}, r.Operator())
}

func isNoneOf(r labels.Requirement) bool {
	return slices.Contains([]selection.Operator{selection.NotIn, selection.NotEquals}, r.Operator())
}

// bgpAdvertisement makes the BGP part of an advertisement.
func (d *decoder) bgpAdvertisement(at place, doc bgpAdvertisementDoc, b BGP, aliases map[string]Community) *BGPAdvertisement {
	a := doc.BGPAdvertisement
	a.AggregationLength, a.AggregationLengthV6 = doc.length4.value, doc.length6.value
	var known []string
	for _, p := range b.Peers {
		if p.Name != "" {
			known = append(known, p.Name)
		}
	}
	if known == nil {
		d.fail(at, "there are no peers to advertise to: list them in bgp.peers")
	}
	for _, name := range doc.peers {
		if known != nil && !slices.Contains(known, name.value) {
			d.fail(name.place, "there is no peer %s; the peers are %s", quote(name.value), strings.Join(known, ", "))
		}
		a.Peers = append(a.Peers, name.value)
	}
	for _, text := range doc.communities {
		if c, ok := d.community(text, aliases); ok {
			a.Communities = append(a.Communities, c)
		}
	}
	slices.SortFunc(a.Communities, Community.Compare)
	a.Communities = slices.Compact(a.Communities)
	return &a
}

// community reads a community or an alias of one.
func (d *decoder) community(text placed[string], aliases map[string]Community) (Community, bool) {
	if c, ok := aliases[text.value]; ok {
		return c, true
	}
	c, err := ParseCommunity(text.value)
	switch {
	case err == nil:
		return c, true
	case text.value == "" || strings.Contains(text.value, ":"):
		d.fail(text.place, "%s %v", quote(text.value), err)
	default:
		names := slices.Concat(slices.Sorted(maps.Keys(aliases)), slices.Sorted(maps.Keys(wellKnown)))
		d.fail(text.place, "there is no community %s: neither bgp.communityAliases nor the standards have that name; known are %s",
			quote(text.value), strings.Join(names, ", "))
	}
	return Community{}, false
}

// mostCommunities bounds what one route may be sent with: an UPDATE has 4,096
// bytes, and an attribute must leave room for the prefix.
const mostCommunities = 100

// communities checks that the routes of all advertisements together fit a message.
func (d *decoder) communities(docs []placed[advertisementDoc], advertisements []Advertisement) {
	all := map[Community]bool{}
	for i, a := range advertisements {
		if a.BGP == nil {
			continue
		}
		for _, c := range a.BGP.Communities {
			all[c] = true
		}
		if len(all) > mostCommunities {
			d.fail(docs[i].place, "this makes more than %d different communities in all advertisements together: a route could have them all", mostCommunities)
			return
		}
	}
}

// aggregates checks that no aggregate reaches beyond the pools it is for: a
// router would send us what belongs to others.
func (d *decoder) aggregates(doc bgpAdvertisementDoc, names []string, pools []placed[poolDoc], poolNames []string) {
	for _, f := range []struct {
		family Family
		length placed[int]
		whole  int
	}{{IPv4, doc.length4, 32}, {IPv6, doc.length6, 128}} {
		if f.length.path == "" || f.length.value == f.whole {
			continue
		}
		for i, p := range pools {
			if len(names) > 0 && !slices.Contains(names, poolNames[i]) {
				continue
			}
			if prefix, found := beyond(union(p.value.addresses.items).Ranges(), f.family, f.length.value); found {
				d.fail(f.length.place, "%s would reach beyond pool %s: a prefix must be in the pool as a whole", prefix, quote(poolNames[i]))
			}
		}
	}
}

// beyond returns a prefix of some length that has an address of the ranges and
// one that is in none of them. The ranges neither overlap nor touch.
func beyond(ranges []netipx.IPRange, family Family, length int) (netip.Prefix, bool) {
	for _, r := range ranges {
		if FamilyOf(r.From()) != family {
			continue
		}
		for _, end := range []netip.Addr{r.From(), r.To()} {
			prefix := netip.PrefixFrom(end, length).Masked()
			if span := netipx.RangeOfPrefix(prefix); !r.Contains(span.From()) || !r.Contains(span.To()) {
				return prefix, true
			}
		}
	}
	return netip.Prefix{}, false
}

// preferences reports two advertisements of which every route would have both,
// with different local preferences.
func (d *decoder) preferences(docs []placed[advertisementDoc], advertisements []Advertisement) {
	for i, a := range advertisements {
		for j, b := range advertisements[:i] {
			if a.BGP == nil || b.BGP == nil || !collide(a, b) {
				continue
			}
			d.fail(docs[i].place, "has local preference %d, and %s has %d for the same routes to the same peers",
				*a.BGP.LocalPref, docs[j].place, *b.BGP.LocalPref)
		}
	}
}

// collide tells whether it can be seen that some route has both preferences.
// What selectors make of it shows only with the Services and Nodes.
func collide(a, b Advertisement) bool {
	x, y := a.BGP, b.BGP
	same := x.AggregationLength == y.AggregationLength || x.AggregationLengthV6 == y.AggregationLengthV6
	plain := len(a.ServiceSelector)+len(b.ServiceSelector)+len(a.NodeSelector)+len(b.NodeSelector) == 0
	return same && plain && x.LocalPref != nil && y.LocalPref != nil && *x.LocalPref != *y.LocalPref &&
		meet(a.Pools, b.Pools) && meet(x.Peers, y.Peers)
}

// meet tells whether two lists have a name in common; an empty one has them all.
func meet(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// bgpWarnings returns what is odd about the BGP of a configuration.
func bgpWarnings(c Config) []Error {
	var out []Error
	used := slices.ContainsFunc(c.Advertisements, func(a Advertisement) bool { return a.BGP != nil })
	if len(c.BGP.Peers) > 0 && !used {
		out = append(out, Error{Path: "bgp.peers", Message: "no advertisement has bgp: the sessions come up and nothing is advertised"})
	}
	if c.BGP.RouterID.IsValid() {
		out = append(out, Error{Path: "bgp.routerID", Message: "all nodes would have this router ID, and routers refuse the second one: set it only if one node speaks BGP"})
	}
	for i, a := range c.Advertisements {
		if a.BGP != nil && a.BGP.LocalPref != nil && !slices.ContainsFunc(c.BGP.Peers, func(p Peer) bool {
			return p.Internal() && (len(a.BGP.Peers) == 0 || slices.Contains(a.BGP.Peers, p.Name))
		}) {
			out = append(out, Error{Path: fmt.Sprintf("advertisements[%d] (%s).bgp.localPref", i, a.Name), Message: "none of the peers is in our AS: nobody is told"})
		}
	}
	return out
}
