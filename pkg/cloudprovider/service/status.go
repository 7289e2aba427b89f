package service

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ConditionAllocated is the type of the condition in which a Service's status
// says whether it has its address, and why not.
const ConditionAllocated = config.ConditionAllocated

// A status is what we want of a Service: its ingress, our condition (nil:
// none), and that the announcers' condition or a left-over finalizer of the
// upstream service controller go.
type status struct {
	ingress       []v1.LoadBalancerIngress
	condition     *metav1.Condition
	dropAnnounced bool
	dropFinalizer bool
}

// granted is the status of a Service of ours.
func granted(svc *v1.Service, d ipam.Decision, now time.Time) status {
	return status{
		ingress:       ingress(svc, d),
		condition:     condition(svc, d, now),
		dropFinalizer: hasFinalizer(svc),
	}
}

// untouched is the status that a Service has.
func untouched(svc *v1.Service) status {
	return status{ingress: svc.Status.LoadBalancer.Ingress, condition: allocated(svc)}
}

// departing is the status of a Service of ours that is being deleted: as it
// is, so that it keeps its address until it is gone, but held up by nobody.
func departing(svc *v1.Service) status {
	s := untouched(svc)
	s.dropFinalizer = hasFinalizer(svc)
	return s
}

// abandoned is the status of a Service that is not ours any more: without our
// condition, and without the ingress if that is what we gave it. The announcers'
// condition goes too, also if it comes later than ours has gone: to announcers
// the Service does not exist any more, so nobody else would take it back.
func abandoned(svc *v1.Service, given []netip.Addr) status {
	s := status{ingress: svc.Status.LoadBalancer.Ingress, dropAnnounced: announced(svc) != nil}
	c := allocated(svc)
	if c == nil {
		return s
	}
	s.dropFinalizer = hasFinalizer(svc)
	foreign := func(a netip.Addr) bool { return !slices.Contains(given, a) }
	if c.Reason != string(ipam.ForeignAddress) && !slices.ContainsFunc(held(svc), foreign) {
		s.ingress = nil
	}
	return s
}

// ingress writes a decision down. What others wrote is left as it is.
func ingress(svc *v1.Service, d ipam.Decision) []v1.LoadBalancerIngress {
	current := svc.Status.LoadBalancer.Ingress
	if d.Foreign || shows(current, d.Addresses) {
		return current
	}
	out := make([]v1.LoadBalancerIngress, 0, len(d.Addresses))
	for _, a := range d.Addresses {
		mode := v1.LoadBalancerIPModeVIP
		out = append(out, v1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	return out
}

// shows tells whether an ingress is just what we would write for addresses.
// No mode is as good as VIP: an API server that does not know the field drops
// it, and to insist would mean to write for ever.
func shows(current []v1.LoadBalancerIngress, addresses []netip.Addr) bool {
	return slices.EqualFunc(current, addresses, func(entry v1.LoadBalancerIngress, a netip.Addr) bool {
		vip := entry.IPMode == nil || *entry.IPMode == v1.LoadBalancerIPModeVIP
		return entry.IP == a.String() && vip && entry.Hostname == "" && len(entry.Ports) == 0
	})
}

// condition says a decision. The transition time stays as long as the status
// does and an address is kept: it tells since when a Service holds what it
// holds, which settles who keeps an address that two Services show. There is no
// observedGeneration: it would cost a write for every change of the spec.
func condition(svc *v1.Service, d ipam.Decision, now time.Time) *metav1.Condition {
	c := metav1.Condition{
		Type:               ConditionAllocated,
		Status:             metav1.ConditionFalse,
		Reason:             string(d.Reason),
		Message:            d.Message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if d.Reason.OK() {
		c.Status = metav1.ConditionTrue
	}
	if unknown := unknownAnnotations(svc); len(unknown) > 0 {
		c.Message = config.WithRemark(c.Message, notUnderstood(unknown))
	}
	old := allocated(svc)
	kept := c.Status == metav1.ConditionFalse || slices.ContainsFunc(held(svc), func(a netip.Addr) bool {
		return slices.Contains(d.Addresses, a)
	})
	if old != nil && old.Status == c.Status && kept {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return &c
}

func notUnderstood(annotations []string) string {
	return "not understood: " + strings.Join(annotations, ", ")
}

func hasFinalizer(svc *v1.Service) bool {
	return slices.Contains(svc.Finalizers, helpers.LoadBalancerCleanupFinalizer)
}

// sameIngress compares entry by entry; a mode of VIP is the default.
func sameIngress(a, b []v1.LoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y v1.LoadBalancerIngress) bool {
		return x.IP == y.IP && x.Hostname == y.Hostname && mode(x) == mode(y) && len(x.Ports) == len(y.Ports)
	})
}

func mode(entry v1.LoadBalancerIngress) v1.LoadBalancerIPMode {
	if entry.IPMode == nil {
		return v1.LoadBalancerIPModeVIP
	}
	return *entry.IPMode
}

func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// patch returns the strategic merge patch of the status subresource that
// makes want out of svc; nil if nothing has to change. It carries the
// resourceVersion, so that whoever decided on an old view, a leader that was
// frozen for instance, gets a conflict instead of his way. Of conditions it sets
// our own only: the field manager of this patch then owns that condition and,
// where we set it, the ingress, next to the announcers' condition. Apply would
// do the same, but had to be forced over hand-made edits, and cannot remove a
// finalizer in the same request.
func patch(svc *v1.Service, want status) ([]byte, error) {
	changed := map[string]any{}
	if !sameIngress(svc.Status.LoadBalancer.Ingress, want.ingress) {
		changed["loadBalancer"] = map[string]any{"ingress": want.ingress}
	}
	if conditions := conditionChanges(svc, want); len(conditions) > 0 {
		changed["conditions"] = conditions
	}
	if len(changed) == 0 && !want.dropFinalizer {
		return nil, nil
	}
	metadata := map[string]any{"resourceVersion": svc.ResourceVersion}
	if want.dropFinalizer {
		metadata["$deleteFromPrimitiveList/finalizers"] = []string{helpers.LoadBalancerCleanupFinalizer}
	}
	body := map[string]any{"metadata": metadata}
	if len(changed) > 0 {
		body["status"] = changed
	}
	out, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the patch of %s: %w", keyOf(svc), err)
	}
	return out, nil
}

// conditionChanges returns what a strategic merge patch has to say about the
// conditions of svc to make them those of want.
func conditionChanges(svc *v1.Service, want status) []any {
	var changes []any
	switch old := allocated(svc); {
	case sameCondition(old, want.condition):
	case want.condition == nil:
		changes = append(changes, removal(ConditionAllocated))
	default:
		changes = append(changes, want.condition)
	}
	if want.dropAnnounced {
		changes = append(changes, removal(config.ConditionAnnounced))
	}
	return changes
}

// removal is the entry of a strategic merge patch that removes a condition,
// which has to be there.
func removal(condition string) any {
	return map[string]string{"$patch": "delete", "type": condition}
}
