package service

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ErrNotReady says that nothing can be decided yet, because there is no
// configuration or because it is not known yet what the Services hold.
var ErrNotReady = errors.New("not ready: no configuration yet, or not all Services have been read")

// A Refusal is why a Service gets no address, or not what it asks for.
type Refusal struct {
	Reason  ipam.Reason
	Message string
}

// Error gives reason and message.
func (r *Refusal) Error() string {
	return string(r.Reason) + ": " + r.Message
}

// An Answer is what was decided about a Service.
type Answer struct {
	ipam.Decision
	// Duplicate says, if an address in the Service's status turned out to
	// belong to another Service, which and to whom; else it is empty.
	Duplicate string
}

// A Balancer decides which addresses Services have. It implements
// cloudprovider.LoadBalancer in memory: no method waits for the API server. It
// answers ErrNotReady until Configure and Restore have been called. Its
// methods may be called concurrently.
type Balancer struct {
	labels func(namespace string) map[string]string

	mu       sync.Mutex
	alloc    *ipam.Allocator
	config   config.Config          // in force
	uids     map[ipam.Key]types.UID // of each Service that the allocator may know
	restored bool
}

// NewBalancer returns a Balancer that asks labels for the labels of a
// namespace; labels must not block and may return nil.
func NewBalancer(labels func(namespace string) map[string]string) *Balancer {
	return &Balancer{labels: labels, alloc: ipam.New(), uids: map[ipam.Key]types.UID{}}
}

// Configure puts a configuration in force. What it means for a Service shows
// in the next Decide.
func (b *Balancer) Configure(c config.Config, cluster ipam.Cluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.config = c
	b.alloc.Configure(c.Pools, cluster)
}

// Restore registers what Services hold, all at once, and returns how many
// hold something. It must be given every Service that there is, once, after
// the first Configure.
func (b *Balancer) Restore(services []*v1.Service) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	var requests []ipam.Request
	for _, svc := range services {
		if r, holds := b.holding(svc); holds {
			requests = append(requests, r)
			b.uids[keyOf(svc)] = svc.UID
		}
	}
	b.alloc.Restore(requests)
	b.restored = true
	return len(requests)
}

// holding returns what a Service holds, if it may count as holding anything. A
// Service that carries our condition counts also if it is not ours any more:
// until it is cleaned up, its address is not free. It must be called with the
// lock held.
func (b *Balancer) holding(svc *v1.Service) (r ipam.Request, holds bool) {
	if !addressed(svc, b.config.Services) && allocated(svc) == nil {
		return r, false
	}
	r = b.request(svc)
	return r, len(r.Held)+len(r.Given) > 0
}

// request must be called with the lock held.
func (b *Balancer) request(svc *v1.Service) ipam.Request {
	return request(svc, b.labels(svc.Namespace), b.config.Services.Compatibility)
}

// Ours tells whether a Service is one that we give addresses to.
func (b *Balancer) Ours(svc *v1.Service) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.restored {
		return false, ErrNotReady
	}
	return addressed(svc, b.config.Services), nil
}

// Decide answers a Service of ours, and remembers the answer.
func (b *Balancer) Decide(svc *v1.Service, now time.Time) (Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.restored {
		return Answer{}, ErrNotReady
	}
	key := keyOf(svc)
	if uid, known := b.uids[key]; known && uid != svc.UID {
		b.alloc.Release(key, now) // its namesake is gone
	}
	b.uids[key] = svc.UID
	if host := foreignHost(svc); host != "" {
		b.alloc.Release(key, now)
		message := config.Verdict(nil, fmt.Sprintf("the status names host %s, which another controller wrote", host))
		return Answer{Decision: ipam.Decision{Foreign: true, Reason: ipam.ForeignAddress, Message: message}}, nil
	}
	r := b.request(svc)
	duplicate := b.duplicate(r)
	answer := Answer{Decision: b.alloc.Decide(r, now)}
	if duplicate.is(answer.Decision) {
		answer.Duplicate = duplicate.String()
	}
	return answer, nil
}

// foreignHost returns a host name in the status that another load balancer
// wrote there: we never do, and replace one only where we had our own before.
func foreignHost(svc *v1.Service) string {
	if c := allocated(svc); c != nil && c.Status == metav1.ConditionTrue {
		return ""
	}
	for _, entry := range svc.Status.LoadBalancer.Ingress {
		if entry.Hostname != "" {
			return entry.Hostname
		}
	}
	return ""
}

// A duplicate is an address that a Service shows and others hold.
type duplicate struct {
	address netip.Addr
	holders []ipam.Key
}

// duplicate must be called with the lock held, before the decision: only then
// is it known whose the address was.
func (b *Balancer) duplicate(r ipam.Request) duplicate {
	mine := b.alloc.Assigned(r.Key)
	for _, a := range r.Held {
		if holders := b.alloc.Holders(a); len(holders) > 0 && !slices.Contains(mine, a) {
			return duplicate{address: a, holders: holders}
		}
	}
	return duplicate{}
}

// is tells whether the duplicate is still one after the decision: the Service
// may have turned out to share the address.
func (d duplicate) is(decided ipam.Decision) bool {
	return d.address.IsValid() && !slices.Contains(decided.Addresses, d.address)
}

func (d duplicate) String() string {
	return fmt.Sprintf("%s is held by %s", d.address, joined(d.holders))
}

// Release forgets a Service: what it held is free.
func (b *Balancer) Release(key ipam.Key, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alloc.Release(key, now)
	delete(b.uids, key)
}

// Revert takes an answer back that could not be written: the Service holds
// what its status shows and nothing else, until it is decided about again.
func (b *Balancer) Revert(svc *v1.Service, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alloc.Release(keyOf(svc), now)
	if r, holds := b.holding(svc); holds {
		b.alloc.Restore([]ipam.Request{r})
	}
}

// Assigned returns what a Service holds, nil if nothing.
func (b *Balancer) Assigned(key ipam.Key) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alloc.Assigned(key)
}

// Holds tells whether a Service has an address from us. What others wrote into
// a status and is left alone does not count.
func (b *Balancer) Holds(a netip.Addr) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.restored {
		return false, ErrNotReady
	}
	return len(b.alloc.Holders(a)) > 0, nil
}

// Wake returns the waiting Services whose answer may have changed since the
// last call, oldest first. What they get is kept for them.
func (b *Balancer) Wake() []ipam.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alloc.Wake()
}

// State is what there is to show of a Balancer.
type State struct {
	Usage   []ipam.Usage
	Waiting map[ipam.Reason]int
}

// State returns the state of pools and waiting Services.
func (b *Balancer) State(now time.Time) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return State{Usage: b.alloc.Usage(now), Waiting: b.alloc.Waiting()}
}

// known tells whether svc is the very Service that the allocator knows by its
// name, and an error if nothing is known yet.
func (b *Balancer) known(svc *v1.Service) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.restored {
		return false, ErrNotReady
	}
	uid, ok := b.uids[keyOf(svc)]
	return ok && uid == svc.UID, nil
}
