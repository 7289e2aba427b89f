package ipam

import (
	"net/netip"
	"slices"
)

// circle names the Services with a sharing key that may share addresses,
// ports permitting, and their addresses of one family.
type circle struct {
	sharing
	family Family
}

// common is what a circle holds.
type common struct {
	addresses []netip.Addr // ascending
	ports     map[Port]int // on how many of the addresses it is in use
}

// circle must not be called for a Service without a sharing key.
func (s *service) circle(f Family) circle {
	return circle{*s.sharing, f}
}

// share enters an address that a Service has begun to hold, or holds under
// new terms, in its circle.
func (a *Allocator) share(s *service, addr netip.Addr) {
	if s.sharing == nil {
		return
	}
	id := s.circle(familyOf(addr))
	circles := a.circles[id.key]
	if circles == nil {
		circles = map[circle]*common{}
		a.circles[id.key] = circles
	}
	c := circles[id]
	if c == nil {
		c = &common{ports: map[Port]int{}}
		circles[id] = c
	}
	if i, found := slices.BinarySearchFunc(c.addresses, addr, netip.Addr.Compare); !found {
		c.addresses = slices.Insert(c.addresses, i, addr)
	}
	for _, port := range s.ports {
		c.ports[port]++
	}
}

// unshare undoes share, with the same terms. The address must not count the
// Service as a user any more, unless it is about to be entered again.
func (a *Allocator) unshare(s *service, addr netip.Addr) {
	if s.sharing == nil {
		return
	}
	id := s.circle(familyOf(addr))
	c := a.circles[id.key][id]
	for _, port := range s.ports {
		if c.ports[port]--; c.ports[port] == 0 {
			delete(c.ports, port)
		}
	}
	another := false
	for u := range a.users(addr) {
		another = another || u != s && u.alike(&s.terms)
	}
	if !another {
		if i, found := slices.BinarySearchFunc(c.addresses, addr, netip.Addr.Compare); found {
			c.addresses = slices.Delete(c.addresses, i, i+1)
		}
	}
	if len(c.addresses) == 0 {
		delete(a.circles[id.key], id)
	}
	if len(a.circles[id.key]) == 0 {
		delete(a.circles, id.key)
	}
	a.lift(blocker{kind: onSharing, name: s.sharing.key})
}

// shareable returns the lowest address that others hold and the Service may
// share, and that suits it.
func (a *Allocator) shareable(s *service, f Family, suits func(netip.Addr) bool) (netip.Addr, bool) {
	if s.sharing == nil {
		return netip.Addr{}, false
	}
	c := a.circles[s.sharing.key][s.circle(f)]
	if c == nil || c.crowded(s.ports) {
		return netip.Addr{}, false
	}
	for _, addr := range c.addresses {
		if !slices.Contains(s.held, addr) && a.obstacle(s, addr) == nil && suits(addr) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// unsharable returns the lowest address that is held under the sharing key of
// a Service and that it cannot share all the same, and who is in its way.
func (a *Allocator) unsharable(s *service, f Family) (lowest netip.Addr, holder *service) {
	for id, c := range a.circles[s.sharing.key] {
		if id.family != f {
			continue
		}
		for _, addr := range c.addresses {
			if holder != nil && lowest.Less(addr) {
				break
			}
			if other := a.obstacle(s, addr); other != nil {
				lowest, holder = addr, other
				break
			}
		}
	}
	return lowest, holder
}

// crowded tells whether one of the ports is in use on every address: then
// there is no need to look at each.
func (c *common) crowded(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool { return c.ports[p] >= len(c.addresses) })
}

// obstacle returns the first Service, by name, that does not let another one
// have an address with it, nil if there is none. Who is about to leave counts.
func (a *Allocator) obstacle(s *service, addr netip.Addr) *service {
	h := a.holdings[addr]
	if h == nil {
		return nil
	}
	var first *service
	for _, u := range h.holders {
		if u != s && !s.mayShareWith(u) && (first == nil || u.key < first.key) {
			first = u
		}
	}
	return first
}

// rivals returns the Services that hold an address and cannot share it with s.
func (a *Allocator) rivals(s *service, addr netip.Addr) []*service {
	var out []*service
	for u := range a.users(addr) {
		if u != s && !s.mayShareWith(u) {
			out = append(out, u)
		}
	}
	return out
}
