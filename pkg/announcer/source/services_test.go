package source

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var created = time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)

// balancer returns a Service that holds addresses by the CCM's verdict.
func balancer(namespace, name string, addresses ...string) *corev1.Service {
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "uid-" + "1",
			CreationTimestamp: metav1.NewTime(created.Local()),
			ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{
			{Type: config.ConditionAllocated, Status: metav1.ConditionTrue, Message: verdict(addresses...)},
		}},
	}
	for _, a := range addresses {
		o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	return o
}

// verdict is the message of the CCM that confirms addresses.
func verdict(addresses ...string) string {
	var confirmed []config.Confirmation
	for _, a := range addresses {
		confirmed = append(confirmed, config.Confirmation{Address: netip.MustParseAddr(a), Pool: "public"})
	}
	return config.Verdict(confirmed)
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

var compareNet = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestConvertService(t *testing.T) {
	now := metav1.Now()
	class := "example.org/other"
	tests := []struct {
		name   string
		change func(*corev1.Service)
		want   func(*service)
	}{
		{"as the CCM leaves it", func(*corev1.Service) {}, func(*service) {}},
		{"a host name in the status is no address", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{Hostname: "lb.example.org"})
		}, func(*service) {}},
		{"an address twice, in two spellings, counts once", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "::ffff:192.0.2.10"})
		}, func(*service) {}},
		{"garbage in the status is no address", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.010"}, {IP: ""}, {IP: "x"}}
		}, func(s *service) { s.Addresses = nil }},
		{"two families keep the order of the status", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "2001:db8::10"}, {IP: "192.0.2.10"}}
			o.Status.Conditions[0].Message = verdict("2001:db8::10", "192.0.2.10")
		}, func(s *service) { s.Addresses = addrs("2001:db8::10", "192.0.2.10") }},
		{"no verdict of the CCM", func(o *corev1.Service) { o.Status.Conditions = nil }, func(s *service) { s.Allocated, s.judged = false, false }},
		{"a verdict against it", func(o *corev1.Service) { o.Status.Conditions[0].Status = metav1.ConditionFalse },
			func(s *service) { s.Allocated = false }},
		{"an address that the verdict does not name", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.66"}}
		}, func(s *service) { s.Addresses, s.Allocated = addrs("192.0.2.66"), false }},
		{"an address that the verdict names only as refused", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.66"}}
			o.Status.Conditions[0].Message += "; the request cannot be met: 192.0.2.66 is in no pool"
		}, func(s *service) { s.Addresses, s.Allocated = addrs("192.0.2.66"), false }},
		{"an address that the verdict does not name beside one that it does", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = append([]corev1.LoadBalancerIngress{{IP: "192.0.2.66"}}, o.Status.LoadBalancer.Ingress...)
		}, func(*service) {}},
		{"kept outside the pools", func(o *corev1.Service) {
			o.Status.Conditions[0].Message = "192.0.2.10, kept though it is in no pool any more"
		}, func(*service) {}},
		{"somebody else's condition of that name", func(o *corev1.Service) { o.Status.Conditions[0].Type = "example.org/Allocated" },
			func(s *service) { s.Allocated, s.judged = false, false }},
		{"on its way out", func(o *corev1.Service) { o.DeletionTimestamp = &now }, func(s *service) { s.Deleting = true }},
		{"policy Local", func(o *corev1.Service) { o.Spec.ExternalTrafficPolicy = "Local" }, func(s *service) { s.Local = true }},
		{"policy Cluster", func(o *corev1.Service) { o.Spec.ExternalTrafficPolicy = "Cluster" }, func(*service) {}},
		{"a class", func(o *corev1.Service) { o.Spec.LoadBalancerClass = &class }, func(s *service) { s.class = class }},
		{"ignored", func(o *corev1.Service) { o.Annotations = map[string]string{ignoreAnnotation: " true"} },
			func(s *service) { s.ignored = true }},
		{"not ignored", func(o *corev1.Service) { o.Annotations = map[string]string{ignoreAnnotation: "false"} }, func(*service) {}},
		{"labels are kept for selectors", func(o *corev1.Service) { o.Labels = map[string]string{"team": "edge"} },
			func(s *service) { s.Labels = map[string]string{"team": "edge"} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := balancer("web", "shop", "192.0.2.10")
			tt.change(o)
			want := service{uid: "uid-1", judged: true, Service: plan.Service{
				Namespace: "web", Name: "shop", Created: created, Addresses: addrs("192.0.2.10"), Allocated: true,
			}}
			tt.want(&want)
			got, ok := convertService(o)
			if !ok {
				t.Fatal("dropped")
			}
			if diff := cmp.Diff(want, got, compareNet, cmp.AllowUnexported(service{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConvertServiceDropsOtherTypes(t *testing.T) {
	for _, kind := range []corev1.ServiceType{"", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeExternalName} {
		o := balancer("web", "shop", "192.0.2.10")
		o.Spec.Type = kind
		if _, ok := convertService(o); ok {
			t.Errorf("a Service of type %q was kept", kind)
		}
	}
}

func TestServiceIsOurs(t *testing.T) {
	const class = "ccm-baremetal.io/announcer"
	tests := []struct {
		name      string
		s         service
		unclassed bool
		want      bool
	}{
		{"our class", service{class: class}, false, true},
		{"another class", service{class: "example.org/other"}, true, false},
		{"no class, and we take those", service{}, true, true},
		{"no class, and we do not take those", service{}, false, false},
		{"our class, ignored", service{class: class, ignored: true}, true, false},
		{"no class, ignored", service{ignored: true}, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules := config.Services{LoadBalancerClass: class, HandleUnclassed: tt.unclassed}
			if got := tt.s.ours(rules); got != tt.want {
				t.Errorf("ours = %v", got)
			}
		})
	}
}
