package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// model judges a world by looking at every address and every Service: slow,
// simple and without anything of the Allocator but what it says it assigned.
type model struct {
	*world
	freedAt map[netip.Addr]time.Time // when an address was seen free first, after it had been in use
	inUse   map[netip.Addr]bool
	lastIn  map[netip.Addr]string // the pool that an address in use was in last
}

func newModel(w *world) *model {
	return &model{world: w, freedAt: map[netip.Addr]time.Time{}, inUse: map[netip.Addr]bool{}, lastIn: map[netip.Addr]string{}}
}

// note remembers what is in use now; it is to be called after each step.
func (m *model) note() {
	using := map[netip.Addr]bool{}
	for key, o := range m.objects {
		for _, addr := range slices.Concat(o.status, m.a.Assigned(key)) {
			using[addr] = true
			if p := m.pool(addr); p != nil {
				m.lastIn[addr] = p.Name
			}
		}
	}
	for addr := range m.inUse {
		if !using[addr] {
			m.freedAt[addr] = m.now
		}
	}
	m.inUse = using
}

// forget is what a restart does: only the statuses are known, with the pools
// that their messages name, and nothing of what was freed before.
func (m *model) forget() {
	clear(m.freedAt)
	clear(m.inUse)
	clear(m.lastIn)
	for _, o := range m.objects {
		for _, addr := range o.status {
			m.inUse[addr] = true
		}
		for _, c := range config.Confirmed(o.message) {
			m.lastIn[c.Address] = c.Pool
		}
	}
}

func (m *model) cools(addr netip.Addr) bool {
	freed, ok := m.freedAt[addr]
	return ok && m.now.Sub(freed) < 30*time.Second
}

func contains(ranges []netipx.IPRange, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netipx.IPRange) bool { return r.Contains(addr) })
}

func (m *model) pool(addr netip.Addr) *config.Pool {
	for i := range m.pools {
		if contains(m.pools[i].Ranges, addr) {
			return &m.pools[i]
		}
	}
	return nil
}

func (m *model) named(name string) *config.Pool {
	i := slices.IndexFunc(m.pools, func(p config.Pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &m.pools[i]
}

func owner(p *config.Pool, addr netip.Addr) Key {
	for _, r := range p.Reservations {
		if contains(r.Ranges, addr) {
			return Key(r.Namespace + "/" + r.Name)
		}
	}
	return ""
}

func (m *model) barred(addr netip.Addr) bool {
	return m.cluster.NodeAddresses[addr] != "" || slices.Contains(m.cluster.Reserved, addr)
}

func (m *model) forNamespace(p *config.Pool, namespace string) bool {
	return len(p.Namespaces) == 0 && len(p.NamespaceSelector) == 0 || slices.Contains(p.Namespaces, namespace) ||
		len(p.NamespaceSelector) > 0 && p.NamespaceSelector.Matches(m.namespaces[namespace])
}

func avoided(p *config.Pool, addr netip.Addr) bool {
	return p.AvoidBuggyIPs && addr.Is4() && (addr.As4()[3] == 0 || addr.As4()[3] == 255)
}

func asksFor(r Request, p *config.Pool, addr netip.Addr) bool {
	return slices.Contains(r.Addresses, addr) || slices.Contains(r.Pools, p.Name)
}

// grantable tells whether the rules of the pools let a Service have an address
// that it does not hold; joining: others hold it under its sharing key.
func (m *model) grantable(r Request, addr netip.Addr, joining bool) bool {
	p := m.pool(addr)
	switch {
	case p == nil || m.barred(addr) || p.State != config.Active || avoided(p, addr):
		return false
	case len(r.Pools) > 0 && !slices.Contains(r.Pools, p.Name):
		return false
	case slices.ContainsFunc(r.Addresses, func(a netip.Addr) bool { return a.Is4() == addr.Is4() && a != addr }):
		return false
	case owner(p, addr) != "":
		return owner(p, addr) == r.Key
	case asksFor(r, p, addr):
		return !p.EnforceNamespaces || m.forNamespace(p, r.Namespace)
	}
	return (p.AutoAssign || joining) && m.forNamespace(p, r.Namespace) && p.ServiceSelector.Matches(r.Labels)
}

// wrong tells whether an address that a Service holds offends a rule, and
// whether it is to be replaced then.
func (m *model) wrong(r Request, addr netip.Addr) (offends, replace bool) {
	p := m.pool(addr)
	if p == nil {
		from := m.named(m.lastIn[addr])
		return true, from != nil && from.OnMismatch == config.Reassign
	}
	own := owner(p, addr)
	switch {
	case m.barred(addr), p.State == config.Disabled, avoided(p, addr), own != "" && own != r.Key:
		offends = true
	case own == r.Key:
	case asksFor(r, p, addr):
		offends = p.EnforceNamespaces && !m.forNamespace(p, r.Namespace)
	default:
		offends = !m.forNamespace(p, r.Namespace) || !p.ServiceSelector.Matches(r.Labels)
	}
	return offends, offends && p.OnMismatch == config.Reassign
}

// others returns the Services besides one that have an address or show it.
func (m *model) others(key Key, addr netip.Addr) []Request {
	var out []Request
	for k, o := range m.objects {
		if k != key && (slices.Contains(o.status, addr) || slices.Contains(m.a.Assigned(k), addr)) {
			out = append(out, o.spec)
		}
	}
	return out
}

func compatible(a, b Request) bool {
	if a.SharingKey == "" || a.SharingKey != b.SharingKey || a.Local != b.Local || a.Local && a.Selector != b.Selector {
		return false
	}
	return !slices.ContainsFunc(a.Ports, func(p Port) bool { return slices.Contains(b.Ports, p) })
}

// gets tells whether a Service could have an address right now, besides or
// instead of what it has.
func (m *model) gets(r Request, addr netip.Addr, instead []netip.Addr) bool {
	others := m.others(r.Key, addr)
	given := len(others) == 0 // what only others wrote down is not shared before it is adopted
	for _, o := range others {
		if !compatible(r, o) {
			return false
		}
		given = given || slices.Contains(m.a.Assigned(o.Key), addr)
	}
	return given && m.grantable(r, addr, len(others) > 0) && m.room(r, []netip.Addr{addr}, instead)
}

// room tells whether the quota of its namespace lets a Service have addresses
// instead of others.
func (m *model) room(r Request, more, instead []netip.Addr) bool {
	for _, addr := range more {
		p := m.pool(addr)
		if p.MaxPerNamespace == 0 || owner(p, addr) == r.Key {
			continue
		}
		before, after := m.counted(p, r, nil, instead), m.counted(p, r, more, instead)
		if after > before && after > p.MaxPerNamespace {
			return false
		}
	}
	return true
}

// counted returns how many addresses of a pool a namespace has, if one of its
// Services had some more and some less.
func (m *model) counted(p *config.Pool, r Request, more, less []netip.Addr) int {
	set := map[netip.Addr]bool{}
	for key, o := range m.objects {
		if o.spec.Namespace != r.Namespace {
			continue
		}
		for _, addr := range slices.Concat(o.status, m.a.Assigned(key)) {
			if contains(p.Ranges, addr) && (key != r.Key || !slices.Contains(less, addr)) {
				set[addr] = true
			}
		}
	}
	for _, addr := range more {
		if contains(p.Ranges, addr) {
			set[addr] = true
		}
	}
	return len(set)
}

// available returns all addresses of a family that a Service could have.
func (m *model) available(r Request, f Family, instead []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, p := range m.pools {
		for _, span := range p.Ranges {
			for addr := span.From(); addr.IsValid() && !span.To().Less(addr); addr = addr.Next() {
				if addr.Is4() == (f == IPv4) && m.gets(r, addr, instead) {
					out = append(out, addr)
				}
			}
		}
	}
	return out
}

func of(f Family, list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, addr := range list {
		if addr.Is4() == (f == IPv4) {
			out = append(out, addr)
		}
	}
	return out
}

func families(r Request) []Family {
	if r.Policy == SingleStack {
		return r.Families[:1]
	}
	return r.Families
}

// contradictory tells whether no state of the pools could meet a request.
func contradictory(r Request) bool {
	if r.Invalid != "" || r.Policy == RequireDualStack && len(r.Families) < 2 {
		return true
	}
	for _, f := range []Family{IPv4, IPv6} {
		n := len(of(f, r.Addresses))
		if n > 1 || n > 0 && !slices.Contains(families(r), f) {
			return true
		}
	}
	return false
}

// seeks tells whether what a Service has of a family is not what it asks for,
// or is to be replaced.
func (m *model) seeks(r Request, has []netip.Addr) bool {
	for _, addr := range has {
		p := m.pool(addr)
		if _, replace := m.wrong(r, addr); replace {
			return true
		}
		if asked := of(familyOf(addr), r.Addresses); len(asked) > 0 && asked[0] != addr {
			return true
		}
		if len(r.Pools) > 0 && len(of(familyOf(addr), r.Addresses)) == 0 && (p == nil || !slices.Contains(r.Pools, p.Name)) {
			return true
		}
	}
	return len(has) == 0
}

// starves says what a Service could have and does not get, "" if nothing.
func (m *model) starves(key Key) string {
	o := m.objects[key]
	r, has := o.spec, o.answer.Addresses
	if o.answer.Foreign || contradictory(r) {
		return ""
	}
	if r.Policy == RequireDualStack && len(has) == 0 {
		for _, a := range m.available(r, r.Families[0], nil) {
			for _, b := range m.available(r, r.Families[1], nil) {
				if m.room(r, []netip.Addr{a, b}, nil) {
					return fmt.Sprintf("%s could have %s and %s", key, a, b)
				}
			}
		}
		return ""
	}
	for _, f := range families(r) {
		if !m.seeks(r, of(f, has)) {
			continue
		}
		if free := m.available(r, f, of(f, has)); len(free) > 0 {
			return fmt.Sprintf("%s could have %v", key, free)
		}
	}
	return ""
}
