package service

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/eventtext"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Reasons of events on Services, besides those of the Allocated condition.
// Changing one is an API change.
const (
	reasonReleased    = "Released"           // not ours any more
	reasonDuplicate   = "DuplicateAddress"   // another Service holds the address that this one shows
	reasonUnknown     = "UnknownAnnotation"  // an annotation under our prefix that means nothing
	reasonNotWritten  = "StatusNotWritten"   // the API server refused the status
	reasonOverwritten = "StatusOverwritten"  // something else keeps changing the status
	reasonExternalIP  = "ExternalIPConflict" // an external IP of one Service is, or may become, the address of another
)

// An event is what is told about a Service once.
type event struct {
	kind, reason, message string
}

// news compares what a Service's status says with what it will say after an
// answer. It is empty if nothing but the wording changes.
func news(svc *v1.Service, want status, answer Answer) []event {
	var out []event
	if answer.Duplicate != "" {
		out = append(out, event{v1.EventTypeWarning, reasonDuplicate, answer.Duplicate})
	}
	old := allocated(svc)
	moved := !sameIngress(svc.Status.LoadBalancer.Ingress, want.ingress)
	said := event{v1.EventTypeWarning, string(answer.Reason), eventtext.Limit(answer.Message)}
	switch {
	case answer.Reason == ipam.Allocated && answer.Unmet == "":
		said.kind = v1.EventTypeNormal
	case answer.Reason == ipam.Allocated:
		said.reason = string(answer.Unmet) // it has an address, but not what it asks for
		moved = moved || !says(old, config.VerdictParts(answer.Message)...)
	}
	if old == nil || old.Reason != string(answer.Reason) || moved {
		out = append(out, said)
	}
	if unknown := unknownAnnotations(svc); len(unknown) > 0 && !says(old, notUnderstood(unknown)) {
		out = append(out, event{v1.EventTypeWarning, reasonUnknown, eventtext.Limit(notUnderstood(unknown))})
	}
	return out
}

// farewell is what is told of a Service that is not ours any more.
func farewell(svc *v1.Service) []event {
	if allocated(svc) == nil {
		return nil
	}
	return []event{{v1.EventTypeNormal, reasonReleased, "not a Service of ccm-baremetal any more"}}
}

// says tells whether a condition, nil or not, has all these parts in its
// message.
func says(c *metav1.Condition, parts ...string) bool {
	if c == nil {
		return false
	}
	said := config.VerdictParts(c.Message)
	return !slices.ContainsFunc(parts, func(part string) bool { return !slices.Contains(said, part) })
}

// String names the addresses and the condition, for logs and for comparison.
func (s status) String() string {
	addresses := make([]string, 0, len(s.ingress))
	for _, entry := range s.ingress {
		addresses = append(addresses, entry.IP+entry.Hostname)
	}
	if s.condition == nil {
		return fmt.Sprintf("[%s] not ours", strings.Join(addresses, ","))
	}
	return fmt.Sprintf("[%s] %s: %s", strings.Join(addresses, ","), s.condition.Reason, s.condition.Message)
}
