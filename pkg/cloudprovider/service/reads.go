package service

import (
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// reads shows each Service as it is known best: as the informer has it, or, as
// long as the informer lags behind, as the API server itself said last. So a
// pass between our write and its appearance does not write again.
type reads struct {
	lister corelisters.ServiceLister

	mu    sync.Mutex
	newer map[ipam.Key]*v1.Service
}

func newReads(lister corelisters.ServiceLister) *reads {
	return &reads{lister: lister, newer: map[ipam.Key]*v1.Service{}}
}

// get returns a Service, nil if the informer knows none: no single answer tells
// that one is gone. It must not be modified.
func (r *reads) get(key ipam.Key) *v1.Service {
	namespace, name, _ := strings.Cut(string(key), "/")
	// The lister reads from memory; its only error is that there is none.
	listed, err := r.lister.Services(namespace).Get(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	said, ok := r.newer[key]
	if !ok {
		return listed
	}
	if err != nil || said.UID != listed.UID || !older(listed, said) {
		delete(r.newer, key)
		return listed
	}
	return said
}

// older tells whether a is an older state of an object than b. Versions that
// cannot be compared count as not older: then the informer is believed.
func older(a, b *v1.Service) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// put records what the API server answered.
func (r *reads) put(svc *v1.Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newer[keyOf(svc)] = svc
}
