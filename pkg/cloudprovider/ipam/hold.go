package ipam

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// coolDown is how long a freed address is given out last, so that a late
// announcer or a router of its former life meets nobody.
const coolDown = 30 * time.Second

// holding is an address that is not free.
type holding struct {
	at      *place     // nil: in no pool
	holders []*service // hold it, or gave it up and may still show it in their status
}

// bar is why an address is never given out, though a pool contains it.
type bar struct {
	reason Reason
	text   string
}

// freed is an address that cools down.
type freed struct {
	addr netip.Addr
	at   time.Time
}

// users returns the Services that hold an address; more than one: they share
// it.
func (a *Allocator) users(addr netip.Addr) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		h := a.holdings[addr]
		if h == nil {
			return
		}
		for _, s := range h.holders {
			if slices.Contains(s.held, addr) && !yield(s) {
				return
			}
		}
	}
}

func (h *holding) inNamespace(namespace string) bool {
	return slices.ContainsFunc(h.holders, func(s *service) bool { return s.namespace() == namespace })
}

// put binds a holding to the place of its address in the pools in force.
func (a *Allocator) put(addr netip.Addr, h *holding) {
	before := h.at
	h.at = a.at(addr)
	if h.at == nil {
		if before != nil {
			a.origins[addr] = before.pool.Name
		}
		return
	}
	delete(a.origins, addr)
	p := h.at.pool
	p.held[familyOf(addr).index()]++
	if !a.offered(h.at, addr) {
		p.odd[familyOf(addr).index()]++
	}
	h.at.shelf.rested.cut(single(addr))
	h.at.shelf.tired.cut(single(addr))
	var counted []string
	for _, s := range h.holders {
		if !slices.Contains(counted, s.namespace()) {
			counted = append(counted, s.namespace())
			p.perNamespace[s.namespace()]++
		}
	}
}

// claim makes a Service hold an address, whoever else does.
func (a *Allocator) claim(s *service, addr netip.Addr) {
	h, taken := a.holdings[addr]
	switch {
	case !taken:
		h = &holding{holders: []*service{s}}
		a.holdings[addr] = h
		delete(a.cooling, addr)
		a.put(addr, h)
	case !slices.Contains(h.holders, s):
		if h.at != nil && !h.inNamespace(s.namespace()) {
			h.at.pool.perNamespace[s.namespace()]++
		}
		h.holders = append(h.holders, s)
	}
	s.leaving = without(s.leaving, addr)
	s.held = append(s.held, addr)
	a.share(s, addr)
	a.stir(addr)
	a.shut(s, h.at, familyOf(addr))
}

// shut has those looked at again whose words may be out of date, now that a
// Service has taken an address: the last one of its pool, or of its quota.
func (a *Allocator) shut(s *service, at *place, f Family) {
	if at == nil {
		return
	}
	p := at.pool
	for _, b := range []blocker{
		{kind: onFree, pool: p.Name, name: string(f)},
		{kind: onQuota, pool: p.Name, name: s.namespace()},
	} {
		if len(a.doors[b]) > 0 && a.blocks(b) {
			a.notice(a.doors[b])
		}
	}
}

// stir notes that others share an address now, or on other terms.
func (a *Allocator) stir(addr netip.Addr) {
	b := blocker{kind: onAddress, addr: addr}
	a.lift(b)
	a.notice(a.doors[b])
	for s := range a.users(addr) {
		if key := s.sharingKey(); key != "" {
			a.lift(blocker{kind: onSharing, name: key})
		}
	}
}

// drop makes a Service hold an address no more. The address is not free
// before vacate: the status may still show it.
func (a *Allocator) drop(s *service, addr netip.Addr) {
	s.held = without(s.held, addr)
	s.leaving = append(s.leaving, addr)
	a.unshare(s, addr)
	a.stir(addr)
}

// vacate ends the leaving of a Service.
func (a *Allocator) vacate(s *service, addr netip.Addr) {
	h := a.holdings[addr]
	h.holders = without(h.holders, s)
	s.leaving = without(s.leaving, addr)
	if h.at != nil {
		a.uncount(s.namespace(), h)
	}
	a.stir(addr)
	if len(h.holders) == 0 {
		a.free(addr, h)
	}
}

// uncount takes an address from the quota of a namespace, if none of its
// Services has it any more.
func (a *Allocator) uncount(namespace string, h *holding) {
	p := h.at.pool
	a.lift(blocker{kind: onMoving, pool: p.Name, name: namespace})
	if h.inNamespace(namespace) {
		return
	}
	a.lift(blocker{kind: onQuota, pool: p.Name, name: namespace})
	if p.perNamespace[namespace]--; p.perNamespace[namespace] == 0 {
		delete(p.perNamespace, namespace)
	}
}

func (a *Allocator) vacateAll(s *service) {
	for len(s.leaving) > 0 {
		a.vacate(s, s.leaving[0])
	}
	s.reassigned = false
}

func (a *Allocator) dropAll(s *service) {
	for len(s.held) > 0 {
		a.drop(s, s.held[0])
	}
}

// free puts an address back on its shelf, with those given out last.
func (a *Allocator) free(addr netip.Addr, h *holding) {
	delete(a.holdings, addr)
	delete(a.origins, addr)
	a.cooling[addr] = a.now
	a.cooled = append(a.cooled, freed{addr, a.now})
	if h.at == nil {
		return
	}
	f := familyOf(addr)
	h.at.pool.held[f.index()]--
	if !a.offered(h.at, addr) {
		h.at.pool.odd[f.index()]--
		return
	}
	h.at.shelf.tired.add(single(addr))
	if h.at.owner != "" {
		a.hurry(h.at.owner)
		return
	}
	a.lift(blocker{kind: onFree, pool: h.at.pool.Name, name: string(f)})
}

// offered tells whether an address belongs on its shelf while it is free.
func (a *Allocator) offered(at *place, addr netip.Addr) bool {
	_, barred := a.barred[addr]
	return !barred && !at.pool.avoids(addr)
}

// rest moves what has cooled down to the rested addresses. A time before the
// freeing counts as after it: a clock that was set back must not make
// addresses wait for it.
func (a *Allocator) rest(now time.Time) {
	a.now = now
	for len(a.cooled) > 0 {
		next := a.cooled[0]
		if age := now.Sub(next.at); 0 <= age && age < coolDown {
			return
		}
		a.cooled = a.cooled[1:]
		if since, cools := a.cooling[next.addr]; cools && since.Equal(next.at) {
			delete(a.cooling, next.addr)
			a.move(next.addr)
		}
	}
}

// move takes an address from the tired to the rested ones of its shelf.
func (a *Allocator) move(addr netip.Addr) {
	if at := a.at(addr); at != nil && a.offered(at, addr) {
		at.shelf.tired.cut(single(addr))
		at.shelf.rested.add(single(addr))
	}
}

// tire takes an address from the rested to the tired ones of its shelf.
func (a *Allocator) tire(addr netip.Addr) {
	if at := a.at(addr); at != nil && a.offered(at, addr) {
		at.shelf.rested.cut(single(addr))
		at.shelf.tired.add(single(addr))
	}
}

// without returns a list without one of its elements, nil if it was the last.
func without[T comparable](list []T, gone T) []T {
	if len(list) == 1 && list[0] == gone {
		return nil
	}
	if i := slices.Index(list, gone); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
