package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// workloads selects the Pods of both programs.
const workloads = "app.kubernetes.io/name in (ccm-baremetal, announcer)"

// A cleaner removes what is left of us in a cluster.
type cleaner struct {
	cleanupOptions
	client kubernetes.Interface

	class config.Services // which Services are ours
}

// running names what of ours is at work, in whatever namespace: it would lose the
// conditions that it works by.
func (c *cleaner) running(ctx context.Context, now time.Time) ([]string, error) {
	out := []string{}
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: workloads})
	if err != nil {
		return nil, fmt.Errorf("list Pods of all namespaces: %w", err)
	}
	for _, p := range pods.Items {
		if p.Status.Phase == v1.PodRunning {
			out = append(out, fmt.Sprintf("pod %s/%s", p.Namespace, p.Name))
		}
	}
	lease, err := c.lease(ctx)
	if err != nil || lease == nil {
		return out, err
	}
	if left := leaseLeft(lease, now); left > 0 {
		out = append(out, fmt.Sprintf("a controller that holds lease %s/%s (%s); it counts as gone after %d s without a sign of life",
			lease.Namespace, lease.Name, *lease.Spec.HolderIdentity, int(left.Seconds())+1))
	}
	return out, nil
}

// leaseLeft returns how long a Lease is held for, 0 if it is not held.
func leaseLeft(l *coordination.Lease, now time.Time) time.Duration {
	s := l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return 0
	}
	return max(0, s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second).Sub(now))
}

// lease returns the controllers' Lease, nil if there is none.
func (c *cleaner) lease(ctx context.Context) (*coordination.Lease, error) {
	l, err := c.client.CoordinationV1().Leases(c.namespace).Get(ctx, leaseName, metav1.GetOptions{})
	return found(l, err, "lease "+c.namespace+"/"+leaseName)
}

// found makes no object and no error out of the error that there is none.
func found[T any](object *T, err error, what string) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", what, err)
	}
	return object, nil
}

// traces finds the Services on which we have left something, oldest first.
func (c *cleaner) traces(ctx context.Context) ([]service.Traces, error) {
	inForce, err := inspect.InForce(ctx, c.client, c.namespace, "")
	if err != nil {
		return nil, err
	}
	if inForce == nil {
		smallest, err := config.Load([]byte(config.Smallest))
		if err != nil {
			return nil, fmt.Errorf("read the defaults: %w", err)
		}
		inForce = &smallest
	}
	c.class = inForce.Services
	all, err := c.client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	var out []service.Traces
	for i := range all.Items {
		if t := service.TracesOn(&all.Items[i], c.class); t.Any() {
			out = append(out, t)
		}
	}
	return out, nil
}

// An object is one that we have made.
type object struct {
	kind, name string
	uid        types.UID
	remove     func(context.Context, string, metav1.DeleteOptions) error
}

// objects finds the objects that we have made ourselves.
func (c *cleaner) objects(ctx context.Context) ([]object, error) {
	var out []object
	maps, secrets := c.client.CoreV1().ConfigMaps(c.namespace), c.client.CoreV1().Secrets(c.namespace)
	m, err := maps.Get(ctx, document.AcceptedConfigMap, metav1.GetOptions{})
	if m, err = found(m, err, "configmap "+document.AcceptedConfigMap); err != nil {
		return nil, err
	} else if m != nil && m.Labels[document.ManagedByLabel] == document.ManagedBy {
		out = append(out, object{"ConfigMap", m.Name, m.UID, maps.Delete})
	}
	s, err := secrets.Get(ctx, cloudprovider.GossipSecret, metav1.GetOptions{})
	if s, err = found(s, err, "secret "+cloudprovider.GossipSecret); err != nil {
		return nil, err
	} else if s != nil && s.Labels[document.ManagedByLabel] == document.ManagedBy {
		out = append(out, object{"Secret", s.Name, s.UID, secrets.Delete})
	}
	l, err := c.lease(ctx)
	if err == nil && l != nil {
		out = append(out, object{"Lease", l.Name, l.UID, c.client.CoordinationV1().Leases(c.namespace).Delete})
	}
	return out, err
}

// remove does it, and notes in the result what failed. The objects stay as
// long as a Service does: the accepted document says which class is ours.
func (c *cleaner) remove(ctx context.Context, result *cleanup, traces []service.Traces, objects []object) error {
	tick := time.NewTicker(time.Second / time.Duration(c.pace))
	defer tick.Stop()
	failed := 0
	for i, t := range traces {
		if err := c.clean(ctx, t, tick.C); err != nil {
			result.Services[i].Error = err.Error()
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("not cleaned: %d of %d Services; the objects stay until they are", failed, len(traces))
	}
	for i, o := range objects {
		err := wait(ctx, tick.C)
		if err == nil {
			err = o.remove(ctx, o.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.uid}})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			result.Objects[i].Error = err.Error()
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("not deleted: %d of %d objects", failed, len(objects))
	}
	return nil
}

// clean removes all traces from one Service, as it is when that is done.
func (c *cleaner) clean(ctx context.Context, t service.Traces, tick <-chan time.Time) error {
	const attempts = 5
	client := c.client.CoreV1().Services(t.Service().Namespace)
	var errs []error
	for range attempts {
		patch, err := t.Removal(c.release)
		if err != nil {
			return err
		}
		if err := wait(ctx, tick); err != nil {
			return err
		}
		_, err = client.Patch(ctx, t.Service().Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: service.FieldManager}, "status")
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
		errs = append(errs, err)
		fresh, err := client.Get(ctx, t.Service().Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if t = service.TracesOn(fresh, c.class); !t.Any() {
			return nil
		}
	}
	return errors.Join(errs...)
}

// wait waits for its turn.
func wait(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-tick:
		return nil
	}
}

// described says what is to be removed from a Service.
func (c *cleaner) described(t service.Traces) cleanedService {
	d := cleanedService{
		Service: t.Service().Namespace + "/" + t.Service().Name, Conditions: append([]string{}, t.Conditions...), Finalizer: t.Finalizer,
		Released: []string{}, Kept: []string{},
	}
	for _, a := range t.Given {
		if c.release {
			d.Released = append(d.Released, a.String())
		} else {
			d.Kept = append(d.Kept, a.String())
		}
	}
	for _, a := range t.Foreign {
		d.Kept = append(d.Kept, a.String())
	}
	return d
}

// what names what is removed from a Service.
func (d cleanedService) what() string {
	parts := append([]string{}, d.Conditions...)
	if d.Finalizer {
		parts = append(parts, "the finalizer")
	}
	return strings.Join(append(parts, d.Released...), ", ")
}
