package source

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Conditions of endpoints in the words of the API.
var (
	yes, no            = true, false
	isReady            = discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}
	isUnready          = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
	servesTerminating  = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	isTerminating      = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
	publishedNotReady  = discoveryv1.EndpointConditions{Ready: &yes, Serving: &no, Terminating: &yes}
	saysNothing        = discoveryv1.EndpointConditions{}
	servingButNotReady = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes}
)

// endpoint returns an endpoint on a node; an empty node means none is named.
func endpoint(node string, c discoveryv1.EndpointConditions) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{"10.244.1.5"}, Conditions: c}
	if node != "" {
		e.NodeName = &node
	}
	return e
}

func endpointSlice(namespace, service, name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

func TestEndpoints(t *testing.T) {
	type endpoints = []discoveryv1.Endpoint
	hinted := endpoint("n1", isReady)
	hinted.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "elsewhere"}}}
	tests := []struct {
		name   string
		slices []endpoints
		want   plan.Endpoints
	}{
		{"none", nil, plan.Endpoints{}},
		{"ready ones, by node", []endpoints{{endpoint("n2", isReady), endpoint("n1", isReady), endpoint("n2", isReady)}},
			plan.Endpoints{Ready: []string{"n1", "n2"}}},
		{"the same endpoint in two slices", []endpoints{{endpoint("n1", isReady)}, {endpoint("n1", isReady), endpoint("n2", isReady)}},
			plan.Endpoints{Ready: []string{"n1", "n2"}}},
		{"no condition means ready", []endpoints{{endpoint("n1", saysNothing)}}, plan.Endpoints{Ready: []string{"n1"}}},
		{"not ready", []endpoints{{endpoint("n1", isUnready)}}, plan.Endpoints{}},
		{"serves while it terminates", []endpoints{{endpoint("n1", servesTerminating), endpoint("n2", isReady)}},
			plan.Endpoints{Ready: []string{"n2"}, Terminating: []string{"n1"}}},
		{"terminates and serves no more", []endpoints{{endpoint("n1", isTerminating)}}, plan.Endpoints{}},
		{"publishNotReadyAddresses makes everything ready", []endpoints{{endpoint("n1", publishedNotReady)}}, plan.Endpoints{Ready: []string{"n1"}}},
		{"serving without terminating is not ready", []endpoints{{endpoint("n1", servingButNotReady)}}, plan.Endpoints{}},
		{"no node named", []endpoints{{endpoint("", isReady)}}, plan.Endpoints{Nodeless: true}},
		{"no node named, not ready", []endpoints{{endpoint("", isUnready)}}, plan.Endpoints{}},
		{"no node named, terminating, the last one", []endpoints{{endpoint("", servesTerminating)}}, plan.Endpoints{Nodeless: true}},
		{"no node named, terminating, others ready", []endpoints{{endpoint("", servesTerminating)}, {endpoint("n1", isReady)}},
			plan.Endpoints{Ready: []string{"n1"}}},
		{"hints for another zone do not matter", []endpoints{{hinted}}, plan.Endpoints{Ready: []string{"n1"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var parts []slice
			for _, list := range tt.slices {
				s, ok := convertSlice(endpointSlice("web", "shop", "x", list...))
				if !ok || s.service != "web/shop" {
					t.Fatalf("converted to %+v, %v", s, ok)
				}
				parts = append(parts, s)
			}
			if diff := cmp.Diff(tt.want, merge(slices.Values(parts))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConvertSliceDropsWhatIsNoEndpoint(t *testing.T) {
	orphan := endpointSlice("web", "", "x", endpoint("n1", isReady))
	names := endpointSlice("web", "shop", "x", endpoint("n1", isReady))
	names.AddressType = discoveryv1.AddressTypeFQDN
	for what, o := range map[string]*discoveryv1.EndpointSlice{"no Service": orphan, "host names": names} {
		if s, ok := convertSlice(o); ok {
			t.Errorf("a slice of %s was kept: %+v", what, s)
		}
	}
}

func TestConvertSliceKeepsAddressesOfTheAPIServerOnly(t *testing.T) {
	shop, _ := convertSlice(endpointSlice("web", "shop", "x", endpoint("n1", isReady)))
	api, _ := convertSlice(endpointSlice("default", "kubernetes", "x", endpoint("", isUnready)))
	if len(shop.reserved) != 0 {
		t.Errorf("addresses of pods were kept: %v", shop.reserved)
	}
	if diff := cmp.Diff(addrs("10.244.1.5"), api.reserved, compareNet); diff != "" {
		t.Errorf("the API server's address, ready or not:\n%s", diff)
	}
}

// discoveryAPI returns an endpoint of the API server, which names no node.
func discoveryAPI(address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: isReady}
}
