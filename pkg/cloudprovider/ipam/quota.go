package ipam

import (
	"net/netip"
	"slices"
)

// quota says, if the namespace has its share of a pool already, so: for an
// address, which may be one that it shares, or for any that is free.
func (q *search) quota(p *pool, f Family, addr netip.Addr) *refusal {
	if p.MaxPerNamespace == 0 {
		return nil
	}
	if h := q.holdings[addr]; h != nil && h.inNamespace(q.s.namespace()) {
		return nil
	}
	if !p.full(q.s.namespace(), q.givesBack(p, f)) {
		q.passes(blocker{kind: onQuota, pool: p.Name, name: q.s.namespace()})
		return nil
	}
	kind := onQuota
	if len(q.giving[0])+len(q.giving[1])+len(q.gone)+len(q.s.leaving) > 0 {
		kind = onMoving
	}
	no := refuse(QuotaExceeded, "namespace %s may not have more than %d addresses of pool %q",
		q.s.namespace(), p.MaxPerNamespace, p.Name).
		on(blocker{kind: kind, pool: p.Name, name: q.s.namespace()})
	if addr.IsValid() {
		no.on(blocker{kind: onAddress, addr: addr}) // which counts already if others of the namespace get it
	}
	return no
}

// givesBack returns by how many addresses the namespace will have less of a
// pool if the Service gets one of family f, that one not counted.
func (q *search) givesBack(p *pool, f Family) int {
	n := q.alone(p, q.s.leaving) + q.alone(p, q.gone) + q.alone(p, q.giving[f.index()])
	for other, addr := range q.found {
		if !addr.IsValid() {
			continue
		}
		n += q.alone(p, q.giving[other])
		if h := q.holdings[addr]; q.at(addr).pool == p && (h == nil || !h.inNamespace(q.s.namespace())) {
			n--
		}
	}
	return n
}

// alone returns how many of some addresses are of a pool and not kept in the
// namespace by another Service.
func (q *search) alone(p *pool, addresses []netip.Addr) int {
	n := 0
	for _, addr := range addresses {
		h := q.holdings[addr]
		another := func(u *service) bool { return u != q.s && u.namespace() == q.s.namespace() }
		if h.at != nil && h.at.pool == p && !slices.ContainsFunc(h.holders, another) {
			n++
		}
	}
	return n
}
