// Package config is the one document that configures both binaries: from bytes
// to a Config, or to all that is wrong with them at once, each fault with its
// path in the user's own terms.
package config

import (
	"strconv"
	"time"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"
)

// The only version and kind of document that this release reads.
const (
	APIVersion = "ccm-baremetal.io/v1alpha1"
	Kind       = "CloudConfig"
)

// Config is a checked document with every default filled in. It is immutable:
// whoever holds one may read it from any goroutine.
type Config struct {
	ClusterName    string
	Services       Services
	Pools          []Pool          // in the order of the document; names are unique, ranges disjoint
	Advertisements []Advertisement // never empty: without any in the document, one that selects everything
	BGP            BGP
	Membership     Membership
	ExcludeLabel   ExcludeLabel
	DataPathCheck  DataPathCheck
	Nodes          Nodes

	// Hash identifies the document that this Config was read from: the first
	// 12 hexadecimal digits of the SHA-256 of its bytes.
	Hash string
}

// Services says which Services are ours.
type Services struct {
	LoadBalancerClass string
	HandleUnclassed   bool
	Compatibility     []Dialect
	AllowMassChange   bool
	ReassignInterval  time.Duration // between two moves by onMismatch: reassign; 0: none
}

// Dialect names another product whose Service annotations are understood.
type Dialect string

// The dialects. Changing a value is an API change.
const (
	MetalLB Dialect = "metallb"
	KubeVIP Dialect = "kube-vip"
	Cilium  Dialect = "cilium"
	PureLB  Dialect = "purelb"
)

// Dialects returns all of them.
func Dialects() []Dialect { return []Dialect{MetalLB, KubeVIP, Cilium, PureLB} }

// Pool is a named set of addresses and the rules for handing them out.
type Pool struct {
	Name              string
	Ranges            []netipx.IPRange // what addresses minus exclude leaves: disjoint, ascending, IPv4 before IPv6; may be empty
	Priority          int              // higher is tried first; equal: document order
	AutoAssign        bool
	State             PoolState
	Order             Order
	AvoidBuggyIPs     bool
	Namespaces        []string
	NamespaceSelector Selector
	ServiceSelector   Selector
	EnforceNamespaces bool
	MaxPerNamespace   int // 0: no limit
	Reservations      []Reservation
	OnMismatch        OnMismatch
}

// PoolState says whether a pool gives out addresses.
type PoolState string

// The pool states. Changing a value is an API change.
const (
	Active   PoolState = "active"   // gives out addresses
	Draining PoolState = "draining" // gives out nothing new, what is held stays
	Disabled PoolState = "disabled" // gives out nothing at all, not even on request
)

// Order says which free address of a pool is given out next.
type Order string

// The orders. Changing a value is an API change.
const (
	Lowest  Order = "lowest"
	Highest Order = "highest"
	Hashed  Order = "hash" // stable by namespace/name
)

// OnMismatch says what happens to a held address that no longer fits its pool's rules.
type OnMismatch string

// What may happen. Changing a value is an API change.
const (
	Keep     OnMismatch = "keep"
	Reassign OnMismatch = "reassign"
)

// Reservation keeps addresses of a pool for one Service.
type Reservation struct {
	Namespace, Name string
	Ranges          []netipx.IPRange
}

// Advertisement says from which nodes and links the addresses of some pools
// are announced, and for which Services.
type Advertisement struct {
	Name            string
	Pools           []string // empty: all
	ServiceSelector Selector
	NodeSelector    Selector
	Layer2          *Layer2           // nil: not by layer 2
	BGP             *BGPAdvertisement // nil: not by BGP; one of the two is there
}

// Layer2 is how an advertisement is announced by ARP and NDP.
type Layer2 struct {
	Interfaces        []string // exact names or globs (path.Match); empty: by the rule of design.md
	GratuitousRefresh time.Duration
	ConflictDetection ConflictDetection
}

// ConflictDetection says what to do about a foreign MAC that answers for an address of ours.
type ConflictDetection string

// What may be done. Changing a value is an API change.
const (
	ConflictOff    ConflictDetection = "off"
	ConflictWarn   ConflictDetection = "warn"
	ConflictRefuse ConflictDetection = "refuse"
)

// Membership is how the announcers find each other.
type Membership struct {
	Port      int
	Advertise string // CIDR that picks the gossip address of a multi-homed node; empty: the Node's first InternalIP
	Detection Detection

	// Settle is how long a node that comes back leaves addresses to others, the
	// first time; each further departure within six hours makes it four times
	// as long, up to an hour. Zero: not at all.
	Settle time.Duration
	Quorum Quorum
}

// Quorum says whether announcers in a minority may claim addresses.
type Quorum string

// The quorums. Changing a value is an API change.
const (
	QuorumOff      Quorum = "off"
	QuorumMajority Quorum = "majority" // who sees no more than half of the announcers announces nothing
)

// DataPathCheck says whether kube-proxy's own health counts as a sign of fitness.
type DataPathCheck string

// What may be done. Changing a value is an API change.
const (
	DataPathAuto DataPathCheck = "auto" // where it answers, it is believed
	DataPathOff  DataPathCheck = "off"
)

// Detection names a set of failure detection times.
type Detection string

// The presets. Changing a value is an API change.
const (
	Rapid Detection = "rapid" // probe every 100ms, time-out 50ms, suspicion multiplier 3
	Fast  Detection = "fast"  // 200ms, 100ms, 3
	LAN   Detection = "lan"   // 1s, 500ms, 4
	WAN   Detection = "wan"   // 5s, 3s, 6
)

// ExcludeLabel says whether node.kubernetes.io/exclude-from-external-load-balancers counts.
type ExcludeLabel string

// What may be done. Changing a value is an API change.
const (
	HonourLabel ExcludeLabel = "honour"
	IgnoreLabel ExcludeLabel = "ignore"
)

// LabelExclude is the label that keeps a Node from announcing anything.
const LabelExclude = "node.kubernetes.io/exclude-from-external-load-balancers"

// Excludes tells whether a Node with these labels is left out by the rule. The
// presence of the label counts, unless its value is a boolean false.
func (e ExcludeLabel) Excludes(labels map[string]string) bool {
	value, present := labels[LabelExclude]
	if !present || e == IgnoreLabel {
		return false
	}
	set, err := strconv.ParseBool(value)
	return err != nil || set
}

// Selector matches a set of labels if any of its members does. The zero
// Selector matches everything.
type Selector []labels.Selector

// Matches tells whether set is selected.
func (s Selector) Matches(set map[string]string) bool {
	if len(s) == 0 {
		return true
	}
	for _, one := range s {
		if one.Matches(labels.Set(set)) {
			return true
		}
	}
	return false
}
