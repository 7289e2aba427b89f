package config

import (
	"net/netip"
	"time"
)

// BGP says to which routers addresses are advertised, and how.
type BGP struct {
	Backend    Backend
	LocalASN   uint32     // ours on every session without one of its own; 0: none is given
	RouterID   netip.Addr // IPv4; invalid: each node derives its own from its name
	LeavePause time.Duration
	Peers      []Peer // in the order of the document; names are unique
}

// Backend names what speaks BGP.
type Backend string

// The backends. Changing a value is an API change.
const (
	Embedded Backend = "embedded" // the announcer itself
	FRR      Backend = "frr"      // an FRR of the announcer's own, by its configuration file
	FRRK8s   Backend = "frr-k8s"  // an frr-k8s that the cluster has, by an FRRConfiguration for each node
)

// Peer is a router, and the session that some nodes have with it.
type Peer struct {
	Name            string
	Address         netip.Addr // with a zone if and only if it is link-local; invalid: whoever is on Interface
	Interface       string     // of an unnumbered session; empty: Address says where the peer is
	VRF             string     // empty: the default one
	Port            int
	ASN             uint32   // 0: by Kind
	Kind            PeerKind // whether an ASN of 0 stands for ours or for any other
	LocalASN        uint32   // ours on this session, never 0
	RouterID        netip.Addr
	SourceAddress   netip.Addr // invalid: as the kernel chooses
	HoldTime        time.Duration
	KeepaliveTime   time.Duration
	ConnectTime     time.Duration // the longest pause between two attempts to connect
	Multihop        int           // how many hops an external peer may be away; 1: none between
	TTLSecurity     int           // packets that have come over more hops are dropped; 0: off
	PasswordSecret  string        // name of a Secret; empty: no password
	GracefulRestart time.Duration // how long the peer is to keep routes while we restart; 0: not at all
	Passive         bool          // the peer connects to us
	BFD             *BFDProfile   // nil: no BFD; shared by peers, and not to be changed
	Families        []Family      // sorted, never empty
	NodeSelector    Selector
}

// PeerKind says on which side of the AS a peer is whose ASN is not given.
type PeerKind string

// The kinds. Changing a value is an API change.
const (
	ByNumber PeerKind = ""         // Peer.ASN says it
	Internal PeerKind = "internal" // any peer of our ASN
	External PeerKind = "external" // any peer of another ASN
)

// Internal tells whether the peer is in our own AS.
func (p Peer) Internal() bool {
	return p.Kind == Internal || p.Kind == ByNumber && p.ASN == p.LocalASN
}

// Router returns where the peer is, in words: its address, or the link of an
// unnumbered session.
func (p Peer) Router() string {
	if p.Interface != "" {
		return p.Interface
	}
	return p.Address.String()
}

// BFDProfile says how soon a session notices that its peer is dead (RFC 5880).
type BFDProfile struct {
	Name             string
	ReceiveInterval  time.Duration // whole milliseconds, as all times here
	TransmitInterval time.Duration
	DetectMultiplier int // so many lost packets are a dead peer
	EchoMode         bool
	EchoInterval     time.Duration
	PassiveMode      bool // wait for the peer's packets before sending any
	MinimumTTL       int  // of the packets of a peer that is more than a hop away
}

// BGPAdvertisement is how an advertisement is announced to routers.
type BGPAdvertisement struct {
	Peers               []string    // empty: all
	Communities         []Community // sorted, each once
	LocalPref           *uint32     // told to internal peers; nil: no opinion
	AggregationLength   int         // of IPv4 prefixes; 32: every address on its own
	AggregationLengthV6 int         // of IPv6 prefixes; 128: every address on its own
}

// Length returns how long prefixes of a family are.
func (a BGPAdvertisement) Length(f Family) int {
	if f == IPv4 {
		return a.AggregationLength
	}
	return a.AggregationLengthV6
}
