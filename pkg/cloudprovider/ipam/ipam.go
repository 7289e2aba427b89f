// Package ipam decides which addresses a Service gets: pools, what is held
// and a request in, an assignment or a typed reason out. It is pure: no clock,
// no API, no log. The Services themselves are the record of what is held; an
// Allocator is rebuilt from them at every start.
//
// # What is given out
//
// A Service gets the addresses that it asks for, else those reserved for it,
// else one that is held under its sharing key and that it may share, else the
// next free one of the pools that are for it, by priority and then in the order
// of the document; both families from one pool if that can be. To ask for a
// pool or an address replaces being selected by namespaces and labels, unless
// the pool enforces its namespaces; a sharing key only replaces autoAssign. A
// reservation needs no other right and no quota. A quota counts addresses: a
// shared one once, one of a reservation as well.
//
// # What is kept
//
// What a Service holds it keeps, whatever changes around it: a rule that it
// offends since is told in the message, and moves it only if its pool says
// onMismatch: reassign and there is somewhere to go. Priority, autoAssign,
// draining and quotas are about what is given out next and offend nobody. An
// address in no pool any more is moved by the rule of the pool that it lay in
// last, if there is still a pool of that name. A request that cannot be met moves
// nobody either, nor does the wish for a second family: a Service that requires
// both gets both or none, but one that holds an address already keeps it until
// the other can be had. A Service loses an address without getting another one
// only by its own change: if it gives up the family, or if it does not fit those
// any more with which it shares; or if its address turns out to be another
// Service's for longer.
package ipam

import (
	"net/netip"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Key names a Service: namespace/name.
type Key string

// Family is an address family.
type Family string

// The families, by the names that Service.spec.ipFamilies uses.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyPolicy says how many families a Service wants.
type FamilyPolicy string

// The policies, by the names that Service.spec.ipFamilyPolicy uses.
const (
	SingleStack      FamilyPolicy = "SingleStack"
	PreferDualStack  FamilyPolicy = "PreferDualStack"
	RequireDualStack FamilyPolicy = "RequireDualStack"
)

// Port is a port of a Service, as far as sharing an address is concerned.
type Port struct {
	Protocol string // TCP, UDP, SCTP
	Number   uint16
}

// Request is what one Service asks for and what its status says it has.
type Request struct {
	Key             Key
	Namespace, Name string
	Created         time.Time
	Labels          map[string]string
	NamespaceLabels map[string]string

	Families []Family // spec.ipFamilies, in its order
	Policy   FamilyPolicy

	Addresses  []netip.Addr // asked for by annotation or spec.loadBalancerIP
	Pools      []string     // asked for by annotation
	Invalid    string       // what is wrong with what was asked for; empty: nothing
	SharingKey string
	Ports      []Port
	Local      bool   // externalTrafficPolicy: Local
	Selector   string // canonical text of the selector; compared for Local only

	// Held is status.loadBalancer.ingress, in its order, never older than what
	// the caller wrote last. Given is what the condition Allocated confirms, if
	// it is True or its reason NodeAddress, and HeldSince its transition time.
	// What is held and was not given has been written by others.
	Held      []netip.Addr
	Given     []config.Confirmation
	HeldSince time.Time
}

// Reason is the reason of the condition ccm-baremetal.io/Allocated. Changing
// a value is an API change.
type Reason string

// Reasons with status True: the addresses of the Decision are valid.
const (
	Allocated           Reason = "Allocated"
	AddressOutsidePools Reason = "AddressOutsidePools" // kept, though its pool is gone
	PartialFamilies     Reason = "PartialFamilies"     // it has one of two families, and the other is not to be had
)

// Reasons with status False.
const (
	NoPool              Reason = "NoPool"
	PoolExhausted       Reason = "PoolExhausted"
	AddressNotInPool    Reason = "AddressNotInPool"
	AddressInUse        Reason = "AddressInUse"
	NamespaceNotAllowed Reason = "NamespaceNotAllowed"
	SharingRefused      Reason = "SharingRefused"
	FamilyUnavailable   Reason = "FamilyUnavailable"
	InvalidRequest      Reason = "InvalidRequest"
	QuotaExceeded       Reason = "QuotaExceeded"
	ForeignAddress      Reason = "ForeignAddress" // written by others, in no pool of ours: left alone
	NodeAddress         Reason = "NodeAddress"    // a Node has it
)

// OK tells whether the reason stands for status True.
func (r Reason) OK() bool {
	return r == Allocated || r == AddressOutsidePools || r == PartialFamilies
}

// Decision is the answer to a Request.
type Decision struct {
	// Addresses is what the status is to hold, in the order of Families. It
	// is also set with ForeignAddress and NodeAddress, though they are not OK:
	// what the status shows is left as it is.
	Addresses []netip.Addr
	Reason    Reason

	Foreign    bool // the Addresses were written by others
	Reassigned bool // they replace working ones by the rule of a pool: nobody has asked for that, so it may take its time

	// Unmet says, if the Reason is OK, why the Service has not all that it
	// asks for or should have: a family is missing, a newer request cannot be
	// met, or there is nothing to move to. What it holds is kept until then,
	// so that asking for the impossible costs nobody a working address.
	// Empty: nothing is wanting.
	Unmet Reason

	// Message is one sentence with counts and names, the same for the same
	// state: a config.Verdict, which confirms just the Addresses, unless they
	// are Foreign.
	Message string
}

// Cluster is what an allocator has to know besides the pools.
type Cluster struct {
	NodeAddresses map[netip.Addr]string // address -> Node name; never given out
	Reserved      []netip.Addr          // the API server's endpoints; never given out
}

// Allocator holds what is assigned. Its methods must not be called
// concurrently; the caller serialises them.
type Allocator struct {
	layout
	barred map[netip.Addr]bar

	services map[Key]*service
	holdings map[netip.Addr]*holding
	origins  map[netip.Addr]string         // the pool that an address in no pool lay in last
	circles  map[string]map[circle]*common // by sharing key

	now     time.Time // of the last call that told it
	cooling map[netip.Addr]time.Time
	cooled  []freed // in the order of freeing; stale where cooling differs

	waiting map[blocker][]*service // by age
	doors   map[blocker][]*service // by age: who waits, but not for this
	lifted  map[blocker]struct{}   // since serve
	due     map[*service]struct{}  // to be served, whatever blocks them
	woken   map[Key]struct{}       // whose answer has changed since Wake
}

// New returns an Allocator without pools in which nothing is held.
func New() *Allocator {
	return &Allocator{
		services: map[Key]*service{},
		holdings: map[netip.Addr]*holding{},
		origins:  map[netip.Addr]string{},
		circles:  map[string]map[circle]*common{},
		cooling:  map[netip.Addr]time.Time{},
		waiting:  map[blocker][]*service{},
		doors:    map[blocker][]*service{},
		lifted:   map[blocker]struct{}{},
		due:      map[*service]struct{}{},
		woken:    map[Key]struct{}{},
	}
}

// Configure replaces pools and cluster. It moves and takes away nothing:
// what that means for each Service shows in its next Decide.
func (a *Allocator) Configure(pools []config.Pool, cluster Cluster) {
	barred := make(map[netip.Addr]bar, len(cluster.NodeAddresses)+len(cluster.Reserved))
	for _, addr := range cluster.Reserved {
		barred[addr] = bar{AddressInUse, "an address of the API server"}
	}
	for addr, node := range cluster.NodeAddresses {
		barred[addr] = bar{NodeAddress, "an address of Node " + node}
	}
	a.configure(pools, barred)
}

func (a *Allocator) configure(pools []config.Pool, barred map[netip.Addr]bar) {
	a.layout, a.barred = lay(pools, barred), barred
	for addr, h := range a.holdings {
		a.put(addr, h)
	}
	for addr := range a.cooling {
		a.tire(addr)
	}
	a.lift(blocker{kind: onPools})
}
