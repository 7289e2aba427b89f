package service

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

// AnnotationIgnore is the one annotation of ours on a Service that is no wish
// for something. Changing its name is an API change.
const AnnotationIgnore = prefix + "ignore" // "true": leave this Service alone

const prefix = "ccm-baremetal.io/"

// keyOf returns the name of a Service as the allocator knows it.
func keyOf(svc *v1.Service) ipam.Key {
	return ipam.Key(svc.Namespace + "/" + svc.Name)
}

// addressed tells whether a Service is one that we give addresses to, as far
// as its type, its class and its annotations say; it may be on its way out.
func addressed(svc *v1.Service, rules config.Services) bool {
	if svc.Spec.Type != v1.ServiceTypeLoadBalancer {
		return false
	}
	if ignore, err := ignored(svc); err == nil && ignore {
		return false
	}
	if svc.Spec.LoadBalancerClass == nil {
		return rules.HandleUnclassed
	}
	return *svc.Spec.LoadBalancerClass == rules.LoadBalancerClass
}

func ignored(svc *v1.Service) (bool, error) {
	value := strings.TrimSpace(svc.Annotations[AnnotationIgnore])
	if value == "" {
		return false, nil
	}
	ignore, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s: %q is neither true nor false", AnnotationIgnore, value)
	}
	return ignore, nil
}

// request translates a Service into what it asks of the allocator. Whatever
// cannot be understood is said in Invalid, all of it at once.
func request(svc *v1.Service, namespace map[string]string, dialects []config.Dialect) ipam.Request {
	addresses := wish.Addresses(svc.Annotations, svc.Spec.LoadBalancerIP, dialects)
	pools, key := wish.Pools(svc.Annotations, dialects), wish.SharingKey(svc.Annotations, dialects)
	_, ignoreErr := ignored(svc)
	r := ipam.Request{
		Key:             keyOf(svc),
		Namespace:       svc.Namespace,
		Name:            svc.Name,
		Created:         svc.CreationTimestamp.Time,
		Labels:          svc.Labels,
		NamespaceLabels: namespace,
		Families:        families(svc),
		Policy:          policy(svc),
		Addresses:       addresses.Value,
		Pools:           pools.Value,
		Invalid:         sentence(addresses.Err(), pools.Err(), key.Err(), ignoreErr),
		SharingKey:      key.Value,
		Ports:           ports(svc),
		Local:           svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal,
		Selector:        labels.Set(svc.Spec.Selector).String(),
		Held:            held(svc),
	}
	if c := allocated(svc); c != nil && (c.Status == metav1.ConditionTrue || c.Reason == string(ipam.NodeAddress)) {
		r.Given, r.HeldSince = config.Confirmed(c.Message), c.LastTransitionTime.Time
	}
	return r
}

func sentence(errs ...error) string {
	err := errors.Join(errs...)
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// families defaults to IPv4 alone, which only matters for objects that no
// real API server has filled in.
func families(svc *v1.Service) []ipam.Family {
	if len(svc.Spec.IPFamilies) == 0 {
		return []ipam.Family{ipam.IPv4}
	}
	out := make([]ipam.Family, 0, len(svc.Spec.IPFamilies))
	for _, f := range svc.Spec.IPFamilies {
		out = append(out, ipam.Family(f))
	}
	return out
}

func policy(svc *v1.Service) ipam.FamilyPolicy {
	if svc.Spec.IPFamilyPolicy == nil {
		return ipam.SingleStack
	}
	return ipam.FamilyPolicy(*svc.Spec.IPFamilyPolicy)
}

func ports(svc *v1.Service) []ipam.Port {
	out := make([]ipam.Port, 0, len(svc.Spec.Ports))
	for _, p := range svc.Spec.Ports {
		protocol := p.Protocol
		if protocol == "" {
			protocol = v1.ProtocolTCP
		}
		out = append(out, ipam.Port{Protocol: string(protocol), Number: uint16(p.Port)})
	}
	return out
}

// held returns the addresses in a Service's status, in its order.
func held(svc *v1.Service) []netip.Addr {
	var out []netip.Addr
	for _, entry := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(entry.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// allocated returns our condition on a Service, nil if it has none.
func allocated(svc *v1.Service) *metav1.Condition {
	return meta.FindStatusCondition(svc.Status.Conditions, ConditionAllocated)
}

// announced returns the announcers' condition, nil if there is none.
func announced(svc *v1.Service) *metav1.Condition {
	return meta.FindStatusCondition(svc.Status.Conditions, config.ConditionAnnounced)
}

// unknownAnnotations returns the annotations under our prefix that mean
// nothing, sorted: most likely somebody mistyped one.
func unknownAnnotations(svc *v1.Service) []string {
	known := append(wish.Words(nil), AnnotationIgnore)
	var out []string
	for name := range svc.Annotations {
		if strings.HasPrefix(name, prefix) && !slices.Contains(known, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
