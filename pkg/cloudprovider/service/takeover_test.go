package service

import (
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestTakeOverTellsWhoKeepsWhatOthersGave(t *testing.T) {
	c, err := config.Load([]byte("apiVersion: ccm-baremetal.io/v1alpha1\nkind: CloudConfig\npools: [{addresses: [192.0.2.0/28]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	class := "other"
	show := func(name, address string, class *string) v1.Service {
		return v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u", Annotations: map[string]string{"metallb.io/ip-allocated-from-pool": "lan"}},
			Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, LoadBalancerClass: class, IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
				Ports: []v1.ServicePort{{Port: 80}}},
			Status: v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: address}}}},
		}
	}
	s := Survey{Namespaces: map[string]map[string]string{"shop": {}}}
	s.fill([]v1.Service{show("keeps", "192.0.2.7", nil), show("outside", "198.51.100.1", nil), show("theirs", "192.0.2.9", &class)}, nil, nil)
	got := s.TakeOver(c, time.Now())
	if got.InUse != 3 || len(got.Effects) != 2 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []Effect{{Service: "shop/theirs", Address: netip.MustParseAddr("192.0.2.9"), Fate: Lost}, {Service: "shop/outside", Address: netip.MustParseAddr("198.51.100.1"), Fate: Unannounced}} {
		if e := got.Effects[i]; e.Service != want.Service || e.Address != want.Address || e.Fate != want.Fate {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
}
