package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// service is what an Allocator knows of a Service: what it asked for last,
// what it holds and, if that is less, what it waits for.
type service struct {
	standing
	terms // replaced as a whole by each request

	held    []netip.Addr // in the order of families; if not ours, in that of the status
	leaving []netip.Addr // given up, but its status may still show them
	wait    *wait        // nil: it has what it asked for

	reassigned bool // what it is leaving was replaced by the rule of a pool
}

// standing is what decides between Services that want the same.
type standing struct {
	key     Key
	created micros
	ours    bool   // what it holds was given or adopted by us, not just found in its status
	since   micros // since when it holds it, if ours
}

// micros is a time.Time in a third of the space.
type micros int64

func microsOf(t time.Time) micros { return micros(t.UnixMicro()) }

// terms are what a Service asks for and what its being served depends on.
type terms struct {
	labels          map[string]string
	namespaceLabels map[string]string
	families        []Family // those that it wants
	require         bool     // all of them or nothing
	asked           *asked   // nil: for nothing in particular
	sharing         *sharing // nil: none shares with it
	ports           []Port
}

// asked is what a Service asks for by name.
type asked struct {
	addresses []netip.Addr
	pools     []string
	invalid   string
}

// sharing is what Services must have in common to share an address.
type sharing struct {
	key      string
	local    bool
	selector string // for local only: elsewhere any node serves any Service
}

func termsOf(r Request) terms {
	t := terms{
		labels:          r.Labels,
		namespaceLabels: r.NamespaceLabels,
		families:        wanted(r.Families, r.Policy),
		require:         r.Policy == RequireDualStack,
		ports:           slices.Clip(r.Ports),
	}
	if r.SharingKey != "" {
		t.sharing = &sharing{key: r.SharingKey, local: r.Local}
		if r.Local {
			t.sharing.selector = r.Selector
		}
	}
	if len(r.Addresses)+len(r.Pools) > 0 || r.Invalid != "" {
		t.asked = &asked{addresses: r.Addresses, pools: r.Pools, invalid: r.Invalid}
	}
	return t
}

// wanted returns the families that a Service is to have addresses of.
func wanted(families []Family, policy FamilyPolicy) []Family {
	if len(families) == 0 {
		return []Family{IPv4}
	}
	if policy != PreferDualStack && policy != RequireDualStack && len(families) > 1 {
		return families[:1]
	}
	return families
}

// familyOf returns the family of an address.
func familyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// index is the place of a family in arrays that have one for each.
func (f Family) index() int {
	if f == IPv4 {
		return 0
	}
	return 1
}

// namespace is the first part of the name of the Service.
func (s *service) namespace() string {
	namespace, _, _ := strings.Cut(string(s.key), "/")
	return namespace
}

// sharingKey returns "" if none shares with the Service.
func (s *service) sharingKey() string {
	if s.sharing == nil {
		return ""
	}
	return s.sharing.key
}

// alike tells whether two Services share by the same key and on the same
// conditions.
func (t *terms) alike(other *terms) bool {
	return t.sharing == other.sharing || t.sharing != nil && other.sharing != nil && *t.sharing == *other.sharing
}

// byAge orders waiting Services: the oldest first.
func byAge(a, b *service) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.key, b.key))
}

// standingOf takes the condition of a Service at its word: what it holds is
// ours if the condition says so.
func standingOf(r Request) standing {
	s := standing{key: r.Key, created: microsOf(r.Created), ours: len(r.Given) > 0}
	if s.ours {
		s.since = microsOf(r.HeldSince)
	}
	return s
}

// seniority orders Services that claim the same address: who has it from us
// comes before who has not, and then who has held it longest.
func seniority(a, b standing) int {
	switch {
	case a.ours && !b.ours:
		return -1
	case b.ours && !a.ours:
		return 1
	}
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.created, b.created), cmp.Compare(a.key, b.key))
}

// wantsAddress returns the address that the Service asks for in a family.
func (s *service) wantsAddress(f Family) (netip.Addr, bool) {
	if s.asked != nil {
		for _, addr := range s.asked.addresses {
			if familyOf(addr) == f {
				return addr, true
			}
		}
	}
	return netip.Addr{}, false
}

// wantsPools returns the names of the pools that the Service asks for, in its
// order; none if any will do.
func (s *service) wantsPools() []string {
	if s.asked == nil {
		return nil
	}
	return s.asked.pools
}

// contradiction returns why what the Service asks for cannot be met in any
// state of the pools, nil if it can.
func (s *service) contradiction() *refusal {
	switch {
	case s.require && len(s.families) < 2:
		return refuse(FamilyUnavailable, "both families are required, but the Service has only %s", s.families[0])
	case s.asked == nil:
		return nil
	case s.asked.invalid != "":
		return refuse(InvalidRequest, "%s", s.asked.invalid)
	}
	for i, addr := range s.asked.addresses {
		f := familyOf(addr)
		if !slices.Contains(s.families, f) {
			return refuse(FamilyUnavailable, "%s is requested, but the Service has no %s", addr, f)
		}
		if first, _ := s.wantsAddress(f); slices.Index(s.asked.addresses, first) != i {
			return refuse(InvalidRequest, "both %s and %s are requested: a Service has one address per family", first, addr)
		}
	}
	return nil
}

// mayShareWith tells whether two Services may have one address.
func (s *service) mayShareWith(other *service) bool {
	if s.sharing == nil || !s.alike(&other.terms) {
		return false
	}
	_, taken := s.commonPort(other)
	return !taken
}

// clash says, from the side of s, why two Services may not have addr
// together.
func (s *service) clash(addr netip.Addr, other *service) *refusal {
	inUse := fmt.Sprintf("%s is in use by %s", addr, other.named())
	port, taken := s.commonPort(other)
	switch {
	case s.sharing == nil:
		return refuse(AddressInUse, "%s: no sharing key on this Service", inUse)
	case other.sharing == nil:
		return refuse(AddressInUse, "%s, which has no sharing key", inUse)
	case s.sharing.key != other.sharing.key:
		return refuse(SharingRefused, "%s, whose sharing key is another", inUse)
	case taken:
		return refuse(SharingRefused, "%s of %s is taken by %s", port, addr, other.key)
	case s.sharing.local != other.sharing.local:
		return refuse(SharingRefused, "%s, whose externalTrafficPolicy is another", inUse)
	}
	return refuse(SharingRefused, "%s: for externalTrafficPolicy Local both need the same selector", inUse)
}

func (s *service) commonPort(other *service) (Port, bool) {
	for _, port := range s.ports {
		if slices.Contains(other.ports, port) {
			return port, true
		}
	}
	return Port{}, false
}

// String returns for example "TCP 80".
func (p Port) String() string {
	return fmt.Sprintf("%s %d", p.Protocol, p.Number)
}

// named is the Service with its first ports, as messages name it.
func (s *service) named() string {
	const enough = 4
	var ports []string
	for i, port := range s.ports {
		if i == enough {
			ports = append(ports, "...")
			break
		}
		ports = append(ports, port.String())
	}
	if len(ports) == 0 {
		return string(s.key)
	}
	return fmt.Sprintf("%s (%s)", s.key, strings.Join(ports, ", "))
}
