package ipam

import (
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// search looks for addresses of the families that a Service needs. It changes
// nothing.
type search struct {
	*Allocator
	s      *service
	gone   []netip.Addr    // what the Service gives up anyway
	giving [2][]netip.Addr // by family: what it gives up if something is found
	anchor *pool           // the pool of its other address, if it has one

	pools  []*pool    // may be asked for addresses, in this order
	others []*refusal // why the other pools may not

	found   [2]netip.Addr // by family, where valid
	refused [2]*refusal   // by family
	passage               // whichever way was tried
}

// passage is what the outcome of a search depends on, besides the pools.
type passage struct {
	blockers []blocker // all that stood in the way
	open     []blocker // all that did not and might
}

// run finds an address for each family, or why there is none.
func (q *search) run(families []Family) {
	if len(families) == 0 {
		return
	}
	if no := q.s.contradiction(); no != nil {
		for _, f := range families {
			q.refused[f.index()] = no
		}
		return
	}
	q.choosePools()
	anchor := q.anchor
	if q.try(families, true) || len(families) < 2 {
		return
	}
	// What one family took of a quota may be what the other one lacks.
	found, refused := q.found, q.refused
	backwards := []Family{families[1], families[0]}
	for _, other := range []struct {
		order []Family
		share bool
	}{{backwards, true}, {families, false}, {backwards, false}} {
		q.anchor = anchor
		if q.try(other.order, other.share) {
			return
		}
	}
	q.found, q.refused = found, refused
}

// try looks for addresses of families, in this order, and tells whether it
// found them all. It prefers what the Service asks for by address, what is
// reserved for it, what it may share, and one pool for both families.
func (q *search) try(families []Family, share bool) bool {
	q.found, q.refused = [2]netip.Addr{}, [2]*refusal{}
	for _, f := range families {
		if addr, ok := q.s.wantsAddress(f); ok {
			q.request(f, addr)
		} else if addr, ok := q.reservation(f); ok {
			q.take(f, addr)
			q.passes(blocker{kind: onAddress, addr: addr})
		}
	}
	if share {
		for _, f := range q.vacant(families) {
			if addr, ok := q.shareable(q.s, f, q.suits); ok {
				q.take(f, addr)
				q.passes(blocker{kind: onAddress, addr: addr})
			}
		}
	}
	q.fromPools(q.vacant(families))
	for _, no := range q.refused {
		if no != nil {
			q.blockers = append(q.blockers, no.blockers...)
		}
	}
	return q.refused == [2]*refusal{}
}

// passes notes what does not stand in the way.
func (q *search) passes(b blocker) {
	q.open = append(q.open, b)
}

// vacant returns the families without an answer yet.
func (q *search) vacant(families []Family) []Family {
	var out []Family
	for _, f := range families {
		if i := f.index(); !q.found[i].IsValid() && q.refused[i] == nil {
			out = append(out, f)
		}
	}
	return out
}

func (q *search) take(f Family, addr netip.Addr) {
	q.found[f.index()] = addr
	if at := q.at(addr); q.anchor == nil && at != nil {
		q.anchor = at.pool
	}
}

// choosePools works out which pools may be asked: those that the Service
// names, else all that give out addresses by themselves and are for it.
func (q *search) choosePools() {
	if names := q.s.wantsPools(); len(names) > 0 {
		for _, name := range names {
			if p := q.byName[name]; p != nil {
				q.consider(p, true)
			} else {
				q.others = append(q.others, refuse(NoPool, "no pool is named %q", name))
			}
		}
		return
	}
	for _, p := range q.tried {
		q.consider(p, false)
	}
}

func (q *search) consider(p *pool, asked bool) {
	no := p.closed()
	if no == nil && !asked && !p.AutoAssign {
		no = refuse(NoPool, "pool %q gives out addresses only on request", p.Name)
	}
	if no == nil {
		no = p.serves(q.s, asked)
	}
	if no != nil {
		q.others = append(q.others, no)
		return
	}
	q.pools = append(q.pools, p)
}

// request takes the very address that the Service asks for, or says what is
// wrong with it.
func (q *search) request(f Family, addr netip.Addr) {
	if no := q.judge(f, addr); no != nil {
		q.refused[f.index()] = no
		return
	}
	q.take(f, addr)
	q.passes(blocker{kind: onAddress, addr: addr})
}

func (q *search) judge(f Family, addr netip.Addr) *refusal {
	at := q.at(addr)
	if at == nil {
		return refuse(AddressNotInPool, "%s is not in any pool%s", addr, q.known(addr))
	}
	if b, barred := q.barred[addr]; barred {
		return refuse(b.reason, "%s is %s", addr, b.text)
	}
	if !q.among(at.pool) {
		return refuse(AddressNotInPool, "%s is in pool %q, which is not requested", addr, at.pool.Name)
	}
	if no := q.permits(at, addr); no != nil {
		return no.about(addr)
	}
	if at.owner == "" {
		if no := q.quota(at.pool, f, addr); no != nil {
			return no
		}
	}
	if other := q.obstacle(q.s, addr); other != nil {
		return q.s.clash(addr, other).on(blocker{kind: onAddress, addr: addr})
	}
	return nil
}

// among tells whether a pool is one of those that the Service names, if it
// names any.
func (q *search) among(p *pool) bool {
	names := q.s.wantsPools()
	return len(names) == 0 || slices.Contains(names, p.Name)
}

// permits says which rule of its pool keeps an address from a Service that
// asks for it, nil if none.
func (q *search) permits(at *place, addr netip.Addr) *refusal {
	if no := at.pool.closed(); no != nil {
		return no
	}
	if at.pool.avoids(addr) {
		return refuse(AddressNotInPool, "pool %q avoids .0 and .255", at.pool.Name)
	}
	if at.owner == q.s.key {
		return nil
	}
	if no := at.pool.serves(q.s, true); no != nil {
		return no
	}
	if at.owner != "" {
		return refuse(AddressInUse, "it is reserved for %s", at.owner)
	}
	return nil
}

// known adds what else is known of an address in no pool.
func (q *search) known(addr netip.Addr) string {
	if b, barred := q.barred[addr]; barred {
		return ": it is " + b.text
	}
	if use := config.SpecialPurpose(addr); use != "" {
		return ": it is set aside for " + use
	}
	return ""
}

// reservation returns an address that is kept for the Service and free.
func (q *search) reservation(f Family) (netip.Addr, bool) {
	for _, at := range q.reserved[q.s.key] {
		if familyOf(at.From()) != f || at.pool.closed() != nil || !q.among(at.pool) {
			continue
		}
		if addr, ok := at.pool.pick(at.shelf, f, q.s.key); ok {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// suits tells whether the Service may have an address that others hold
// because of its sharing key. To carry the key is to ask for the address, so a
// pool need not give out addresses by itself. What others have only written to
// a status is not shared before it is adopted.
func (q *search) suits(addr netip.Addr) bool {
	at := q.at(addr)
	if at == nil || !q.offered(at, addr) || at.pool.closed() != nil || !q.among(at.pool) || !q.given(addr) {
		return false
	}
	if at.owner != "" {
		return at.owner == q.s.key
	}
	if at.pool.serves(q.s, len(q.s.wantsPools()) > 0) != nil {
		return false
	}
	no := q.quota(at.pool, familyOf(addr), addr)
	if no != nil {
		q.blockers = append(q.blockers, no.blockers...)
	}
	return no == nil
}

// fromPools takes the next free addresses of the pools: of both families from
// one pool if possible.
func (q *search) fromPools(families []Family) {
	pools := q.pools
	if i := slices.Index(pools, q.anchor); i > 0 {
		pools = slices.Concat([]*pool{q.anchor}, pools[:i], pools[i+1:])
	}
	if len(families) == 2 {
		for _, p := range pools {
			if q.both(p, families) {
				return
			}
		}
	}
	for _, f := range families {
		q.fromFirst(pools, f)
	}
}

// both takes addresses of two families from one pool, if it has them.
func (q *search) both(p *pool, families []Family) bool {
	for _, f := range families {
		addr, no := q.free(p, f)
		if no != nil {
			q.found = [2]netip.Addr{}
			return false
		}
		q.found[f.index()] = addr
	}
	return true
}

func (q *search) fromFirst(pools []*pool, f Family) {
	why := slices.Clone(q.others)
	for _, p := range pools {
		addr, no := q.free(p, f)
		if no == nil {
			q.take(f, addr)
			return
		}
		why = append(why, no)
	}
	no := noneOf(f, why)
	if key := q.s.sharingKey(); key != "" {
		no.on(blocker{kind: onSharing, name: key})
		if addr, other := q.unsharable(q.s, f); other != nil {
			no.text += "; " + q.s.clash(addr, other).text
		}
	}
	q.refused[f.index()] = no
}

// free returns the next free address of a pool.
func (q *search) free(p *pool, f Family) (netip.Addr, *refusal) {
	if p.size[f.index()] == 0 {
		return netip.Addr{}, refuse(FamilyUnavailable, "pool %q has no %s addresses", p.Name, f)
	}
	if no := q.quota(p, f, netip.Addr{}); no != nil {
		return netip.Addr{}, no
	}
	free := blocker{kind: onFree, pool: p.Name, name: string(f)}
	addr, ok := p.pick(p.general[f.index()], f, q.s.key)
	if !ok {
		return addr, refuse(PoolExhausted, "pool %q has no %s address free (of %d)", p.Name, f, p.size[f.index()]).on(free)
	}
	q.passes(free)
	return addr, nil
}
