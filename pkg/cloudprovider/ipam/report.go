package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Assigned returns what a Service holds, nil if nothing. What others wrote to
// its status and we have not adopted is not counted.
func (a *Allocator) Assigned(key Key) []netip.Addr {
	s := a.services[key]
	if s == nil || !s.ours {
		return nil
	}
	return slices.Clone(s.held)
}

// Usage is the state of one pool.
type Usage struct {
	Pool    string
	Family  Family
	Size    uint64 // what is held or can be given out; saturates at 1<<63 - 1
	Held    int    // what is not free, be it that a status still shows what its Service has given up
	Cooling int    // freed less than 30 s ago
}

// Usage returns the state of each pool and family, in the order of the pools.
// Addresses that are never given out, such as those of Nodes, count to the size
// only as long as they are held nevertheless, so that what is not held can be
// given out.
func (a *Allocator) Usage(now time.Time) []Usage {
	a.rest(now)
	cooling := map[*pool]*[2]int{}
	for addr := range a.cooling {
		if at := a.at(addr); at != nil && a.offered(at, addr) {
			if cooling[at.pool] == nil {
				cooling[at.pool] = new([2]int)
			}
			cooling[at.pool][familyOf(addr).index()]++
		}
	}
	var out []Usage
	for _, p := range a.pools {
		for _, f := range []Family{IPv4, IPv6} {
			if len(p.of(f)) == 0 {
				continue
			}
			u := Usage{Pool: p.Name, Family: f, Size: plus(p.size[f.index()], uint64(p.odd[f.index()])), Held: p.held[f.index()]}
			if c := cooling[p]; c != nil {
				u.Cooling = c[f.index()]
			}
			out = append(out, u)
		}
	}
	return out
}

// Holding is one held address.
type Holding struct {
	Address  netip.Addr
	Pool     string // empty: in no pool
	Services []Key  // sorted; more than one: shared
}

// Holdings returns all held addresses in ascending order.
func (a *Allocator) Holdings() []Holding {
	var out []Holding
	for _, addr := range slices.SortedFunc(maps.Keys(a.holdings), netip.Addr.Compare) {
		holders := a.Holders(addr)
		if len(holders) == 0 {
			continue
		}
		h := Holding{Address: addr, Services: holders}
		if at := a.holdings[addr].at; at != nil {
			h.Pool = at.pool.Name
		}
		out = append(out, h)
	}
	return out
}

// given tells whether a Service has an address from us.
func (a *Allocator) given(addr netip.Addr) bool {
	for s := range a.users(addr) {
		if s.ours {
			return true
		}
	}
	return false
}

// Holders returns the Services that hold an address, sorted.
func (a *Allocator) Holders(addr netip.Addr) []Key {
	var out []Key
	for s := range a.users(addr) {
		if s.ours {
			out = append(out, s.key)
		}
	}
	slices.Sort(out)
	return out
}

// Loss is an address in use that other pools would take away or move.
type Loss struct {
	Key     Key
	Address netip.Addr
	To      netip.Addr // what the Service would have instead; not valid if nothing
	Message string
}

// Losses tells which held addresses would be taken away or moved if pools
// came into force, sorted by address. It changes nothing: it tries the pools
// on a copy, those first that wait and then the others, oldest first, as if
// every status were written at once.
func (a *Allocator) Losses(pools []config.Pool) []Loss {
	trial := a.copy()
	trial.configure(pools, a.barred)
	var services []*service
	for _, s := range a.waiting[blocker{kind: onPools}] {
		services = append(services, trial.services[s.key])
	}
	waiting := len(services)
	for key, s := range trial.services {
		if a.services[key].wait == nil {
			services = append(services, s)
		}
	}
	slices.SortFunc(services[waiting:], byAge)
	var out []Loss
	for _, s := range services {
		out = append(out, trial.loss(s, a.Assigned(s.key))...)
	}
	slices.SortFunc(out, func(a, b Loss) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Key, b.Key))
	})
	return out
}

// loss decides about a Service, as if its status were written at once, and
// returns what it has no more of what it had.
func (a *Allocator) loss(s *service, had []netip.Addr) []Loss {
	why := map[netip.Addr]string{}
	for _, addr := range s.held {
		why[addr], _ = a.complaint(s, addr)
	}
	a.decide(s)
	a.vacateAll(s)
	a.serve()
	var out []Loss
	for _, addr := range had {
		if !slices.Contains(s.held, addr) {
			out = append(out, lossOf(s, addr, why[addr]))
		}
	}
	return out
}

// lossOf says what a Service has instead of an address, and why.
func lossOf(s *service, addr netip.Addr, why string) Loss {
	if why == "" {
		why = "it is not what the Service asks for"
	}
	for _, other := range s.held {
		if familyOf(other) == familyOf(addr) {
			return Loss{s.key, addr, other, fmt.Sprintf("%s moves from %s to %s: %s", s.key, addr, other, why)}
		}
	}
	return Loss{Key: s.key, Address: addr, Message: fmt.Sprintf("%s loses %s: %s", s.key, addr, why)}
}

// copy returns an Allocator without pools in which the same is held.
func (a *Allocator) copy() *Allocator {
	out := New()
	out.now = a.now
	twins := make(map[*service]*service, len(a.services))
	for key, s := range a.services {
		twin := &service{standing: s.standing, terms: s.terms, held: slices.Clone(s.held), leaving: slices.Clone(s.leaving)}
		out.services[key], twins[s] = twin, twin
	}
	out.origins = maps.Clone(a.origins)
	for addr, h := range a.holdings {
		if h.at != nil {
			out.origins[addr] = h.at.pool.Name
		}
		own := &holding{}
		for _, s := range h.holders {
			own.holders = append(own.holders, twins[s])
		}
		out.holdings[addr] = own
		for s := range out.users(addr) {
			out.share(s, addr)
		}
	}
	out.cooling, out.cooled = maps.Clone(a.cooling), slices.Clone(a.cooled)
	return out
}
