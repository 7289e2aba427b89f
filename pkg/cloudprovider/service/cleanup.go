package service

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Traces are what we have left on a Service.
type Traces struct {
	Conditions []string     // types of conditions of ours, the announcers' included
	Finalizer  bool         // the upstream service controller's, on a Service that is ours
	Given      []netip.Addr // addresses in the status that our condition confirms
	Foreign    []netip.Addr // other addresses in the status, of a Service with a condition of ours

	svc *v1.Service
}

// TracesOn finds out what we have left on a Service. Only our own conditions
// and, for a finalizer, our own class say that a Service is ours: what somebody
// else serves is not touched.
func TracesOn(svc *v1.Service, rules config.Services) Traces {
	t := Traces{svc: svc}
	for _, c := range svc.Status.Conditions {
		if strings.HasPrefix(c.Type, prefix) {
			t.Conditions = append(t.Conditions, c.Type)
		}
	}
	class := svc.Spec.LoadBalancerClass
	ours := len(t.Conditions) > 0 || class != nil && *class == rules.LoadBalancerClass
	t.Finalizer = ours && hasFinalizer(svc)
	if len(t.Conditions) == 0 {
		return t
	}
	for _, a := range held(svc) {
		if confirmed(svc, a) {
			t.Given = append(t.Given, a)
		} else {
			t.Foreign = append(t.Foreign, a)
		}
	}
	return t
}

// confirmed tells whether our condition says that an address is ours, in the
// way announcers understand it.
func confirmed(svc *v1.Service, a netip.Addr) bool {
	c := allocated(svc)
	if c == nil || c.Status != metav1.ConditionTrue {
		return false
	}
	return slices.ContainsFunc(config.Confirmed(c.Message), func(given config.Confirmation) bool { return given.Address == a })
}

// Service returns the Service, which must not be modified.
func (t Traces) Service() *v1.Service { return t.svc }

// Any tells whether there is anything to remove.
func (t Traces) Any() bool { return len(t.Conditions) > 0 || t.Finalizer }

// Removal returns the strategic merge patch of the status subresource that
// removes all traces, and the addresses that we gave only if release is set. It
// fails with a conflict if the Service has changed meanwhile.
func (t Traces) Removal(release bool) ([]byte, error) {
	metadata := map[string]any{"resourceVersion": t.svc.ResourceVersion}
	if t.Finalizer {
		metadata["$deleteFromPrimitiveList/finalizers"] = []string{helpers.LoadBalancerCleanupFinalizer}
	}
	body := map[string]any{"metadata": metadata}
	status := map[string]any{}
	if len(t.Conditions) > 0 {
		var gone []any
		for _, name := range t.Conditions {
			gone = append(gone, removal(name))
		}
		status["conditions"] = gone
	}
	if release && len(t.Given) > 0 {
		left := slices.DeleteFunc(slices.Clone(t.svc.Status.LoadBalancer.Ingress), func(entry v1.LoadBalancerIngress) bool {
			a, err := netip.ParseAddr(entry.IP)
			return err == nil && slices.Contains(t.Given, a.Unmap())
		})
		status["loadBalancer"] = map[string]any{"ingress": left}
	}
	if len(status) > 0 {
		body["status"] = status
	}
	out, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the patch of %s: %w", keyOf(t.svc), err)
	}
	return out, nil
}
