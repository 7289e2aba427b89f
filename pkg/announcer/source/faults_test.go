package source

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// The API server's own Service as a load balancer: its endpoints name no node,
// and its own addresses stay reserved.
func TestB057TheAPIServersServiceIsAnnouncedLikeAnyOther(t *testing.T) {
	api := populated(t)
	kubernetes := balancer("default", "kubernetes", "192.0.2.101")
	kubernetes.Spec.ClusterIPs = []string{"10.96.0.1"}
	api.put(kubernetes)
	r := run(t, api, nil).known(t)
	r.has(t, "[192.0.2.101] nodeless true, reserved [10.96.0.1 192.0.2.1]", func(s plan.Snapshot) string {
		for _, svc := range s.Services {
			if svc.Name == "kubernetes" {
				return fmt.Sprintf("%v nodeless %t, reserved %v", svc.Addresses, svc.Endpoints.Nodeless, s.Reserved)
			}
		}
		return "not there"
	})
	r.api.put(balancer("default", "kubernetes", "192.0.2.102"))
	r.has(t, "default/kubernetes[192.0.2.102][] web/shop[192.0.2.100][n2]", services)
}

// Slices with everything missing that may be missing, and with what does not
// belong into them.
func TestB060SlicesWithMissingFieldsAreRead(t *testing.T) {
	empty := ""
	bare := discoveryv1.Endpoint{}
	thousand := make([]discoveryv1.Endpoint, 1000)
	for i := range thousand {
		thousand[i] = endpoint(fmt.Sprint("n", i%3), isReady)
	}
	v6 := endpointSlice("web", "shop", "six", endpoint("n6", isReady))
	v6.AddressType = discoveryv1.AddressTypeIPv6
	garbled := endpointSlice("default", "kubernetes", "odd", discoveryv1.Endpoint{Addresses: []string{"", "no address"}, NodeName: &empty})
	for _, tt := range []struct {
		name string
		o    *discoveryv1.EndpointSlice
		keep bool
		want plan.Endpoints
	}{
		{"nothing at all", &discoveryv1.EndpointSlice{}, false, plan.Endpoints{}},
		{"no endpoints", endpointSlice("web", "shop", "x"), true, plan.Endpoints{}},
		{"no fields", endpointSlice("web", "shop", "x", bare), true, plan.Endpoints{Nodeless: true}},
		{"a thousand", endpointSlice("web", "shop", "x", thousand...), true, plan.Endpoints{Ready: []string{"n0", "n1", "n2"}}},
		{"another family", v6, true, plan.Endpoints{Ready: []string{"n6"}}},
		{"addresses that are none", garbled, true, plan.Endpoints{Nodeless: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, keep := convertSlice(tt.o)
			if keep != tt.keep {
				t.Fatalf("kept: %t", keep)
			}
			if diff := cmp.Diff(tt.want, merge(slices.Values([]slice{s}))); diff != "" || len(s.reserved) > 0 {
				t.Errorf("reserved %v\n%s", s.reserved, diff)
			}
		})
	}
}

func TestB062HintsChangeNothing(t *testing.T) {
	plain := endpointSlice("web", "shop", "x", endpoint("n1", isReady), endpoint("n2", servesTerminating))
	hinted := plain.DeepCopy()
	for i := range hinted.Endpoints {
		zone := "elsewhere"
		hinted.Endpoints[i].Zone = &zone
		hinted.Endpoints[i].Hints = &discoveryv1.EndpointHints{
			ForZones: []discoveryv1.ForZone{{Name: "other"}}, ForNodes: []discoveryv1.ForNode{{Name: "n9"}},
		}
	}
	a, _ := convertSlice(plain)
	b, _ := convertSlice(hinted)
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(slice{}), compareNet); diff != "" {
		t.Errorf("with hints:\n%s", diff)
	}
	close := balancer("web", "shop", "192.0.2.100")
	prefer := corev1.ServiceTrafficDistributionPreferClose
	close.Spec.TrafficDistribution = &prefer
	with, _ := convertService(close)
	without, _ := convertService(balancer("web", "shop", "192.0.2.100"))
	if diff := cmp.Diff(without, with, cmp.AllowUnexported(service{}), compareNet); diff != "" {
		t.Errorf("with trafficDistribution:\n%s", diff)
	}
}
