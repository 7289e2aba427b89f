package service

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// births remembers since when Services without an address have wanted one.
type births struct {
	mu    sync.Mutex
	since map[ipam.Key]time.Time
}

func newBirths() *births {
	return &births{since: map[ipam.Key]time.Time{}}
}

// born returns when a Service that is seen for the first time was created. Its
// time stamp has whole seconds only, and clocks differ: a Service that was
// created within this second counts as created when it is seen.
func born(svc *v1.Service, now time.Time) time.Time {
	if end := svc.CreationTimestamp.Add(time.Second); end.Before(now) {
		return end
	}
	return now
}

// wants records that a Service wants an address, unless it has one or has
// wanted one before.
func (b *births) wants(svc *v1.Service, since time.Time) {
	if svc.Spec.Type != v1.ServiceTypeLoadBalancer || len(svc.Status.LoadBalancer.Ingress) > 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.since[keyOf(svc)]; !known {
		b.since[keyOf(svc)] = since
	}
}

// take returns since when a Service has wanted an address, once.
func (b *births) take(key ipam.Key) (since time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, ok = b.since[key]
	delete(b.since, key)
	return since, ok
}
