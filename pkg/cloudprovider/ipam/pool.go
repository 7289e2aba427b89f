package ipam

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// pool is a pool with what is free of it.
type pool struct {
	config.Pool
	general      [2]*shelf // by family: what any Service may get
	size         [2]uint64 // by family: what could be given out, held or not
	held         [2]int    // by family
	odd          [2]int    // how many of them would not be given out
	perNamespace map[string]int
}

// shelf is what is free of a part of a pool.
type shelf struct {
	rested intervals
	tired  intervals // freed a moment ago: given out last
}

// place is a range of a pool whose addresses lie on one shelf.
type place struct {
	netipx.IPRange
	pool  *pool
	shelf *shelf
	owner Key // the only Service that may have them; empty: any
}

// layout is what pools mean, before anything is held.
type layout struct {
	pools    []*pool // in the order of the document
	tried    []*pool // in the order of priority
	byName   map[string]*pool
	places   []place // ascending
	reserved map[Key][]place
}

// lay works out a layout. Addresses that are barred are on no shelf.
func lay(pools []config.Pool, barred map[netip.Addr]bar) layout {
	l := layout{byName: map[string]*pool{}, reserved: map[Key][]place{}}
	for _, c := range pools {
		p := &pool{Pool: c, perNamespace: map[string]int{}}
		l.pools = append(l.pools, p)
		l.byName[c.Name] = p
		l.places = append(l.places, p.places()...)
	}
	slices.SortFunc(l.places, func(a, b place) int { return a.From().Compare(b.From()) })
	for _, at := range l.places {
		if at.owner != "" {
			l.reserved[at.owner] = append(l.reserved[at.owner], at)
		}
	}
	for _, own := range l.reserved {
		slices.SortStableFunc(own, func(a, b place) int { return cmp.Compare(b.pool.Priority, a.pool.Priority) })
	}
	l.tried = slices.Clone(l.pools)
	slices.SortStableFunc(l.tried, func(a, b *pool) int { return cmp.Compare(b.Priority, a.Priority) })
	for addr := range barred {
		if at := l.at(addr); at != nil {
			at.shelf.rested.cut(single(addr))
			at.pool.bar(addr)
		}
	}
	return l
}

// at returns the place of an address, nil if it is in no pool.
func (l *layout) at(addr netip.Addr) *place {
	if addr.Zone() != "" {
		return nil // valid on one node only
	}
	i, found := slices.BinarySearchFunc(l.places, addr, func(p place, a netip.Addr) int { return p.From().Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !l.places[i].Contains(addr) {
		return nil
	}
	return &l.places[i]
}

// places fills the shelves with all addresses of the pool and returns what
// lies where.
func (p *pool) places() []place {
	p.general = [2]*shelf{{}, {}}
	for _, r := range p.Ranges {
		i := familyOf(r.From()).index()
		p.general[i].rested.add(r)
		p.size[i] = plus(p.size[i], p.countable(r))
	}
	var out []place
	for _, reservation := range p.Reservations {
		owner := Key(reservation.Namespace + "/" + reservation.Name)
		for _, r := range reservation.Ranges {
			p.general[familyOf(r.From()).index()].rested.cut(r)
			own := &shelf{}
			own.rested.add(r)
			out = append(out, place{r, p, own, owner})
		}
	}
	for _, shelf := range p.general {
		for _, r := range shelf.rested.ranges() {
			out = append(out, place{r, p, shelf, ""})
		}
	}
	return out
}

// countable returns how many addresses of a range could be given out.
func (p *pool) countable(r netipx.IPRange) uint64 {
	n := size(r)
	if p.AvoidBuggyIPs {
		n -= edges(r)
	}
	return n
}

// bar takes an address out of the count of what could be given out.
func (p *pool) bar(addr netip.Addr) {
	i := familyOf(addr).index()
	if p.size[i] < most {
		p.size[i] -= p.countable(single(addr))
	}
}

// avoids tells whether the pool does not give out an address because of its
// last byte.
func (p *pool) avoids(addr netip.Addr) bool {
	return p.AvoidBuggyIPs && edge(addr)
}

// pick returns the address of a shelf of the pool that is next for a Service.
// What the pool avoids goes off the shelf when it is come across, once.
func (p *pool) pick(from *shelf, f Family, key Key) (netip.Addr, bool) {
	start := p.start(f, key)
	for _, set := range []*intervals{&from.rested, &from.tired} {
		for {
			addr, ok := set.pick(p.Order, start)
			if !ok {
				break
			}
			if !p.avoids(addr) {
				return addr, true
			}
			set.cut(single(addr))
		}
	}
	return netip.Addr{}, false
}

// start returns where the search for a Service begins in a pool with hashed
// order. It depends on nothing but the ranges and the name.
func (p *pool) start(f Family, key Key) netip.Addr {
	if p.Order != config.Hashed {
		return netip.Addr{}
	}
	ranges := p.of(f)
	if len(ranges) == 0 {
		return netip.Addr{}
	}
	sum := sha256.Sum256([]byte(key))
	n := binary.BigEndian.Uint64(sum[:]) % sizes(ranges)
	for _, r := range ranges {
		if n < size(r) {
			return offset(r.From(), n)
		}
		n -= size(r)
	}
	return ranges[0].From()
}

// of returns the ranges of a family.
func (p *pool) of(f Family) []netipx.IPRange {
	i := slices.IndexFunc(p.Ranges, func(r netipx.IPRange) bool { return r.From().Is6() })
	if i < 0 {
		i = len(p.Ranges)
	}
	if f == IPv4 {
		return p.Ranges[:i]
	}
	return p.Ranges[i:]
}

// closed says why the pool gives out nothing new to anybody, nil if it does.
func (p *pool) closed() *refusal {
	switch p.State {
	case config.Draining:
		return refuse(NoPool, "pool %q is draining and gives out nothing new", p.Name)
	case config.Disabled:
		return refuse(NoPool, "pool %q is disabled", p.Name)
	}
	return nil
}

// serves says why the pool is not for a Service, nil if it is. To ask for the
// pool, or for an address of it, replaces being selected, except where the
// pool insists on its namespaces.
func (p *pool) serves(s *service, asked bool) *refusal {
	switch {
	case asked && p.EnforceNamespaces && !p.forNamespace(s):
		return refuse(NamespaceNotAllowed, "pool %q is not for namespace %s", p.Name, s.namespace())
	case asked:
		return nil
	case !p.forNamespace(s):
		return refuse(NoPool, "pool %q is not for namespace %s", p.Name, s.namespace())
	case !p.ServiceSelector.Matches(s.labels):
		return refuse(NoPool, "pool %q does not select this Service", p.Name)
	}
	return nil
}

func (p *pool) forNamespace(s *service) bool {
	if len(p.Namespaces) == 0 && len(p.NamespaceSelector) == 0 {
		return true
	}
	return slices.Contains(p.Namespaces, s.namespace()) ||
		len(p.NamespaceSelector) > 0 && p.NamespaceSelector.Matches(s.namespaceLabels)
}

// full tells whether a namespace may have no more addresses of the pool.
func (p *pool) full(namespace string, but int) bool {
	return p.MaxPerNamespace > 0 && p.perNamespace[namespace]-but >= p.MaxPerNamespace
}
