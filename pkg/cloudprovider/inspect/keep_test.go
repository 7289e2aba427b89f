package inspect

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/test/fakeapi"
)

// running is a Service that a foreign product serves.
func running(name string, annotations map[string]string, addresses ...string) v1.Service {
	svc := v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u", Annotations: annotations}}
	svc.Spec.Type = v1.ServiceTypeLoadBalancer
	svc.Spec.Ports = []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}}
	svc.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol}
	svc.Spec.IPFamilyPolicy = new(v1.IPFamilyPolicySingleStack)
	if len(addresses) == 2 {
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, v1.IPv6Protocol)
		svc.Spec.IPFamilyPolicy = new(v1.IPFamilyPolicyRequireDualStack)
	}
	for _, a := range addresses {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: a})
	}
	return svc
}

// read returns objects of a cluster, by path, from YAML.
func read(t *testing.T, objects map[string]string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for path, text := range objects {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out[path] = object
	}
	return out
}

// Whatever product serves a cluster, an import from it leaves each running
// Service the addresses that its status shows; and one whose address is in none
// of the pools is named.
func TestImportLeavesRunningServicesTheirAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		objects map[string]string
		losses  int
		running []v1.Service
	}{
		"MetalLB": {map[string]string{
			"/apis/metallb.io/v1beta1/ipaddresspools": `
kind: IPAddressPoolList
apiVersion: metallb.io/v1beta1
items:
- {apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: lan}, spec: {addresses: [192.0.2.0/28, "2001:db8::/120"], avoidBuggyIPs: true}}
- apiVersion: metallb.io/v1beta1
  kind: IPAddressPool
  metadata: {name: Of_Shop}
  spec: {addresses: [192.0.2.16/28], autoAssign: false, serviceAllocation: {priority: 5, namespaces: [shop]}}`,
			"/apis/metallb.io/v1beta1/l2advertisements": `
kind: L2AdvertisementList
apiVersion: metallb.io/v1beta1
items: [{apiVersion: metallb.io/v1beta1, kind: L2Advertisement, metadata: {name: lan}}]`,
		}, 1, []v1.Service{
			running("plain", map[string]string{"metallb.io/ip-allocated-from-pool": "lan"}, "192.0.2.3"),
			running("both", nil, "192.0.2.4", "2001:db8::4"),
			running("asks", map[string]string{"metallb.universe.tf/loadBalancerIPs": "192.0.2.17"}, "192.0.2.17"),
			running("renamed", map[string]string{"metallb.io/address-pool": "Of_Shop"}, "192.0.2.18"), // the loss
		}},
		"MetalLB's ConfigMap": {map[string]string{
			"/api/v1/namespaces/metallb-system/configmaps/config": `
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: metallb-system}
data:
  config: |
    address-pools:
    - {name: lan, protocol: layer2, addresses: [192.0.2.0-192.0.2.9, "2001:db8::/120"]}
    - {name: asked, protocol: layer2, auto-assign: false, addresses: [192.0.2.16/28]}`,
		}, 0, []v1.Service{
			running("plain", nil, "192.0.2.3"),
			running("both", nil, "192.0.2.4", "2001:db8::4"),
			running("asks", map[string]string{"metallb.universe.tf/address-pool": "asked"}, "192.0.2.17"),
			running("no-longer-asks", nil, "192.0.2.18"),
		}},
		"kube-vip": {map[string]string{
			"/api/v1/namespaces/kube-system/configmaps/kubevip": `
apiVersion: v1
kind: ConfigMap
metadata: {name: kubevip, namespace: kube-system}
data: {range-global: 192.0.2.0-192.0.2.9, cidr-shop: "192.0.2.16/28,2001:db8::/120"}`,
		}, 0, []v1.Service{
			running("plain", map[string]string{"kube-vip.io/loadbalancerIPs": "192.0.2.17"}, "192.0.2.17"),
			running("both", map[string]string{"kube-vip.io/loadbalancerIPs": "192.0.2.18,2001:db8::18"}, "192.0.2.18", "2001:db8::18"),
			running("from-before-the-namespace-had-some", map[string]string{"kube-vip.io/loadbalancerIPs": "192.0.2.3"}, "192.0.2.3"),
		}},
		"Cilium": {map[string]string{
			"/apis/cilium.io/v2/ciliumloadbalancerippools": `
kind: CiliumLoadBalancerIPPoolList
apiVersion: cilium.io/v2
items:
- {apiVersion: cilium.io/v2, kind: CiliumLoadBalancerIPPool, metadata: {name: lan}, spec: {allowFirstLastIPs: "No", blocks: [{cidr: 192.0.2.0/28}, {cidr: "2001:db8::/120"}]}}
- apiVersion: cilium.io/v2
  kind: CiliumLoadBalancerIPPool
  metadata: {name: old}
  spec: {disabled: true, blocks: [{start: 192.0.2.16, stop: 192.0.2.20}], serviceSelector: {matchLabels: {"io.kubernetes.service.namespace": shop}}}`,
			"/apis/cilium.io/v2alpha1/ciliuml2announcementpolicies": `
kind: CiliumL2AnnouncementPolicyList
apiVersion: cilium.io/v2alpha1
items: [{apiVersion: cilium.io/v2alpha1, kind: CiliumL2AnnouncementPolicy, metadata: {name: all}, spec: {loadBalancerIPs: true}}]`,
		}, 0, []v1.Service{
			running("plain", nil, "192.0.2.3"),
			running("both", map[string]string{"lbipam.cilium.io/ips": "192.0.2.4, 2001:db8::4"}, "192.0.2.4", "2001:db8::4"),
			running("of-a-pool-that-is-switched-off", nil, "192.0.2.17"),
		}},
		"PureLB": {map[string]string{
			"/apis/purelb.io/v2/servicegroups": `
kind: ServiceGroupList
apiVersion: purelb.io/v2
items:
- apiVersion: purelb.io/v2
  kind: ServiceGroup
  metadata: {name: default, namespace: purelb}
  spec: {local: {v4pools: [{subnet: 192.0.2.0/24, pool: 192.0.2.0-192.0.2.9, aggregation: default}], v6pools: [{subnet: "2001:db8::/64", pool: "2001:db8::/120", aggregation: default}]}}
- apiVersion: purelb.io/v2
  kind: ServiceGroup
  metadata: {name: asked, namespace: purelb}
  spec: {local: {v4pools: [{subnet: 192.0.2.0/24, pool: 192.0.2.16/28, aggregation: default}]}}`,
		}, 0, []v1.Service{
			running("plain", map[string]string{"purelb.io/allocated-by": "PureLB"}, "192.0.2.3"),
			running("both", nil, "192.0.2.4", "2001:db8::4"),
			running("asks", map[string]string{"purelb.io/service-group": "asked"}, "192.0.2.17"),
			running("no-longer-asks", nil, "192.0.2.18"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all := append([]v1.Service{running("outside", nil, "198.51.100.200")}, c.running...)
			objects := read(t, c.objects)
			objects["/api/v1/services"] = v1.ServiceList{Items: all}
			objects["/api/v1/nodes"] = v1.NodeList{Items: []v1.Node{{}}}
			objects["/api/v1/namespaces"] = v1.NamespaceList{Items: []v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}}
			stdout, _, err := importRun(t, "", "--cluster", "--kubeconfig", fakeapi.Serve(t, objects), "-o", "json")
			var got imported
			if wrong := json.Unmarshal([]byte(stdout), &got); wrong != nil || len(got.Faults) > 0 {
				t.Fatalf("%v, %v: %s", wrong, err, stdout)
			}
			shown := 0
			for _, svc := range all {
				shown += len(svc.Status.LoadBalancer.Ingress)
			}
			if got.InUse != shown || len(got.Services) != 1 || got.Services[0].Service != "shop/outside" || ExitCode(err) != exitLosses {
				t.Errorf("of %d addresses %d are known; exit code %d, not kept: %+v\n%s", shown, got.InUse, ExitCode(err), got.Services, got.Document)
			}
			if len(got.Losses) != c.losses+1 { // one more is the address outside
				t.Errorf("losses %v", got.Losses)
			}
		})
	}
}
