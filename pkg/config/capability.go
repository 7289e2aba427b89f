package config

import (
	"maps"
	"slices"
	"strings"
)

// backends are all, in the order of the reference.
var backends = []Backend{Embedded, FRR, FRRK8s}

// capability is something that a document can ask of what speaks BGP.
type capability struct {
	keys string // that ask for it, below bgp or advertisements[].bgp
	what string // in words, for the reference

	// note is what there is to know about a backend that can do it, lacks why
	// one cannot: a clause that follows its name. A backend in neither can do
	// it without more ado.
	note, lacks map[Backend]string

	// asked tells whether a peer asks for it, and where. It is nil for what all
	// backends can do.
	asked func(q question) (place, bool)
}

// question is one peer of a document among the others.
type question struct {
	docs  []placed[peerDoc]
	peers []Peer
	i     int
}

func (q question) doc() peerDoc { return q.docs[q.i].value }
func (q question) peer() Peer   { return q.peers[q.i] }

// able reports what the document asks for and the chosen backend cannot do.
// What is not honoured must not look as if it was.
func (d *decoder) able(doc bgpDoc, b BGP) {
	for i := range b.Peers {
		said := map[string]bool{} // what lacks one thing may lack another for the same reason
		for _, c := range capabilities {
			why, lacks := c.lacks[b.Backend]
			if !lacks || c.asked == nil || said[why] {
				continue
			}
			if at, asked := c.asked(question{doc.peers, b.Peers, i}); asked {
				d.fail(at, "the backend %s %s", b.Backend, why)
				said[why] = true
			}
		}
	}
}

// given is the question whether a key is there.
func given[T any](of func(peerDoc) placed[T]) func(question) (place, bool) {
	return func(q question) (place, bool) {
		p := of(q.doc())
		return p.place, p.path != ""
	}
}

// beside tells whether an earlier peer in the same VRF, which a Node may have
// together with this one, differs.
func (q question) beside(differs func(a, b Peer) bool) bool {
	p := q.peer()
	return slices.ContainsFunc(q.peers[:q.i], func(other Peer) bool {
		return p.VRF == other.VRF && !disjoint(p.NodeSelector, other.NodeSelector) && differs(p, other)
	})
}

// foreignIn tells whether p is an external router in the AS of an internal one.
func (p Peer) foreignIn(internal Peer) bool {
	return internal.Internal() && !p.Internal() && p.Kind == ByNumber && p.ASN == internal.LocalASN
}

const (
	oneID     = "has one router ID per node and VRF, and another peer of the same nodes has a different one"
	onePeer   = "knows routers by their address, and another peer of the same nodes has the same"
	portShort = "takes no port above 16384"
	noLink    = "has no key for the link of a link-local address: use interface"
	oneAS     = "has one AS number per node and VRF, and another peer of the same nodes has a different one"
)

// mostPortFRRK8s is what the schema of FRRConfiguration allows.
const mostPortFRRK8s = 16384

// timeFRRK8s is what FRR asks routers for where nobody says how long.
const timeFRRK8s = 120

// capabilities is what the backends can do: the reference shows it, and a
// document that asks for more is refused by it.
var capabilities = []capability{
	{
		keys: "peers[].address", what: "IPv4 and IPv6 routers, sessions for either family or both",
		note: map[Backend]string{FRRK8s: "IPv4 routes on a session with an IPv6 address have an IPv4 next hop only"},
	},
	{
		keys: "peers[].address", what: "a link-local address (`fe80::1%eth0`)",
		note:  map[Backend]string{FRR: "FRR 8.4 waits for the router to open the session"},
		lacks: map[Backend]string{FRRK8s: noLink},
		asked: func(q question) (place, bool) {
			return q.doc().address.place, q.peer().Address.IsLinkLocalUnicast()
		},
	},
	{
		keys: "peers[].address", what: "one link-local address on several links of a node",
		lacks: map[Backend]string{
			FRR:    "knows routers by their address, and another peer of the same nodes has the same on another link: use interface",
			FRRK8s: noLink,
		},
		asked: func(q question) (place, bool) {
			return q.doc().address.place, q.beside(func(a, b Peer) bool {
				return a.Address.Zone() != b.Address.Zone() && a.Address.WithZone("") == b.Address.WithZone("")
			})
		},
	},
	{
		keys: "peers[].interface", what: "an unnumbered session: whoever is at the other end of a link",
		lacks: map[Backend]string{Embedded: "connects to an address"},
		asked: given(func(p peerDoc) placed[string] { return p.link }),
	},
	{
		keys: "peers[].vrf", what: "a session in a VRF of the node",
		lacks: map[Backend]string{Embedded: "is in the routing table of its host"},
		asked: given(func(p peerDoc) placed[string] { return p.vrf }),
	},
	{
		keys: "peers[].passive", what: "a session that the router opens",
		lacks: map[Backend]string{Embedded: "opens no port, it connects", FRRK8s: "has no such key, and its FRR listens on no port"},
		asked: func(q question) (place, bool) { return q.doc().passive.place, q.peer().Passive },
	},
	{keys: "peers[].asn", what: "AS numbers of 4 bytes, `internal`, `external`"},
	{
		keys: "localASN, peers[].localASN", what: "several AS numbers of ours on one node",
		note:  map[Backend]string{FRR: "by `local-as` with `no-prepend replace-as`"},
		lacks: map[Backend]string{FRRK8s: oneAS},
		asked: func(q question) (place, bool) {
			return q.docs[q.i].place, q.beside(func(a, b Peer) bool { return a.LocalASN != b.LocalASN })
		},
	},
	{
		keys: "localASN, peers[].localASN", what: "several AS numbers of ours on one node towards internal routers",
		lacks: map[Backend]string{
			FRR:    "has one AS number per node and VRF for internal routers, and another internal peer of the same nodes has a different one",
			FRRK8s: oneAS,
		},
		asked: func(q question) (place, bool) {
			return q.docs[q.i].place, q.beside(func(a, b Peer) bool {
				return a.LocalASN != b.LocalASN && a.Internal() && b.Internal()
			})
		},
	},
	{
		keys: "localASN, peers[].localASN", what: "an external router in the AS that internal routers of the same node are in",
		lacks: map[Backend]string{
			FRR:    "takes every router in its own AS for an internal one, and of two peers of the same nodes in that AS only one is to be",
			FRRK8s: oneAS,
		},
		asked: func(q question) (place, bool) {
			return q.docs[q.i].place, q.beside(func(a, b Peer) bool { return a.foreignIn(b) || b.foreignIn(a) })
		},
	},
	{
		keys: "routerID, peers[].routerID", what: "several router IDs on one node",
		lacks: map[Backend]string{FRR: oneID, FRRK8s: oneID},
		asked: func(q question) (place, bool) {
			return q.docs[q.i].place, q.beside(func(a, b Peer) bool { return a.RouterID != b.RouterID })
		},
	},
	{keys: "peers[].sourceAddress", what: "the address to connect from"},
	{
		keys: "peers[].port", what: "several routers at one address, told apart by their ports",
		lacks: map[Backend]string{FRR: onePeer, FRRK8s: onePeer},
		asked: func(q question) (place, bool) {
			return q.doc().whereabouts(), q.beside(func(a, b Peer) bool { return a.sameRouter(b) && a.Port != b.Port })
		},
	},
	{
		keys: "peers[].port", what: "any port",
		lacks: map[Backend]string{FRRK8s: portShort},
		asked: func(q question) (place, bool) { return q.doc().port.place, q.peer().Port > mostPortFRRK8s },
	},
	{keys: "peers[].holdTime, keepaliveTime, connectTime", what: "the times of a session", note: map[Backend]string{
		FRR: "`connectTime` is the pause between two attempts, without back-off", FRRK8s: "`connectTime` as with frr",
	}},
	{keys: "peers[].multihop", what: "external routers more than a hop away", note: map[Backend]string{
		FRRK8s: "a switch: any number of hops",
	}},
	{
		keys: "peers[].ttlSecurity", what: "TTL security (RFC 5082)",
		lacks: map[Backend]string{FRRK8s: "has no key for TTL security"},
		asked: given(func(p peerDoc) placed[int] { return p.security }),
	},
	{keys: "peers[].passwordSecret", what: "TCP MD5 with a password from a Secret, rotated without a restart", note: map[Backend]string{
		FRR: "the password stands in the file for FRR, which only FRR and root can read", FRRK8s: "the Secret is beside frr-k8s and of type kubernetes.io/basic-auth",
	}},
	{
		keys: "bfdProfiles, peers[].bfdProfile", what: "BFD",
		lacks: map[Backend]string{Embedded: "does not speak BFD"},
		asked: given(func(p peerDoc) placed[string] { return p.profile }),
	},
	{keys: "peers[].gracefulRestart", what: "graceful restart (RFC 4724)"},
	{
		keys: "peers[].gracefulRestart", what: "several restart times on one node",
		lacks: map[Backend]string{FRR: "has one restart time per node and VRF, and another peer of the same nodes has a different one"},
		asked: func(q question) (place, bool) {
			return q.doc().restart.place, q.peer().GracefulRestart > 0 && q.beside(func(a, b Peer) bool {
				return b.GracefulRestart > 0 && a.GracefulRestart != b.GracefulRestart
			})
		},
	},
	{
		keys: "peers[].gracefulRestart", what: "another restart time than 120 s",
		lacks: map[Backend]string{FRRK8s: "knows no other restart time than 120s"},
		asked: func(q question) (place, bool) {
			s := q.peer().GracefulRestart.Seconds()
			return q.doc().restart.place, s > 0 && s != timeFRRK8s
		},
	},
	{keys: "communities, communityAliases", what: "standard, large and well-known communities"},
	{keys: "localPref", what: "local preference for internal routers"},
	{keys: "aggregationLength, aggregationLengthV6", what: "aggregation of both families"},
	{keys: "leavePause", what: "leaving with `graceful-shutdown`, a pause and a withdrawal"},
	{keys: "", what: "routes that routers offer are dropped", note: map[Backend]string{
		FRRK8s: "unless somebody else's FRRConfiguration lets them in",
	}},
}

// sortedNames lists names for a message.
func sortedNames[T any](of map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(of)), ", ")
}
