package config

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// bgpDoc is a BGP without the fields that have to be worked out.
type bgpDoc struct {
	BGP
	backend  placed[Backend]
	aliases  map[string]Community
	profiles []placed[profileDoc]
	peers    []placed[peerDoc]
}

// peerDoc is a Peer without the fields that have to be worked out.
type peerDoc struct {
	Peer
	name     placed[string]
	address  placed[netip.Addr]
	link     placed[string]
	vrf      placed[string]
	passive  placed[bool]
	profile  placed[string]
	port     placed[int]
	asn      asn
	localASN placed[uint32]
	routerID placed[netip.Addr]
	source   placed[netip.Addr]
	hold     placed[time.Duration]
	keep     placed[time.Duration]
	multihop placed[int]
	security placed[int]
	restart  placed[time.Duration]
}

// bgpAdvertisementDoc is a BGPAdvertisement without the fields that have to be
// worked out.
type bgpAdvertisementDoc struct {
	BGPAdvertisement
	peers       []placed[string]
	communities []placed[string]
	length4     placed[int]
	length6     placed[int]
}

// The bounds of a pause before addresses are withdrawn: a pod has 20 s to end.
const longestLeavePause = 15 * time.Second

func defaultBGP() bgpDoc {
	return bgpDoc{BGP: BGP{LeavePause: 3 * time.Second}, backend: placed[Backend]{value: Embedded}}
}

var bgpShape = object(
	"a mapping", "{localASN: 65010, peers: [{name: tor-a, address: 192.0.2.1, asn: 65001}]}", defaultBGP,
	field("backend", withPlace(oneOf(Embedded, FRR, FRRK8s)), func(b *bgpDoc) *placed[Backend] { return &b.backend },
		"What speaks BGP: `embedded` is the announcer itself, `frr` an FRR beside it or on the host, `frr-k8s` one that the cluster has. [What each can do](bgp-backends.md); default: `embedded`."),
	field("localASN", asNumber("65010"), func(b *bgpDoc) *uint32 { return &b.LocalASN },
		"Our AS number on every session whose peer names no other."),
	field("routerID", ipv4("10.0.0.1"), func(b *bgpDoc) *netip.Addr { return &b.RouterID },
		"Our router ID, written as an IPv4 address. It is for clusters of one Node: without it each node derives its own from its name, and no two nodes may have the same."),
	field("communityAliases", dictionary("a mapping of names to communities", `{blue: "65000:7"}`, alias(), "65000:7"),
		func(b *bgpDoc) *map[string]Community { return &b.aliases },
		"Names for communities, to be used by advertisements."),
	field("leavePause", duration(0, longestLeavePause, "3s"), func(b *bgpDoc) *time.Duration { return &b.LeavePause },
		"How long a node that leaves goes on serving what it has asked its routers to avoid, before it withdraws it."),
	field("peers", list("a list of peers", "[{name: tor-a, address: 192.0.2.1, asn: 65001}]", withPlace(peerShape),
		listRules{empty: "remove the key if there is no router to speak to"}),
		func(b *bgpDoc) *[]placed[peerDoc] { return &b.peers },
		"The routers, each with the session that nodes have with it."),
	field("bfdProfiles", list("a list of BFD profiles", "[{name: fast, receiveInterval: 100ms, transmitInterval: 100ms}]", withPlace(profileShape),
		listRules{empty: "remove the key if no session has BFD"}),
		func(b *bgpDoc) *[]placed[profileDoc] { return &b.profiles },
		"Ways to notice a dead peer within a second (BFD, RFC 5880), to be chosen by peers."),
)

func defaultPeer() peerDoc {
	return peerDoc{
		Peer: Peer{ConnectTime: 30 * time.Second}, port: placed[int]{value: 179},
		hold: placed[time.Duration]{value: 90 * time.Second}, multihop: placed[int]{value: 1},
	}
}

var peerShape = anyOf(object(
	"a mapping", "{name: tor-a, address: 192.0.2.1, asn: 65001}", defaultPeer,
	field("name", withPlace(name("tor-a")), func(p *peerDoc) *placed[string] { return &p.name },
		"The name by which advertisements, messages and metrics know the peer. One may go without: it is called `default`."),
	field("address", withPlace(peerAddress()), func(p *peerDoc) *placed[netip.Addr] { return &p.address },
		"The address of the router. A link-local one has its interface with it: `fe80::1%eth0`. Two peers may have the same if their `nodeSelector`s cannot select the same Node."),
	field("interface", withPlace(interfaceName("eth0")), func(p *peerDoc) *placed[string] { return &p.link },
		"Instead of `address`: the link that has the router at its other end, whatever its address (an unnumbered session)."),
	field("vrf", withPlace(interfaceName("red")), func(p *peerDoc) *placed[string] { return &p.vrf },
		"The VRF of the node that the session is in, and whose routes its packets take; default: none."),
	required(field("asn", peerASN(), func(p *peerDoc) *asn { return &p.asn },
		"Its AS number; or `internal` for any router that has ours, `external` for any that has another.")),
	field("port", withPlace(integer(1, 65535, "179")), func(p *peerDoc) *placed[int] { return &p.port },
		"Its TCP port; default: 179."),
	field("localASN", withPlace(asNumber("65020")), func(p *peerDoc) *placed[uint32] { return &p.localASN },
		"Our AS number on this session; default: `bgp.localASN`. With a `nodeSelector` it gives nodes different ones."),
	field("routerID", withPlace(ipv4("10.0.0.1")), func(p *peerDoc) *placed[netip.Addr] { return &p.routerID },
		"Our router ID on this session; default: `bgp.routerID`."),
	field("sourceAddress", withPlace(address("192.0.2.11")), func(p *peerDoc) *placed[netip.Addr] { return &p.source },
		"The node's address to connect from. Nodes that do not have it have no session; default: as the kernel chooses."),
	field("holdTime", withPlace(wholeSeconds(3*time.Second, math.MaxUint16*time.Second, "90s")), func(p *peerDoc) *placed[time.Duration] { return &p.hold },
		"A session without a sign of life for so long is given up. The shorter of both sides' counts; default: 90s."),
	field("keepaliveTime", withPlace(wholeSeconds(time.Second, math.MaxUint16/2*time.Second, "30s")), func(p *peerDoc) *placed[time.Duration] { return &p.keep },
		"How often we give a sign of life, at least three times per hold time; default: a third of it."),
	field("connectTime", wholeSeconds(time.Second, math.MaxUint16*time.Second, "30s"), func(p *peerDoc) *time.Duration { return &p.ConnectTime },
		"The longest pause between two attempts to connect. The first is a second, each is twice the one before, and up to a quarter is taken off at random."),
	field("multihop", withPlace(integer(1, 254, "2")), func(p *peerDoc) *placed[int] { return &p.multihop },
		"How many hops a router of another AS may be away: the TTL of our packets; default: 1, a router on the same link."),
	field("ttlSecurity", withPlace(integer(1, 254, "1")), func(p *peerDoc) *placed[int] { return &p.security },
		"Send with TTL 255, and drop packets of the router that have come over more hops than so many (RFC 5082). The router must do the same; default: off."),
	field("passwordSecret", secretName(), func(p *peerDoc) *string { return &p.PasswordSecret },
		"The Secret, in the namespace of the announcer, whose key `password` authenticates every segment (TCP MD5, RFC 2385)."),
	field("gracefulRestart", withPlace(wholeSeconds(time.Second, 4095*time.Second, "120s")), func(p *peerDoc) *placed[time.Duration] { return &p.restart },
		"Ask the router to keep our routes for so long while an announcer restarts (RFC 4724). Without it an announcer that ends withdraws them, as `leavePause` says."),
	field("families", list("a list of families", "[IPv4, IPv6]", oneOf(IPv4, IPv6), listRules{empty: "remove the key for the family of the address", distinct: true}),
		func(p *peerDoc) *[]Family { return &p.Families },
		"The families of the addresses that are advertised on this session; default: that of `address`, with `interface` both."),
	field("passive", withPlace(boolean()), func(p *peerDoc) *placed[bool] { return &p.passive },
		"Wait for the router to connect instead of connecting to it; default: false."),
	field("bfdProfile", withPlace(reference("fast")), func(p *peerDoc) *placed[string] { return &p.profile },
		"The name of the BFD profile of this session; default: no BFD."),
	field("nodeSelector", selector(), func(p *peerDoc) *Selector { return &p.NodeSelector },
		"Labels of the Nodes that have this session."),
), "address", "interface")

var bgpAdvertisementShape = object(
	"a mapping", "{}",
	func() bgpAdvertisementDoc {
		return bgpAdvertisementDoc{length4: placed[int]{value: 32}, length6: placed[int]{value: 128}}
	},
	field("peers", list("a list of names of peers", "[tor-a]", withPlace(reference("tor-a")), listRules{empty: "remove the key to advertise to all peers", distinct: true}),
		func(a *bgpAdvertisementDoc) *[]placed[string] { return &a.peers },
		"The peers to advertise to. Without this key: all."),
	field("communities", list("a list of communities", `["65000:100", no-export]`, withPlace(reference(`"65000:100"`)), listRules{distinct: true}),
		func(a *bgpAdvertisementDoc) *[]placed[string] { return &a.communities },
		"Communities of the routes: `65000:100`, `65000:1:2` for a large one, a well-known name such as `no-export`, or an alias. Those of several advertisements for one route add up."),
	field("localPref", pointer(localPreference()), func(a *bgpAdvertisementDoc) **uint32 { return &a.LocalPref },
		"The local preference that routers of our own AS are told; others never are; default: 100."),
	field("aggregationLength", withPlace(integer(1, 32, "24")), func(a *bgpAdvertisementDoc) *placed[int] { return &a.length4 },
		"Advertise IPv4 prefixes of this length, each while any address in it is announced; default: 32. All of a prefix must be in the pool."),
	field("aggregationLengthV6", withPlace(integer(1, 128, "64")), func(a *bgpAdvertisementDoc) *placed[int] { return &a.length6 },
		"The same for IPv6; default: 128."),
)

// mapped is a shape whose value is turned into another type.
func mapped[A, B any](s shape[A], turn func(A) B, plain func(B) any) shape[B] {
	return shape[B]{spec: s.spec, plain: plain, read: func(d *decoder, n node) (B, bool) {
		value, ok := s.read(d, n)
		return turn(value), ok
	}}
}

// asn is an AS number, or what stands for one.
type asn struct {
	number uint32
	kind   PeerKind
}

// asTrans is what 4-byte AS numbers look like to old routers (RFC 6793). Nobody has it.
const asTrans = 23456

func asNumber(example string) shape[uint32] {
	s := mapped(integer(1, math.MaxUint32, example), func(i int) uint32 { return uint32(i) }, nil)
	read := s.read
	s.read = func(d *decoder, n node) (uint32, bool) {
		value, ok := read(d, n)
		if value == asTrans {
			d.fail(n.place(), "%d is nobody's: it stands for numbers that old routers cannot read", value)
		}
		return value, ok
	}
	return s
}

func peerASN() shape[asn] {
	number := asNumber("65001")
	s := spec{what: "an AS number, internal or external", example: "65001", schema: map[string]any{
		"anyOf": []any{number.json(), map[string]any{"enum": []string{string(Internal), string(External)}}},
	}}
	return shape[asn]{spec: s, read: func(d *decoder, n node) (asn, bool) {
		switch kind := PeerKind(n.Value); {
		case n.isText() && (kind == Internal || kind == External):
			return asn{kind: kind}, true
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int":
			value, ok := number.read(d, n)
			return asn{number: value}, ok
		default:
			d.mismatch(n, s)
			return asn{}, false
		}
	}}
}

func localPreference() shape[uint32] {
	return mapped(integer(0, math.MaxUint32, "200"), func(i int) uint32 { return uint32(i) }, nil)
}

// address is an address without a zone that a host can have.
func address(example string) shape[netip.Addr] {
	return addr("an address", example, func(a netip.Addr) string {
		if a.Zone() != "" || a.IsLinkLocalUnicast() {
			return "is link-local: leave it out, the kernel chooses it"
		}
		return ""
	})
}

func ipv4(example string) shape[netip.Addr] {
	return addr("an IPv4 address", example, func(a netip.Addr) string {
		if !a.Is4() {
			return "is no IPv4 address: a router ID has 32 bits, whatever the session's family"
		}
		return ""
	})
}

func peerAddress() shape[netip.Addr] {
	return addr("an address", "192.0.2.1", func(a netip.Addr) string {
		switch {
		case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
			return fmt.Sprintf("is link-local and needs its interface: write %s%%eth0", a)
		case a.Zone() != "" && !a.IsLinkLocalUnicast():
			return "is not link-local: leave the interface out"
		case a.Zone() != "" && interfaceFault(a.Zone()) != "":
			return "has an interface that cannot be: " + quote(a.Zone()) + " " + interfaceFault(a.Zone())
		}
		return ""
	})
}

// addr is an address of a single host for which check finds nothing wrong.
func addr(what, example string, check func(netip.Addr) string) shape[netip.Addr] {
	s := text(what, example, func(text string) string {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			return "is no address"
		case a.Is4In6():
			return "is an IPv4 address in an IPv6 one: write " + a.Unmap().String()
		case a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return "is no address of a host"
		}
		return check(a)
	}, nil)
	return mapped(s, func(text string) netip.Addr {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Addr{}
		}
		return a
	}, nil)
}

// wholeSeconds is a duration that has no part of a second.
func wholeSeconds(least, most time.Duration, example string) shape[time.Duration] {
	return inWhole(duration(least, most, example), time.Second, "%s has a part of a second: the protocol counts whole ones")
}

// inWhole is a duration in whole units. The fault has a place for the quoted
// value.
func inWhole(s shape[time.Duration], unit time.Duration, fault string) shape[time.Duration] {
	read := s.read
	s.read = func(d *decoder, n node) (time.Duration, bool) {
		value, ok := read(d, n)
		if ok && value%unit != 0 {
			d.fail(n.place(), fault, quote(n.Value))
		}
		return value, ok
	}
	return s
}

func secretName() shape[string] {
	return text("the name of a Secret", "bgp-tor", func(s string) string {
		if len(validation.IsDNS1123Subdomain(s)) == 0 {
			return ""
		}
		return "is no name of a Secret: lower-case letters, digits, - and . are allowed, a letter or digit first and last"
	}, nameSyntax)
}

// alias is a community without a name.
func alias() shape[Community] {
	s := text("a community", `"65000:7"`, func(text string) string {
		if _, err := ParseCommunity(text); err != nil {
			return err.Error()
		}
		return ""
	}, nil)
	return mapped(s, func(text string) Community {
		c, err := ParseCommunity(text)
		if err != nil {
			return Community{}
		}
		return c
	}, nil)
}

// dictionary is a mapping whose keys the user chooses.
func dictionary[T any](what, example string, item shape[T], sample string) shape[map[string]T] {
	s := spec{what: what, example: example, schema: map[string]any{"type": "object", "additionalProperties": item.json()}}
	return shape[map[string]T]{spec: s, read: func(d *decoder, n node) (map[string]T, bool) {
		if n.Kind != yaml.MappingNode {
			d.mismatch(n, s)
			return nil, false
		}
		values := map[string]T{}
		for i, child := range n.entries() {
			at := child.place()
			at.line, at.column = n.Content[2*i].Line, n.Content[2*i].Column
			if fault := dictionaryKey(n.Content[2*i], sample); fault != "" {
				d.fail(at, "%s", fault)
				continue
			}
			if _, twice := values[child.name]; twice {
				d.fail(at, "the key %s is given twice", quote(child.name))
				continue
			}
			value, _ := item.from(d, child)
			values[child.name] = value
		}
		return values, true
	}}
}

// dictionaryKey says what is wrong with a name that the user has chosen.
func dictionaryKey(key *yaml.Node, sample string) string {
	_, taken := wellKnown[key.Value]
	switch {
	case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
		return "the name is no text: write " + strconv.Quote(key.Value)
	case taken:
		return quote(key.Value) + " has a meaning already"
	case len(validation.IsDNS1123Subdomain(key.Value)) > 0 || strings.Contains(key.Value, ":"):
		return fmt.Sprintf("%s is no valid name: lower-case letters, digits, - and . are allowed; for example blue: %q", quote(key.Value), sample)
	}
	return ""
}
