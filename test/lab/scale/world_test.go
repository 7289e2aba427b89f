package scale

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/apistub"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// The cluster is as big as the announcer is promised to be small in. Its
// objects are as long as those of real clusters: annotations of kubectl,
// managed fields, images of Nodes.
const (
	services      = 5000
	endpointsEach = 4
	nodes         = 500
)

// share is how many of the addresses an announcer has among 500.
const share = services / nodes

// With the first document the announcer, the only one alive, announces all
// addresses; with the second its share.
const (
	allHere = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools:
- {name: here, addresses: [10.0.0.0-10.0.0.9]}
- {name: there, addresses: [10.0.0.10-10.0.255.255]}
`
	fewHere = allHere + `advertisements:
- {name: here, pools: [here], layer2: {}}
- {name: there, pools: [there], nodeSelector: "kubernetes.io/hostname!=node-000", layer2: {}}
`
)

// bigCluster fills a stand-in for the API server.
func bigCluster() *apistub.Server {
	s := apistub.New()
	s.Add("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "big-cluster"}})
	s.Add("configmaps", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: product.Accepted},
		Data:       map[string]string{product.ConfigKey: fewHere},
	})
	s.Add("secrets", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: product.Secret},
		Data:       map[string][]byte{"key": []byte(strings.Repeat("k", 32))},
	})
	s.Add("services", kubernetes())
	for i := range services {
		s.Add("services", service(i))
		s.Add("endpointslices", slice(i))
	}
	for i := range nodes {
		s.Add("nodes", node(i))
	}
	return s
}

func kubernetes() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{"172.20.0.1"}},
	}
}

// meta is what objects of kubectl and of controllers carry.
func meta(namespace, name string, managed int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("5b1f2c1a-%s", name)),
		CreationTimestamp: metav1.NewTime(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)),
		Labels: map[string]string{
			"app.kubernetes.io/name": name, "app.kubernetes.io/instance": namespace, "helm.sh/chart": "chart-1.2.3",
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl-client-side-apply", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":"` + strings.Repeat("f", managed) + `"}`),
		}},
	}
}

func names(i int) (namespace, name string) {
	return fmt.Sprint("namespace-", i%100), fmt.Sprint("service-", i)
}

func addressOf(i int) string { return fmt.Sprintf("10.0.%d.%d", i>>8, i&255) }

func service(i int) *corev1.Service {
	address := addressOf(i)
	namespace, name := names(i)
	s := &corev1.Service{ObjectMeta: meta(namespace, name, 2000)}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: strings.Repeat("x", 1500)}
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
		ClusterIP: fmt.Sprintf("172.20.%d.%d", i>>8, i&255), ClusterIPs: []string{fmt.Sprintf("172.20.%d.%d", i>>8, i&255)},
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), NodePort: 30000 + int32(i%2768), Protocol: corev1.ProtocolTCP}},
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	s.Status.Conditions = []metav1.Condition{{
		Type: "ccm-baremetal.io/Allocated", Status: metav1.ConditionTrue, Reason: "Allocated", Message: address + " from pool default",
		LastTransitionTime: s.CreationTimestamp,
	}}
	return s
}

func slice(i int) *discoveryv1.EndpointSlice {
	namespace, name := names(i)
	o := &discoveryv1.EndpointSlice{ObjectMeta: meta(namespace, name+"-abcde", 1500), AddressType: discoveryv1.AddressTypeIPv4}
	o.Labels[discoveryv1.LabelServiceName] = name
	for e := range endpointsEach {
		on, yes := nodeName((i*7+e*13)%nodes), true
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("172.16.%d.%d", i>>6, (i*endpointsEach+e)&255)}, NodeName: &on,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprint(name, "-7d4b9c-", e), UID: "1c2d3e4f-0000"},
		})
	}
	port, text := int32(8080), "http"
	o.Ports = []discoveryv1.EndpointPort{{Name: &text, Port: &port}}
	return o
}

// nodeName: the first is the one that the announcer runs on.
func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

func node(i int) *corev1.Node {
	o := &corev1.Node{ObjectMeta: meta("", nodeName(i), 4000)}
	o.Labels[corev1.LabelHostname] = o.Name
	for l := range 20 {
		o.Labels[fmt.Sprint("example.org/label-", l)] = fmt.Sprint("value-", i%7)
	}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", 1+i%250)}}
	if i >= 250 {
		o.Status.Addresses[0].Address = fmt.Sprintf("198.51.100.%d", 1+i%250)
	}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for l := range 50 {
		o.Status.Images = append(o.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprint("example.org/image-", l, "@sha256:", strings.Repeat("0", 64)), fmt.Sprint("example.org/image-", l, ":v1")}, SizeBytes: 1 << 24,
		})
	}
	return o
}
