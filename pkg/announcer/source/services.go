package source

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ignoreAnnotation takes a Service out of our hands. Changing it is an API change.
const ignoreAnnotation = "ccm-baremetal.io/ignore" // "true": leave this Service alone

// Announced is the condition of that name, as it was last read.
type Announced struct {
	Status, Reason, Message string
}

// service is a Service of type LoadBalancer, whoever's it is.
type service struct {
	plan.Service        // without its endpoints
	uid          string // for events about it
	class        string // empty: names none
	ignored      bool
	judged       bool // a CCM has said something of its addresses
	announced    Announced
}

// convertService drops Services of other types: they can hold no address of ours.
func convertService(o *corev1.Service) (service, bool) {
	if o.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return service{}, false
	}
	s := service{
		Service: plan.Service{
			Namespace: o.Namespace,
			Name:      o.Name,
			Created:   o.CreationTimestamp.UTC(),
			Labels:    o.Labels,
			Addresses: ingress(o.Status.LoadBalancer.Ingress),
			Deleting:  o.DeletionTimestamp != nil,
			Local:     o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		},
		uid:     string(o.UID),
		ignored: isTrue(o.Annotations[ignoreAnnotation]),
	}
	for _, c := range o.Status.Conditions {
		switch c.Type {
		case config.ConditionAnnounced:
			s.announced = Announced{string(c.Status), c.Reason, c.Message}
		case config.ConditionAllocated:
			s.judged = true
		}
	}
	s.Addresses, s.Allocated = confirmed(o.Status.Conditions, s.Addresses)
	if o.Spec.LoadBalancerClass != nil {
		s.class = *o.Spec.LoadBalancerClass
	}
	return s, true
}

// ours tells whether the configuration makes the Service ours. The API server
// clears the class when a Service stops being a LoadBalancer, so this looks at
// the Service as it is now and never at what it once was.
func (s service) ours(c config.Services) bool {
	switch {
	case s.ignored:
		return false
	case s.class == "":
		return c.HandleUnclassed
	default:
		return s.class == c.LoadBalancerClass
	}
}

// ingress returns the addresses of a status in its order. A host name, which
// some other load balancer wrote, is nothing that could be announced.
func ingress(entries []corev1.LoadBalancerIngress) []netip.Addr {
	var addresses []netip.Addr
	for _, entry := range entries {
		address, ok := parseAddr(entry.IP)
		if ok && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// confirmed returns those addresses of a status that the CCM has confirmed: the
// condition is True, and its message confirms each of them. So an address that
// somebody else has written into the status is not announced, not even until the
// CCM has repaired it, and does not silence those beside it. If none is
// confirmed, all are returned, and that they are not.
func confirmed(conditions []metav1.Condition, addresses []netip.Addr) ([]netip.Addr, bool) {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == config.ConditionAllocated })
	if i < 0 || conditions[i].Status != metav1.ConditionTrue {
		return addresses, false
	}
	named := map[netip.Addr]bool{}
	for _, c := range config.Confirmed(conditions[i].Message) {
		named[c.Address] = true
	}
	foreign := func(a netip.Addr) bool { return !named[a] }
	if kept := slices.DeleteFunc(slices.Clone(addresses), foreign); len(kept) > 0 || len(addresses) == 0 {
		return kept, true
	}
	return addresses, false
}

// adoptable tells whether a CCM would adopt a Service with what its status
// shows: it has addresses, and all of them are in pools.
func (s service) adoptable(c config.Config) bool {
	return len(s.Addresses) > 0 && !slices.ContainsFunc(s.Addresses, func(a netip.Addr) bool {
		_, found := c.PoolOf(a)
		return !found
	})
}

// isTrue reads the value of an annotation as the CCM does, which also
// complains about values that are neither true nor false.
func isTrue(annotation string) bool {
	yes, err := strconv.ParseBool(strings.TrimSpace(annotation))
	return err == nil && yes
}

// clusterIPs is what the Service default/kubernetes contributes to the
// reserved addresses.
func clusterIPs(o *corev1.Service) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range o.Spec.ClusterIPs {
		if address, ok := parseAddr(text); ok {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// parseAddr reads an address as we compare them: IPv4 never in its IPv6 form,
// and without a zone, which means something on one host only.
func parseAddr(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, false
	}
	return address.Unmap().WithZone(""), true
}
