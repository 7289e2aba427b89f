package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Fate is what a configuration would do to an address in use. Changing a value
// is an API change.
type Fate string

// The fates.
const (
	Lost        Fate = "Lost"        // the Service would have no address of this family any more
	Moved       Fate = "Moved"       // the Service would have another one
	Unannounced Fate = "Unannounced" // the Service would keep it, but no Node would be selected to announce it
)

// An Effect is what a configuration would do to one address of one Service.
type Effect struct {
	Service ipam.Key
	Address netip.Addr
	Fate    Fate
	To      netip.Addr // what it moves to; else not valid
	Message string     // one sentence with all of that, and why
}

// An Impact is what a configuration would do to the addresses in use.
type Impact struct {
	InUse   int      // addresses that Services hold; a shared one counts once
	Effects []Effect // sorted by address, then by Service; one for each pair

	// Silent are the addresses that no Node would be selected to announce,
	// sorted like Effects: those among the Effects, and those for which that is
	// so already.
	Silent []Effect
}

// Addresses returns one sentence for each address that is affected, in the
// order of the addresses.
func (i Impact) Addresses() []string {
	var out []string
	for n, e := range i.Effects {
		if n == 0 || i.Effects[n-1].Address != e.Address {
			out = append(out, e.Message)
		}
	}
	return out
}

// newImpact sorts effects. Of several on one address of one Service the first
// counts.
func newImpact(inUse int, effects, silent []Effect) Impact {
	same := func(a, b Effect) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Service, b.Service))
	}
	slices.SortStableFunc(effects, same)
	effects = slices.CompactFunc(effects, func(a, b Effect) bool { return same(a, b) == 0 })
	slices.SortFunc(silent, same)
	return Impact{InUse: inUse, Effects: effects, Silent: silent}
}

// Impact tells what a configuration would do to the addresses in use, compared
// with the one in force. The Services are those that may hold one. It changes
// nothing.
func (b *Balancer) Impact(c config.Config, services []*v1.Service, nodes []*v1.Node) Impact {
	b.mu.Lock()
	defer b.mu.Unlock()
	var effects []Effect
	for _, svc := range services {
		if addressed(svc, b.config.Services) && !addressed(svc, c.Services) {
			effects = append(effects, disowned(keyOf(svc), b.alloc.Assigned(keyOf(svc)))...)
		}
	}
	for _, l := range b.alloc.Losses(c.Pools) {
		effects = append(effects, effect(l))
	}
	before := map[Effect]struct{}{}
	for _, e := range b.silent(b.config, services, nodes) {
		before[e] = struct{}{}
	}
	after := b.silent(c, services, nodes)
	for _, e := range after {
		if _, already := before[e]; !already {
			effects = append(effects, e)
		}
	}
	return newImpact(len(b.alloc.Holdings()), effects, after)
}

func effect(l ipam.Loss) Effect {
	e := Effect{Service: l.Key, Address: l.Address, Fate: Lost, To: l.To, Message: l.Message}
	if l.To.IsValid() {
		e.Fate = Moved
	}
	return e
}

func disowned(key ipam.Key, addresses []netip.Addr) []Effect {
	var out []Effect
	for _, a := range addresses {
		out = append(out, Effect{Service: key, Address: a, Fate: Lost, Message: fmt.Sprintf("%s loses %s: it would not be ours any more", key, a)})
	}
	return out
}

// silent returns the addresses that no Node is selected to announce under a
// configuration. It must be called with the lock held.
func (b *Balancer) silent(c config.Config, services []*v1.Service, nodes []*v1.Node) []Effect {
	audience := newAudience(c, nodes)
	byKey := make(map[ipam.Key]*v1.Service, len(services))
	for _, svc := range services {
		byKey[keyOf(svc)] = svc
	}
	var out []Effect
	for _, h := range b.alloc.Holdings() {
		var holders []*v1.Service
		for _, key := range h.Services {
			if svc := byKey[key]; svc != nil {
				holders = append(holders, svc)
			}
		}
		if audience.has(h.Address, holders) {
			continue
		}
		for _, svc := range holders {
			out = append(out, unannounced(keyOf(svc), h.Address))
		}
	}
	return out
}

func unannounced(key ipam.Key, a netip.Addr) Effect {
	return Effect{Service: key, Address: a, Fate: Unannounced,
		Message: fmt.Sprintf("%s keeps %s, and nobody announces it: no advertisement for it selects a Node", key, a)}
}

// FirstImpact is Impact where no configuration is in force: it compares with
// what the Services say that they were given. Nothing is known of what was
// announced. The Balancer must be a new one, and is of no use afterwards.
func (b *Balancer) FirstImpact(c config.Config, world Survey, now time.Time) Impact {
	services := world.Services
	b.Configure(c, world.Cluster)
	b.Restore(services)
	b.mu.Lock()
	silent := b.silent(c, services, world.Nodes)
	b.mu.Unlock()
	var effects []Effect
	inUse := map[netip.Addr]struct{}{}
	for _, svc := range services {
		given := givenTo(svc)
		if len(given) == 0 {
			continue
		}
		for _, a := range given {
			inUse[a] = struct{}{}
		}
		effects = append(effects, b.firstEffects(svc, given, now)...)
	}
	return newImpact(len(inUse), effects, silent)
}

// firstEffects decides about one Service and compares with what it was given.
func (b *Balancer) firstEffects(svc *v1.Service, given []netip.Addr, now time.Time) []Effect {
	key := keyOf(svc)
	if ours, _ := b.Ours(svc); !ours { // the error is that of a Balancer without Restore
		return disowned(key, given)
	}
	answer, _ := b.Decide(svc, now) // the same
	var out []Effect
	for _, a := range given {
		if slices.Contains(answer.Addresses, a) {
			continue
		}
		e := Effect{Service: key, Address: a, Fate: Lost, Message: fmt.Sprintf("%s loses %s: %s", key, a, answer.Message)}
		for _, other := range answer.Addresses {
			if other.Is4() == a.Is4() {
				e.Fate, e.To = Moved, other
				e.Message = fmt.Sprintf("%s moves from %s to %s: %s", key, a, other, answer.Message)
			}
		}
		out = append(out, e)
	}
	return out
}

// givenTo returns the addresses that a Service of type LoadBalancer was given
// by us, as its condition says, nil if none.
func givenTo(svc *v1.Service) []netip.Addr {
	c := allocated(svc)
	if c == nil || c.Status != metav1.ConditionTrue || svc.Spec.Type != v1.ServiceTypeLoadBalancer || svc.DeletionTimestamp != nil {
		return nil
	}
	var out []netip.Addr
	for _, confirmed := range config.Confirmed(c.Message) {
		out = append(out, confirmed.Address)
	}
	return out
}
