package config

import (
	"net/netip"
	"time"

	"go4.org/netipx"
)

// Nodes says what is known about the machines of the cluster, and what follows
// from it for their Node objects.
type Nodes struct {
	Source        NodeSource
	Inventory     []Machine        // in the order of the document: the first that is for a Node counts
	InternalCIDRs []netip.Prefix   // see ExternalCIDRs
	ExternalCIDRs []netip.Prefix   // both empty: addresses are not filtered
	Exclude       []netipx.IPRange // addresses that are never a Node's, such as that of the control plane
	DeleteGone    bool             // delete Nodes whose machine is gone for certain
	GoneAfter     time.Duration    // for how long that must be so
	GoneSightings int              // and how often it must have been seen in that time
	OffAfter      time.Duration    // for how long a machine must have been seen to be off
	Metal3        Metal3           // of no meaning unless Source is SourceMetal3
}

// NodeSource says where machines are known from, besides the inventory.
type NodeSource string

// The sources. Changing a value is an API change.
const (
	SourceStatic NodeSource = "static" // the inventory and the Node itself
	SourceMetal3 NodeSource = "metal3" // BareMetalHosts of a management cluster
)

// Machine is what the document says about one Node, or about all that a
// selector matches.
type Machine struct {
	Name           string   // of the Node; empty: Selector says which
	Selector       Selector // labels of Nodes
	ProviderID     string
	Addresses      []netip.Addr
	Zone           string
	Region         string
	InstanceType   string
	Labels         map[string]string
	Decommissioned bool // the machine is gone for good: its Node may be deleted
}

// Metal3 says how BareMetalHosts are reached and read.
type Metal3 struct {
	KubeconfigSecret      string // in our own namespace; empty: the hosts are in this very cluster
	Namespace             string // of the hosts
	ZoneLabel             string // the label of a host that has its zone
	RegionLabel           string
	InstanceTypeLabel     string
	Labels                []string // labels of hosts that Nodes get as well: keys or globs (path.Match)
	HostAddresses         bool     // take the addresses that were seen when the host was inspected
	MatchHostNames        bool     // a host is the Node's if it has the same name
	InitializeWithoutHost bool     // a Node with a providerID need not wait for its host to be known
	OnMissingHost         OnMissingHost
}

// OnMissingHost says what it means when a BareMetalHost is not there.
type OnMissingHost string

// What it may mean. Changing a value is an API change.
const (
	MissingKeep   OnMissingHost = "keep"   // nothing: hosts are moved between management clusters while their machines run
	MissingDelete OnMissingHost = "delete" // that the machine is gone
)
