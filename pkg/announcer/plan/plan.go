// Package plan decides, from a snapshot of the cluster, who announces which
// address and why. It is pure: equal snapshots give equal, sorted verdicts on
// every node, which is how the announcers agree without asking each other.
package plan

import (
	"net/netip"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Snapshot is everything that a decision may depend on, as one node sees it.
// It is a value: the source makes a new one for every pass and never changes
// it afterwards.
type Snapshot struct {
	Node     string // the Node that this announcer runs on
	Self     Standing
	Config   config.Config
	Services []Service
	Nodes    []Node
	Members  []Member // the live announcers by gossip, this one included

	// Departed are members of before whose Node still exists. They decide
	// nothing; whoever hears one of their MACs knows whose it is.
	Departed []Member

	// Links are this node's own links that may carry an announcement.
	Links []Link

	// Isolated: nothing authentic has come from any other member for half a
	// second (longer where probes are rarer), though there are others. Members
	// may be about to be taken for dead that only cannot be heard.
	Isolated bool

	// Reserved are addresses that are never announced whatever a status says,
	// besides the Nodes' own: the API server's endpoints.
	Reserved []netip.Addr

	// Returns counts how often a member came back that had been alive
	// meanwhile (a healed partition). Owners announce again when it changes.
	Returns int
}

// Service is a Service of ours (by type, class and annotations) as far as
// announcing it is concerned.
type Service struct {
	Namespace, Name string
	Created         time.Time
	Labels          map[string]string
	Addresses       []netip.Addr // of status.loadBalancer.ingress, in its order
	Allocated       bool         // the CCM's verdict: condition ccm-baremetal.io/Allocated is True
	Deleting        bool
	Local           bool // externalTrafficPolicy: Local
	Endpoints       Endpoints
}

// Endpoints says on which nodes a Service has endpoints, each list sorted and
// without repetition.
type Endpoints struct {
	Ready       []string // nodes with a ready endpoint
	Terminating []string // nodes with an endpoint that still serves while terminating
	Nodeless    bool     // there is a usable endpoint that names no node
}

// Node is a Node object as far as announcing is concerned.
type Node struct {
	Name               string
	Labels             map[string]string
	Addresses          []netip.Addr
	Taints             []string // keys
	Deleting           bool
	NetworkUnavailable bool

	// Drain: somebody wants its announcer to give its addresses away. It alone
	// reads that, and tells the others that it drains.
	Drain bool

	Ready bool // condition Ready is True
}

// Member is a live announcer and what it says of itself. What depends on a
// timer, a link or a node's own view is decided by that node and told to the
// others as a state, never computed about it by them.
type Member struct {
	Name     string
	Rules    int // number of the newest election rules that it knows
	Passive  bool
	Draining bool
	Standing

	// Config is the hash of the configuration that it acts on, empty if it has
	// not told one. It decides nothing: people look for who differs.
	Config string

	// Links are the member's links, nil if it has not told them yet: then it
	// is taken to have a suitable one.
	Links []Link
}

// Standing is how fit a node takes itself to be. It depends on timers, on the
// node's own view and on its past, so only the node itself can know, and tells
// the others.
type Standing struct {
	Settling bool // it came back a short while ago, others are preferred
	Stale    bool // it has no API server while most others have one

	// NoAPI: it has no API server at the moment. By itself that decides nothing,
	// but a node is stale only while most of the others have one.
	NoAPI bool

	// Unfit is why it cannot serve: NodeNotReady or DataPathDown; empty if it can.
	Unfit Reason
}

// Link is a link that may carry an announcement: an Ethernet link with an
// address of its own that is neither loopback, NOARP nor enslaved.
type Link struct {
	Name     string
	Index    int
	MAC      string // as net.HardwareAddr prints it
	Up       bool   // administratively up and with a carrier, for 5 s if it had lost that
	Prefixes []netip.Prefix
	NodeIP   bool // holds the Node's first InternalIP
	Default  bool // has a default route
	Metric   int  // the lowest metric of its routes
}

// Verdict is the decision about one address. Verdicts share memory: whoever
// gets one must not change it.
type Verdict struct {
	Address  netip.Addr
	Services []string // namespace/name of all Services that hold the address, sorted
	Owner    string   // the Node that announces it by layer 2; empty: nobody
	Reason   Reason   // why this node announces it, or does not

	// OwnerLinks are the names of the owner's links for it, sorted; nil as long
	// as it has told none.
	OwnerLinks []string

	// Links are this node's links for it, sorted by name. There are none if
	// this node can serve none of the Services: no link is up (an owner has
	// those that are down: it is the owner because no candidate has one that is
	// up), no endpoint is here (policy Local), its announcer is passive, or the
	// address may not be announced. Ranking, labels, taints and selectors do not count: whoever
	// loses an address by those hands it over.
	Links []Link

	// Layer2 is how this node is to announce the address: what the
	// advertisements say that select this node, or, if none does, all that
	// match; of several the shortest refresh and the strictest conflict
	// detection. Interfaces is empty, Links is what came of them.
	Layer2 config.Layer2

	// Candidates are the nodes that could announce it, best first, the best
	// Ranked of them if there are more (Explain gives all); Eligible says how
	// many there are. Behind are those of all candidates that stand in a lower
	// tier than the normal one, each with the reason: Settling, Stale, Draining
	// or LinkDown. Excluded are the others, by name, each with the first filter
	// that it failed, again not more than Ranked; LeftOut counts them all.
	Candidates []string
	Eligible   int
	Behind     map[string]Reason
	Excluded   []Exclusion
	LeftOut    map[Reason]int

	// Holders are the Services that hold the address, oldest first, and
	// whether the candidates are theirs.
	Holders []Holder

	// Routed says how many nodes tell routers of the address, by the Service that
	// it is for; nil if none does. What becomes of it only they know.
	Routed map[string]int

	outcome *outcome // where the reason of any node can be looked up; nil without candidates
}

// Ranked is how many candidates a Verdict of Decide names at most, and how
// many excluded nodes.
const Ranked = 16

// Holder is a Service that holds an address.
type Holder struct {
	Service string // namespace/name

	// Reason is Honoured if every candidate passed for this Service.
	// Otherwise it says why the Service has no say in the election.
	Reason Reason
}

// Exclusion is a node that is no candidate for an address, and why.
type Exclusion struct {
	Node   string
	Reason Reason
}

// Reason is a stable word for a decision. It is the same in verdicts, events,
// conditions, logs and the debug page. Changing one is an API change.
type Reason string

// Reasons for an address.
const (
	Owner           Reason = "Owner"           // this node announces it
	NotOwner        Reason = "NotOwner"        // another candidate ranks before this node
	NotCandidate    Reason = "NotCandidate"    // another node announces it, this one could not: see Excluded
	NotAllocated    Reason = "NotAllocated"    // the CCM has not confirmed the address
	Deleting        Reason = "Deleting"        // the Service is being deleted
	NodeAddress     Reason = "NodeAddress"     // it is an address of a Node or of the API server
	SpecialPurpose  Reason = "SpecialPurpose"  // loopback, multicast, link-local and the like
	NoEndpoints     Reason = "NoEndpoints"     // no Service on it has a usable endpoint
	NoAdvertisement Reason = "NoAdvertisement" // no advertisement selects its pool and Services
	OnlyBGP         Reason = "OnlyBGP"         // advertisements to routers select it, none by layer 2: there is no election
	NoEligibleNode  Reason = "NoEligibleNode"  // every node is left out: see Excluded
	NoQuorum        Reason = "NoQuorum"        // this node is in a minority, and the configuration forbids it to announce
)

// Reasons for a Service on an address, besides NotAllocated, Deleting,
// NodeAddress, SpecialPurpose, NoEndpoints, NoAdvertisement and OnlyBGP.
const (
	Honoured  Reason = "Honoured"  // every candidate passes for it
	Overruled Reason = "Overruled" // no node passes for all Services on the address, an older one decides
)

// Reasons for a change, besides those for an address and for a node.
const (
	Released     Reason = "Released"     // no Service holds the address any more
	LinksChanged Reason = "LinksChanged" // the same node announces it on other links
)

// Reasons why a node is no candidate for an address, in the order in which
// they are looked at.
const (
	NoAnnouncer        Reason = "NoAnnouncer"        // no live announcer on it
	Passive            Reason = "Passive"            // its announcer has not synced yet
	Draining           Reason = "Draining"           // it is leaving, and there is another candidate
	NodeNotReady       Reason = "NodeNotReady"       // its Node has been NotReady for a minute
	DataPathDown       Reason = "DataPathDown"       // its kube-proxy says that it forwards nothing
	NodeMissing        Reason = "NodeMissing"        // there is no such Node object
	NodeDeleting       Reason = "NodeDeleting"       // its Node object is being deleted
	NetworkUnavailable Reason = "NetworkUnavailable" // the Node says so
	ExcludeLabel       Reason = "ExcludeLabel"       // node.kubernetes.io/exclude-from-external-load-balancers
	Tainted            Reason = "Tainted"            // out of service, shut down or about to be removed
	Windows            Reason = "Windows"            // no announcer runs there
	NotSelected        Reason = "NotSelected"        // by no advertisement's node selector
	NoInterface        Reason = "NoInterface"        // no usable link for the address
	NoLocalEndpoint    Reason = "NoLocalEndpoint"    // externalTrafficPolicy: Local and no ready endpoint there
	NoPeer             Reason = "NoPeer"             // it has no session with a router that is told of such addresses
)

// Reasons why a candidate stands behind others, besides Draining where nobody
// else could serve. The best comes first.
const (
	Settling Reason = "Settling" // it came back a short while ago
	Stale    Reason = "Stale"    // it has no API server while most others have one
	LinkDown Reason = "LinkDown" // its link for the address is down
)

// Announcement is what a Speaker is to do about one address.
type Announcement struct {
	Address netip.Addr
	Links   []Link // at least one, on this node

	// Yield: another node owns the address now. A speaker that answers for it
	// goes on until it has seen the new owner's announcement (2 s at most),
	// and one that does not answers nothing.
	Yield bool

	// Returns is Snapshot.Returns: a speaker repeats its announcement once
	// when it changes.
	Returns int

	// First: nobody of ours has announced the address before, so a speaker
	// that detects conflicts asks the wire for it first. False on a take-over
	// or hand-over, where the one who answers is the old owner.
	First bool

	// Ask: this node sees too few of the announcers to know that the old owner
	// is dead. A speaker that does not answer yet asks the wire three times
	// within 100 ms and leaves the address where somebody else answers; it asks
	// again from time to time as long as Ask is set.
	Ask bool

	// Peers are the MACs of the members' links, departed ones included, each
	// with its Node. An answer from one of them around a change of owner is no conflict.
	Peers map[string]string

	Layer2 config.Layer2
}
