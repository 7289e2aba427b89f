package service

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

var _ cloudprovider.LoadBalancer = (*Balancer)(nil)

// How long the upstream controller is to wait before it asks again: it cannot
// be told that an address became free.
const (
	retryRefused  = time.Minute
	retryNotReady = 5 * time.Second
)

// GetLoadBalancer returns what a Service holds. A Service that holds nothing,
// or a namesake of one that does, has no load balancer.
func (b *Balancer) GetLoadBalancer(_ context.Context, _ string, svc *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	known, err := b.known(svc)
	if err != nil || !known {
		return nil, false, err
	}
	addresses := b.Assigned(keyOf(svc))
	if len(addresses) == 0 {
		return nil, false, nil
	}
	return &v1.LoadBalancerStatus{Ingress: ingress(svc, ipam.Decision{Addresses: addresses})}, true, nil
}

// GetLoadBalancerName returns the name that every provider uses by default.
func (b *Balancer) GetLoadBalancerName(_ context.Context, _ string, svc *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(svc)
}

// EnsureLoadBalancer decides about a Service and returns the status it is to
// have. It returns cloudprovider.ImplementedElsewhere for a Service that is
// not ours, and an error that contains a *Refusal and an *api.RetryError for
// one that has to wait, whose status is then to stay as it is.
func (b *Balancer) EnsureLoadBalancer(_ context.Context, _ string, svc *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	ours, err := b.Ours(svc)
	if err != nil {
		return nil, later(err, retryNotReady)
	}
	if !ours {
		return nil, cloudprovider.ImplementedElsewhere
	}
	answer, err := b.Decide(svc, time.Now())
	if err != nil {
		return nil, later(err, retryNotReady)
	}
	if !answer.Reason.OK() {
		return nil, later(&Refusal{Reason: answer.Reason, Message: answer.Message}, retryRefused)
	}
	return &v1.LoadBalancerStatus{Ingress: ingress(svc, answer.Decision)}, nil
}

// UpdateLoadBalancer does nothing: an address does not depend on the Nodes.
// By this answer the upstream controller emits no event for each Service at
// each change of a Node.
func (b *Balancer) UpdateLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) error {
	return cloudprovider.ImplementedElsewhere
}

// EnsureLoadBalancerDeleted releases what a Service holds. It is idempotent.
func (b *Balancer) EnsureLoadBalancerDeleted(_ context.Context, _ string, svc *v1.Service) error {
	known, err := b.known(svc)
	if err != nil || !known {
		return err
	}
	b.Release(keyOf(svc), time.Now())
	return nil
}

// retry is an error that also says when to try again.
type retry struct {
	cause error
	after *api.RetryError
}

func later(cause error, after time.Duration) error {
	return &retry{cause: cause, after: api.NewRetryError(cause.Error(), after)}
}

func (r *retry) Error() string   { return r.cause.Error() }
func (r *retry) Unwrap() []error { return []error{r.cause, r.after} }
