package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

// picture shows addresses, condition and finalizers of each Service.
func picture(services map[string]*v1.Service) string {
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(services)) {
		if strings.HasPrefix(key, "web/marker-") {
			continue
		}
		svc := services[key]
		s := untouched(svc)
		fmt.Fprintf(&out, "%s %s %v\n", key, s, svc.Finalizers)
	}
	return out.String()
}

func TestB010GrowingOrCuttingAPoolMovesAndWritesNothing(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, "pools:\n- name: public\n  addresses: [192.0.2.120-192.0.2.127]\n")
	for i := range 5 {
		api.create(lb(fmt.Sprintf("s%d", i)))
	}
	for i := range 5 {
		api.awaitAddress(t, fmt.Sprintf("web/s%d", i))
	}
	// Put one at the end, so that the middle is unused.
	api.edit(t, "web/s4", func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationAddresses: "192.0.2.127"} })
	eventually(t, "s4 moves", func() bool { return api.address(t, "web/s4") == "192.0.2.127" })
	l.settle(t)
	before, writes := api.picture(), api.writes()
	for _, addresses := range []string{"192.0.2.117-192.0.2.127", "192.0.2.117-192.0.2.123, 192.0.2.127"} {
		l.Apply(load(t, "pools:\n- name: public\n  addresses: ["+addresses+"]\n"))
		l.settle(t)
	}
	if after := api.picture(); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	if n := api.writes() - writes; n != 0 {
		t.Errorf("%d writes", n)
	}
}

func TestB041TypeChangedAwayAndBack(t *testing.T) {
	for _, kind := range []v1.ServiceType{v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort, v1.ServiceTypeExternalName} {
		t.Run(string(kind), func(t *testing.T) {
			api := newAPIServer()
			l := lead(t, api, pool(1))
			api.create(lb("s1", func(svc *v1.Service) { svc.Finalizers = []string{helpers.LoadBalancerCleanupFinalizer} }))
			address := api.awaitAddress(t, "web/s1")
			api.create(lb("s2"))
			api.awaitReason(t, "web/s2", "PoolExhausted")

			api.edit(t, "web/s1", func(svc *v1.Service) { svc.Spec.Type = kind })
			if got := api.awaitAddress(t, "web/s2"); got != address {
				t.Errorf("s2 got %s, want the address that became free", got)
			}
			api.awaitReason(t, "web/s1", "")
			if svc, _ := api.get("web/s1"); len(svc.Finalizers) > 0 || len(svc.Status.LoadBalancer.Ingress) > 0 {
				t.Errorf("left on s1: %v, %v", svc.Finalizers, svc.Status.LoadBalancer)
			}

			api.edit(t, "web/s1", func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeLoadBalancer })
			api.awaitReason(t, "web/s1", "PoolExhausted")
			l.settle(t)
			if got := api.address(t, "web/s1"); got != "" {
				t.Errorf("s1 has %s, which belongs to s2", got)
			}
		})
	}
}

func TestB050OtherKindsOfServicesAreLeftAlone(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(5))
	other := func(name string, change func(*v1.Service)) {
		api.create(lb(name, func(svc *v1.Service) {
			svc.Finalizers = []string{helpers.LoadBalancerCleanupFinalizer}
			change(svc)
		}))
	}
	other("cluster-ip", func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeClusterIP })
	other("headless", func(svc *v1.Service) { svc.Spec.Type, svc.Spec.ClusterIP = v1.ServiceTypeClusterIP, v1.ClusterIPNone })
	other("node-port", func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeNodePort })
	other("external-name", func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeExternalName })
	other("foreign-class", func(svc *v1.Service) {
		class := "example.com/other"
		svc.Spec.LoadBalancerClass = &class
		showing("192.0.2.12")(svc)
	})
	other("ignored", func(svc *v1.Service) { svc.Annotations = map[string]string{AnnotationIgnore: "true"} })
	before := api.picture()
	l.settle(t)
	if after := api.picture(); after != before || api.writes() != 0 {
		t.Errorf("%d writes; before:\n%safter:\n%s", api.writes(), before, after)
	}
}

func TestB045NodePortsDoNotMatter(t *testing.T) {
	for _, policy := range []v1.ServiceExternalTrafficPolicy{v1.ServiceExternalTrafficPolicyCluster, v1.ServiceExternalTrafficPolicyLocal} {
		t.Run(string(policy), func(t *testing.T) {
			api := newAPIServer()
			l := lead(t, api, pool(5))
			allocate := false
			api.create(lb("s", func(svc *v1.Service) {
				svc.Spec.AllocateLoadBalancerNodePorts = &allocate
				svc.Spec.ExternalTrafficPolicy = policy
			}))
			address := api.awaitAddress(t, "web/s")
			for _, on := range []bool{true, false} {
				api.edit(t, "web/s", func(svc *v1.Service) {
					svc.Spec.AllocateLoadBalancerNodePorts = &on
					svc.Spec.Ports[0].NodePort = map[bool]int32{true: 30080}[on]
				})
				l.settle(t)
			}
			if got := api.address(t, "web/s"); got != address || api.patched("web/s") != 1 {
				t.Errorf("has %s after %d patches, want %s after one", got, api.patched("web/s"), address)
			}
		})
	}
}

func TestB079NothingIsDecidedWithoutConfigurationAndNodeAddressesAreRefused(t *testing.T) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: "192.0.2.10"}, {Type: v1.NodeExternalIP, Address: "203.0.113.7"}}},
	}
	api := newAPIServer(node)
	l := lead(t, api, "")
	api.create(lb("pending"))
	api.create(lb("by-hand", showing("192.0.2.10")))
	api.create(lb("outside-pools", showing("203.0.113.7")))
	time.Sleep(200 * time.Millisecond)
	if n := api.patched(); n != 0 {
		t.Fatalf("%d writes without a configuration", n)
	}
	l.Apply(load(t, pool(5)))
	if got := api.awaitAddress(t, "web/pending"); got != "192.0.2.11" {
		t.Errorf("got %s; want .11, as .10 is the node's", got)
	}
	for _, key := range []string{"web/by-hand", "web/outside-pools"} {
		api.awaitReason(t, key, "NodeAddress")
		svc, _ := api.get(key)
		if c := allocated(svc); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "n1") {
			t.Errorf("%s: condition is %s, %q", key, c.Status, c.Message)
		}
		eventually(t, key+": it is told", func() bool { return len(l.events.With("Warning NodeAddress "+key)) == 1 })
	}
	if got := l.Balancer().State(noon).Waiting; !maps.Equal(got, map[ipam.Reason]int{ipam.NodeAddress: 2}) {
		t.Errorf("waiting: %v", got)
	}
}

func TestNodeThatBringsAHeldAddressSilencesIt(t *testing.T) {
	api := newAPIServer()
	lead(t, api, pool(2))
	api.create(lb("s"))
	address := api.awaitAddress(t, "web/s")
	_, err := api.CoreV1().Nodes().Create(context.Background(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: address}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	api.awaitReason(t, "web/s", "NodeAddress")
	if got := api.address(t, "web/s"); got != address {
		t.Errorf("moved to %s, though the pool says keep", got)
	}
}

func TestAddressOfTheAPIServerIsNeverGivenOut(t *testing.T) {
	api := newAPIServer(&discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Endpoints:  []discovery.Endpoint{{Addresses: []string{"192.0.2.10"}}},
	})
	lead(t, api, pool(2))
	api.create(lb("s"))
	if got := api.awaitAddress(t, "web/s"); got != "192.0.2.11" {
		t.Errorf("got %s", got)
	}
}

func TestNamespaceLabelThatNowMatchesServesWhoWaits(t *testing.T) {
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	api := newAPIServer(ns)
	lead(t, api, "pools:\n- addresses: [192.0.2.10]\n  namespaceSelector: tier=front\n")
	api.create(lb("s"))
	api.awaitReason(t, "web/s", "NoPool")
	ns.Labels = map[string]string{"tier": "front"}
	if _, err := api.CoreV1().Namespaces().Update(context.Background(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	api.awaitAddress(t, "web/s")
}

func TestFreedAddressGoesToWhoWaitsLongest(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(1))
	api.create(lb("holder"))
	address := api.awaitAddress(t, "web/holder")
	for _, name := range []string{"z-first", "a-second"} {
		api.create(lb(name))
		api.awaitReason(t, "web/"+name, "PoolExhausted")
	}
	api.remove(t, "web/holder")
	if got := api.awaitAddress(t, "web/z-first"); got != address {
		t.Errorf("got %s", got)
	}
	l.settle(t)
	if got := api.address(t, "web/a-second"); got != "" {
		t.Errorf("the second has %s", got)
	}
	l.Apply(load(t, pool(2)))
	api.awaitAddress(t, "web/a-second")
}

func TestDeletedServiceKeepsItsAddressUntilItIsGone(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(1))
	api.create(lb("leaving", func(svc *v1.Service) { svc.Finalizers = []string{"example.com/other"} }))
	address := api.awaitAddress(t, "web/leaving")
	api.create(lb("waiting"))
	api.awaitReason(t, "web/waiting", "PoolExhausted")
	api.remove(t, "web/leaving")
	l.settle(t)
	if got := api.address(t, "web/waiting"); got != "" {
		t.Fatalf("got %s, which is still in use", got)
	}
	if got := api.address(t, "web/leaving"); got != address || api.patched("web/leaving") != 1 {
		t.Errorf("the leaving service has %q after %d patches", got, api.patched("web/leaving"))
	}
	api.edit(t, "web/leaving", func(svc *v1.Service) { svc.Finalizers = nil })
	api.awaitAddress(t, "web/waiting")
}

func TestLeftOverFinalizerDoesNotBlockDeletion(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(1))
	api.create(lb("s", func(svc *v1.Service) {
		svc.Finalizers = []string{helpers.LoadBalancerCleanupFinalizer, "example.com/other"}
	}))
	api.awaitAddress(t, "web/s")
	if svc, _ := api.get("web/s"); !slices.Equal(svc.Finalizers, []string{"example.com/other"}) || api.patched("web/s") != 1 {
		t.Errorf("finalizers %v after %d patches, want the other one after one", svc.Finalizers, api.patched("web/s"))
	}
	l.stop()
	api.edit(t, "web/s", func(svc *v1.Service) { svc.Finalizers = []string{helpers.LoadBalancerCleanupFinalizer} })
	api.remove(t, "web/s") // while nobody leads
	lead(t, api, pool(1))
	eventually(t, "the service is gone", func() bool {
		_, err := api.get("web/s")
		return err != nil
	})
}

func TestHandMadeStatusIsPutRightAndAFightIsPaced(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(1))
	api.create(lb("s"))
	address := api.awaitAddress(t, "web/s")
	for range 3 {
		api.edit(t, "web/s", showing("203.0.113.99"))
		eventually(t, "the status is right again", func() bool { return api.address(t, "web/s") == address })
	}
	eventually(t, "the fight is told", func() bool { return len(l.events.With("Warning StatusOverwritten web/s")) == 1 })
	if got := l.counts.repairs.Load(); got != 3 {
		t.Errorf("%d repairs counted", got)
	}
	if got := l.pace.written["web/s"].inARow; got != 3 {
		t.Errorf("the next repair would count as number %d in a row", got+1)
	}
}

func TestUnknownAnnotationIsToldOnce(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(2))
	api.create(lb("s", func(svc *v1.Service) { svc.Annotations = map[string]string{"ccm-baremetal.io/adresses": "192.0.2.11"} }))
	api.awaitAddress(t, "web/s")
	eventually(t, "the annotation is told", func() bool { return len(l.events.With("Warning UnknownAnnotation web/s")) == 1 })
	api.edit(t, "web/s", func(svc *v1.Service) { svc.Labels = map[string]string{"a": "b"} })
	l.settle(t)
	l.stop()
	l = lead(t, api, pool(2))
	l.settle(t)
	if got := l.events.With("Warning UnknownAnnotation"); len(got) != 0 || api.patched("web/s") != 1 {
		t.Errorf("after a restart: %d patches, events %q", api.patched("web/s"), got)
	}
}

func TestRequestThatCannotBeMetCostsNobodyItsAddress(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(2))
	for _, name := range []string{"a", "b"} {
		api.create(lb(name))
		api.awaitAddress(t, "web/"+name)
	}
	had := api.address(t, "web/b")
	api.edit(t, "web/b", func(svc *v1.Service) {
		svc.Annotations = map[string]string{wish.AnnotationAddresses: api.services["web/a"].Status.LoadBalancer.Ingress[0].IP}
	})
	eventually(t, "the refusal is told", func() bool { return len(l.events.With("Warning AddressInUse web/b")) == 1 })
	if got := api.address(t, "web/b"); got != had {
		t.Errorf("b has %s, had %s", got, had)
	}
}
