package bgp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// sender makes the UPDATE messages of one session.
type sender struct {
	localASN uint32
	internal bool
	wide     bool // AS numbers have four bytes
	mapped   bool // IPv4 routes have an IPv6 next hop (RFC 8950)
	hops     map[config.Family][]netip.Addr
}

// newSender works out the next hops of a session. A family that is left out
// has none; mute says why.
func newSender(c config.Peer, t terms, via Transport) (s sender, mute map[config.Family]string) {
	s = sender{localASN: c.LocalASN, internal: t.asn == c.LocalASN, wide: t.wide, hops: map[config.Family][]netip.Addr{}}
	mute = map[config.Family]string{}
	for _, f := range c.Families {
		switch {
		case !slices.Contains(t.families, f):
			mute[f] = "the router does not speak it"
		case f == config.IPv4 && via.IPv4.IsValid():
			s.hops[f] = []netip.Addr{via.IPv4}
		case f == config.IPv4 && t.overIPv6 && via.ipv6() != nil:
			s.hops[f], s.mapped = via.ipv6(), true
		case f == config.IPv6 && via.ipv6() != nil:
			s.hops[f] = via.ipv6()
		default:
			mute[f] = "the link of the session has no such address, so there is no next hop"
		}
	}
	return s, mute
}

// ipv6 returns the IPv6 next hop: a global address, and the link-local one if
// the router is on the link (RFC 2545, section 3). A link without a global one
// has the link-local one in both places, as routers on unnumbered links do.
func (t Transport) ipv6() []netip.Addr {
	switch {
	case t.IPv6.IsValid() && t.LinkLocal.IsValid():
		return []netip.Addr{t.IPv6, t.LinkLocal}
	case t.IPv6.IsValid():
		return []netip.Addr{t.IPv6}
	case t.LinkLocal.IsValid():
		return []netip.Addr{t.LinkLocal, t.LinkLocal}
	}
	return nil
}

// sends tells whether routes of a family go out.
func (s sender) sends(f config.Family) bool { return len(s.hops[f]) > 0 }

// batch is one UPDATE and the prefixes in it.
type batch struct {
	bytes    []byte
	prefixes []netip.Prefix
}

// withdrawals returns messages that withdraw prefixes.
func (s sender) withdrawals(prefixes []netip.Prefix) ([]batch, error) {
	var out []batch
	for _, f := range []config.Family{config.IPv4, config.IPv6} {
		of := ofFamily(prefixes, f)
		for len(of) > 0 {
			var some []netip.Prefix
			some, of = fitting(of, headerSize+16)
			b, err := s.withdrawal(f, some)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
	}
	return out, nil
}

func (s sender) withdrawal(f config.Family, prefixes []netip.Prefix) (batch, error) {
	nlri, err := reachability(prefixes)
	if err != nil {
		return batch{}, err
	}
	if f == config.IPv4 && !s.mapped {
		return pack(bgp.NewBGPUpdateMessage(nlri, nil, nil), prefixes)
	}
	gone, err := bgp.NewPathAttributeMpUnreachNLRI(families[f], nlri)
	if err != nil {
		return batch{}, fmt.Errorf("make a withdrawal: %w", err)
	}
	return pack(bgp.NewBGPUpdateMessage(nil, []bgp.PathAttributeInterface{gone}, nil), prefixes)
}

// announcements returns messages that announce routes. Those with equal
// attributes share one, as far as they fit.
func (s sender) announcements(routes []plan.Route) ([]batch, error) {
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(a, b plan.Route) int {
		return cmp.Or(
			cmp.Compare(config.FamilyOf(a.Prefix.Addr()), config.FamilyOf(b.Prefix.Addr())),
			cmp.Compare(a.LocalPref, b.LocalPref), slices.CompareFunc(a.Communities, b.Communities, config.Community.Compare))
	})
	var out []batch
	for len(routes) > 0 {
		n := 1
		for n < len(routes) && alike(routes[0], routes[n]) {
			n++
		}
		some, err := s.announcement(routes[0], prefixesOf(routes[:n]))
		if err != nil {
			return nil, err
		}
		out, routes = append(out, some...), routes[n:]
	}
	return out, nil
}

// alike tells whether two routes can share a message.
func alike(a, b plan.Route) bool {
	return config.FamilyOf(a.Prefix.Addr()) == config.FamilyOf(b.Prefix.Addr()) &&
		a.LocalPref == b.LocalPref && slices.Equal(a.Communities, b.Communities)
}

// announcement returns the messages for prefixes that are told as like is.
func (s sender) announcement(like plan.Route, prefixes []netip.Prefix) ([]batch, error) {
	f := config.FamilyOf(like.Prefix.Addr())
	attributes := s.attributes(like)
	size := headerSize + 4 + 64 // the lengths, and a next hop with all that is round it
	for _, a := range attributes {
		b, err := a.Serialize()
		if err != nil {
			return nil, fmt.Errorf("encode an attribute: %w", err)
		}
		size += len(b)
	}
	var out []batch
	for len(prefixes) > 0 {
		var some []netip.Prefix
		some, prefixes = fitting(prefixes, size)
		b, err := s.reach(f, attributes, some)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// reach makes one message that announces prefixes.
func (s sender) reach(f config.Family, attributes []bgp.PathAttributeInterface, prefixes []netip.Prefix) (batch, error) {
	nlri, err := reachability(prefixes)
	if err != nil {
		return batch{}, err
	}
	if f == config.IPv4 && !s.mapped {
		hop, err := bgp.NewPathAttributeNextHop(s.hops[f][0])
		if err != nil {
			return batch{}, fmt.Errorf("make a next hop: %w", err)
		}
		return pack(bgp.NewBGPUpdateMessage(nil, ordered(attributes, hop), nlri), prefixes)
	}
	reach, err := bgp.NewPathAttributeMpReachNLRI(families[f], nlri, s.hops[f]...)
	if err != nil {
		return batch{}, fmt.Errorf("make an announcement: %w", err)
	}
	return pack(bgp.NewBGPUpdateMessage(nil, ordered(attributes, reach), nil), prefixes)
}

// ordered returns the attributes of a message by type (RFC 4271, section 5).
func ordered(some []bgp.PathAttributeInterface, another bgp.PathAttributeInterface) []bgp.PathAttributeInterface {
	all := append(slices.Clone(some), another)
	slices.SortFunc(all, func(a, b bgp.PathAttributeInterface) int { return cmp.Compare(a.GetType(), b.GetType()) })
	return all
}

// attributes are all but the next hop. They are equal on every node, so that
// routers can share the traffic among them.
func (s sender) attributes(r plan.Route) []bgp.PathAttributeInterface {
	out := append([]bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)}, s.path()...)
	if s.internal {
		// RFC 4271, section 5.1.5: it must be sent to internal peers, and must not to others.
		out = append(out, bgp.NewPathAttributeLocalPref(r.LocalPref))
	}
	var standard []uint32
	var large []*bgp.LargeCommunity
	for _, c := range r.Communities {
		if c.Large {
			large = append(large, bgp.NewLargeCommunity(c.Global, c.Local1, c.Local2))
		} else {
			standard = append(standard, c.Global<<16|c.Local1)
		}
	}
	if standard != nil {
		out = append(out, bgp.NewPathAttributeCommunities(standard))
	}
	if large != nil {
		out = append(out, bgp.NewPathAttributeLargeCommunities(large))
	}
	return out
}

// path is the AS path: our number for others, nothing within our AS. A router
// that knows numbers of two bytes only gets the whole one beside it (RFC 6793,
// section 4.2.2).
func (s sender) path() []bgp.PathAttributeInterface {
	switch {
	case s.internal:
		return []bgp.PathAttributeInterface{bgp.NewPathAttributeAsPath(nil)}
	case s.wide:
		return []bgp.PathAttributeInterface{bgp.NewPathAttributeAsPath(
			[]bgp.AsPathParamInterface{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{s.localASN})})}
	}
	short := uint16(asTrans)
	if s.localASN <= math.MaxUint16 {
		short = uint16(s.localASN)
	}
	out := []bgp.PathAttributeInterface{bgp.NewPathAttributeAsPath(
		[]bgp.AsPathParamInterface{bgp.NewAsPathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint16{short})})}
	if short == asTrans {
		out = append(out, bgp.NewPathAttributeAs4Path(
			[]*bgp.As4PathParam{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{s.localASN})}))
	}
	return out
}

// endOfRIB says that all has been said (RFC 4724, section 2).
func (s sender) endOfRIB(f config.Family) ([]byte, error) {
	b, err := pack(bgp.NewEndOfRib(families[f]), nil)
	return b.bytes, err
}

func ofFamily(prefixes []netip.Prefix, f config.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if config.FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}

func prefixesOf(routes []plan.Route) []netip.Prefix {
	out := make([]netip.Prefix, len(routes))
	for i, r := range routes {
		out[i] = r.Prefix
	}
	return out
}

// fitting cuts off as many prefixes as fit a message of which some bytes are
// taken already; at least one.
func fitting(prefixes []netip.Prefix, taken int) (some, rest []netip.Prefix) {
	n := 0
	for n < len(prefixes) {
		taken += 1 + (prefixes[n].Bits()+7)/8
		if taken > mostMessage && n > 0 {
			break
		}
		n++
	}
	return prefixes[:n], prefixes[n:]
}

func reachability(prefixes []netip.Prefix) ([]bgp.PathNLRI, error) {
	out := make([]bgp.PathNLRI, len(prefixes))
	for i, p := range prefixes {
		nlri, err := bgp.NewIPAddrPrefix(p)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", p, err)
		}
		out[i] = bgp.PathNLRI{NLRI: nlri}
	}
	return out, nil
}

// pack encodes an UPDATE.
func pack(m *bgp.BGPMessage, prefixes []netip.Prefix) (batch, error) {
	b, err := m.Serialize()
	if err != nil {
		return batch{}, fmt.Errorf("encode an UPDATE: %w", err)
	}
	if len(b) > mostMessage || int(binary.BigEndian.Uint16(b[16:])) != len(b) {
		return batch{}, fmt.Errorf("an UPDATE of %d prefixes has %d bytes", len(prefixes), len(b))
	}
	return batch{b, prefixes}, nil
}
