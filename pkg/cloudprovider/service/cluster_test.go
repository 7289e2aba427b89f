package service

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

func TestClusterKnowsWhoseAddressesMustNotBeGivenOut(t *testing.T) {
	node := func(name string, addresses ...v1.NodeAddress) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Addresses: addresses}}
	}
	got := cluster([]*v1.Node{
		node("b", v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, v1.NodeAddress{Type: v1.NodeHostName, Address: "192.0.2.9"}),
		node("a", v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, v1.NodeAddress{Type: v1.NodeExternalIP, Address: "2001:db8::1"}),
	}, &discovery.EndpointSlice{Endpoints: []discovery.Endpoint{{Addresses: []string{"192.0.2.3", "192.0.2.2"}}}}, []netip.Addr{netip.MustParseAddr("192.0.2.3")})
	want := ipam.Cluster{
		NodeAddresses: map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "a", netip.MustParseAddr("2001:db8::1"): "a"},
		Reserved:      []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")},
	}
	if !maps.Equal(got.NodeAddresses, want.NodeAddresses) || !slices.Equal(got.Reserved, want.Reserved) {
		t.Errorf("got %v, want %v", got, want)
	}
}
