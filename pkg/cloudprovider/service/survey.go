package service

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// A Survey is what a cluster shows to somebody who reads it once: enough to
// work out all that a Controller would know, without one that runs.
type Survey struct {
	Services   []*v1.Service // oldest first
	Nodes      []*v1.Node
	Namespaces map[string]map[string]string // labels by name
	Cluster    ipam.Cluster
}

// NewSurvey reads a cluster. It writes nothing, and takes no other rights than
// a Controller does.
func NewSurvey(ctx context.Context, client kubernetes.Interface) (Survey, error) {
	s := Survey{Namespaces: map[string]map[string]string{}}
	services, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, fmt.Errorf("list Services: %w", err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, fmt.Errorf("list Nodes: %w", err)
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, fmt.Errorf("list Namespaces: %w", err)
	}
	options := metav1.ListOptions{}
	named(apiServerSlice)(&options)
	found, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, options)
	if err != nil {
		return s, fmt.Errorf("list the API server's EndpointSlice: %w", err)
	}
	s.fill(services.Items, nodes.Items, namespaces.Items)
	var slice *discovery.EndpointSlice
	if len(found.Items) > 0 {
		slice = &found.Items[0]
	}
	s.Cluster = cluster(s.Nodes, slice, nil)
	return s, nil
}

func (s *Survey) fill(services []v1.Service, nodes []v1.Node, namespaces []v1.Namespace) {
	for i := range services {
		s.Services = append(s.Services, &services[i])
	}
	slices.SortFunc(s.Services, byAge)
	for i := range nodes {
		s.Nodes = append(s.Nodes, &nodes[i])
	}
	for _, n := range namespaces {
		s.Namespaces[n.Name] = n.Labels
	}
}

// balancer returns a new Balancer that knows what the Services hold.
func (s Survey) balancer(c config.Config) *Balancer {
	b := NewBalancer(s.labels)
	b.Configure(c, s.Cluster)
	b.Restore(s.Services)
	return b
}

func (s Survey) labels(namespace string) map[string]string { return s.Namespaces[namespace] }

// Impact tells what a configuration would do to the addresses in use; before
// is the one in force, nil if there is none.
func (s Survey) Impact(before *config.Config, c config.Config, now time.Time) Impact {
	if before == nil {
		return NewBalancer(s.labels).FirstImpact(c, s, now)
	}
	b := s.balancer(*before)
	for _, svc := range s.Services { // so that it is known who waits
		if !asks(svc, before.Services) {
			continue
		}
		answer, _ := b.Decide(svc, now) // the error is that of a Balancer without Restore
		if len(held(svc)) == 0 && len(answer.Addresses) > 0 {
			b.Release(keyOf(svc), now) // it was not given anything yet that it could lose
		}
	}
	return b.Impact(c, s.Services, s.Nodes)
}

// asks tells whether a Service is one that is to be decided about.
func asks(svc *v1.Service, rules config.Services) bool {
	return svc.DeletionTimestamp == nil && addressed(svc, rules)
}

// Allocations is who has and who waits for which addresses.
type Allocations struct {
	Pools   []PoolUse // in the order of the document, IPv4 first
	Holders []Holder  // by address, then by Service
	Waiting []Waiter  // oldest first
}

// PoolUse is the state of one family of a pool.
type PoolUse struct {
	ipam.Usage
	State   config.PoolState
	Free    uint64 // what could be given out now
	Waiting int    // Services that wait for room in the pool
}

// Holder is a Service that has an address from us.
type Holder struct {
	Address netip.Addr
	Pool    string // empty: in no pool
	Service ipam.Key
	Since   time.Time
	Reason  ipam.Reason
}

// Waiter is a Service of ours that does not have all that it asks for.
type Waiter struct {
	Service ipam.Key
	Created time.Time
	Reason  ipam.Reason
	Message string
	Pools   []string // that would serve it if they had room, sorted
}

// Pending is the reason of a Waiter that the controller has not looked at yet.
// Changing it is an API change.
const Pending ipam.Reason = "Pending"

// Allocations works out who has and who waits for addresses. Why a Service
// waits is what its condition says; if it has none, what a controller would say.
func (s Survey) Allocations(c config.Config, now time.Time) Allocations {
	b := s.balancer(c)
	out := Allocations{Holders: s.holders(b.alloc.Holdings())}
	usage := b.alloc.Usage(now)
	answers := map[ipam.Key]Answer{}
	for _, svc := range s.Services {
		if asks(svc, c.Services) {
			answers[keyOf(svc)], _ = b.Decide(svc, now) // the error is that of a Balancer without Restore
		}
	}
	pools := map[ipam.Key][]string{}
	waiting := map[string]int{}
	for _, w := range b.alloc.Waiters() {
		pools[w.Key] = w.Pools
		for _, p := range w.Pools {
			waiting[p]++
		}
	}
	for _, svc := range s.Services {
		if answer, ok := answers[keyOf(svc)]; ok {
			if w, waits := waiter(svc, answer); waits {
				w.Pools = pools[w.Service]
				out.Waiting = append(out.Waiting, w)
			}
		}
	}
	for _, u := range usage {
		use := PoolUse{Usage: u, Waiting: waiting[u.Pool]}
		use.Free = u.Size - min(u.Size, uint64(u.Held))
		use.State = c.Pools[slices.IndexFunc(c.Pools, func(p config.Pool) bool { return p.Name == u.Pool })].State
		out.Pools = append(out.Pools, use)
	}
	return out
}

// holders adds to what is held since when and on what grounds.
func (s Survey) holders(holdings []ipam.Holding) []Holder {
	byKey := make(map[ipam.Key]*v1.Service, len(s.Services))
	for _, svc := range s.Services {
		byKey[keyOf(svc)] = svc
	}
	var out []Holder
	for _, h := range holdings {
		for _, key := range h.Services {
			holder := Holder{Address: h.Address, Pool: h.Pool, Service: key}
			if c := allocated(byKey[key]); c != nil {
				holder.Since, holder.Reason = c.LastTransitionTime.Time, ipam.Reason(c.Reason)
			}
			out = append(out, holder)
		}
	}
	return out
}

// waiter tells whether a Service waits, and for what.
func waiter(svc *v1.Service, answer Answer) (Waiter, bool) {
	w := Waiter{Service: keyOf(svc), Created: svc.CreationTimestamp.Time}
	switch c := allocated(svc); {
	case c == nil:
		w.Reason = Pending
		w.Message = fmt.Sprintf("ccm-baremetal has not looked at it yet, and would say: %s: %s", answer.Reason, answer.Message)
	case c.Status != metav1.ConditionTrue:
		w.Reason, w.Message = ipam.Reason(c.Reason), c.Message
	case answer.Reason == ipam.PartialFamilies:
		w.Reason, w.Message = answer.Reason, answer.Message
	case answer.Unmet != "":
		w.Reason, w.Message = answer.Unmet, answer.Message
	default:
		return w, false
	}
	return w, true
}
