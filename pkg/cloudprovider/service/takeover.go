package service

import (
	"fmt"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// TakeOver tells what becomes of the addresses that Services show, whoever gave
// them, when a configuration is the first of ours in a cluster: InUse counts
// them, Effects are those that would not stay. It changes nothing.
func (s Survey) TakeOver(c config.Config, now time.Time) Impact {
	b := s.balancer(c)
	b.mu.Lock()
	silent := b.silent(c, s.Services, s.Nodes)
	b.mu.Unlock()
	var effects []Effect
	inUse := map[netip.Addr]struct{}{}
	for _, svc := range s.Services {
		if svc.Spec.Type != v1.ServiceTypeLoadBalancer || svc.DeletionTimestamp != nil {
			continue
		}
		shown := held(svc)
		for _, a := range shown {
			inUse[a] = struct{}{}
		}
		if len(shown) > 0 {
			effects = append(effects, b.leftAlone(svc, shown, now)...)
			effects = append(effects, b.firstEffects(svc, shown, now)...)
		}
	}
	return newImpact(len(inUse), effects, silent)
}

// leftAlone returns the addresses that stay in the status of a Service and that
// nobody of ours announces, because they are in no pool.
func (b *Balancer) leftAlone(svc *v1.Service, shown []netip.Addr, now time.Time) []Effect {
	if ours, _ := b.Ours(svc); !ours { // the error is that of a Balancer without Restore
		return nil
	}
	answer, _ := b.Decide(svc, now) // the same
	if !answer.Foreign {
		return nil
	}
	var out []Effect
	for _, a := range shown {
		out = append(out, Effect{Service: keyOf(svc), Address: a, Fate: Unannounced,
			Message: fmt.Sprintf("%s is left with %s, which we do not announce: %s", keyOf(svc), a, answer.Message)})
	}
	return out
}
