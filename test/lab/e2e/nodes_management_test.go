package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

var (
	hostResource     = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}
	hardwareResource = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "hardwaredata"}
)

// hostNamespace is where the BareMetalHosts are, in either cluster.
const hostNamespace = "hosts"

// managed starts the management cluster for a test, lets the CCM read hosts
// there as docs/nodes.md says, and returns it with a client for its hosts.
func managed(t *testing.T) (*lab.Management, dynamic.Interface) {
	t.Helper()
	m, err := cluster.StartManagement(bounded(t))
	must(t, err)
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	serveHosts(t, m.Kubectl)
	overlay(t, "metal3")
	kubeconfig, err := m.Kubeconfig(bounded(t), hostNamespace, product.CCM)
	must(t, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: "ccm-baremetal-management"},
		Data:       map[string][]byte{"value": kubeconfig},
	}
	secrets := cluster.Client().CoreV1().Secrets(product.Namespace)
	if _, err = secrets.Create(bounded(t), secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(bounded(t), secret, metav1.UpdateOptions{})
	}
	must(t, err)
	return m, hostsOf(t, m.RESTConfig())
}

// serveHosts makes a cluster serve BareMetalHosts, and the CCM may read them:
// by the file of manifests/capi/management.
func serveHosts(t *testing.T, kubectl func(context.Context, ...string) (string, error)) {
	t.Helper()
	root, err := product.Root(bounded(t))
	must(t, err)
	rights, err := os.ReadFile(filepath.Join(root, "manifests", "capi", "management", "rbac.yaml"))
	must(t, err)
	filled := filepath.Join(t.TempDir(), "rbac.yaml")
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + hostNamespace + "}\n---\n"
	must(t, os.WriteFile(filled, []byte(namespace+strings.ReplaceAll(string(rights), "${NAMESPACE}", hostNamespace)), 0o600))
	types, err := filepath.Abs("testdata/metal3.yaml")
	must(t, err)
	for _, args := range [][]string{
		{"apply", "-f", types, "-f", filled},
		{"wait", "--for=condition=Established", "--timeout=60s", "-f", types},
	} {
		_, err := kubectl(bounded(t), args...)
		must(t, err)
	}
}

// overlay applies a directory of manifests. It stays: the test of rights, which
// comes last, judges it too.
func overlay(t *testing.T, name string) {
	t.Helper()
	root, err := product.Root(bounded(t))
	must(t, err)
	_, err = cluster.Kubectl(bounded(t), "apply", "-k", filepath.Join(root, "manifests", name))
	must(t, err)
}

func hostsOf(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return client
}

// A host is a BareMetalHost to be made. Its zero values are those of one that
// runs: powered on, provisioned, operational status OK.
type host struct {
	name        string
	state       string
	operational string
	off         bool
	annotation  string
	consumer    [2]string // kind and name; empty: nobody
	address     string    // that inspection found; empty: none
}

// put creates a BareMetalHost as Metal3 has it, or brings it to another state.
func put(t *testing.T, client dynamic.Interface, h host) *unstructured.Unstructured {
	t.Helper()
	hosts := client.Resource(hostResource).Namespace(hostNamespace)
	object := object("BareMetalHost", h.name)
	if h.annotation != "" {
		object.SetAnnotations(map[string]string{h.annotation: ""})
	}
	object.SetLabels(map[string]string{"topology.kubernetes.io/region": "dc1", "rack": "a7"})
	spec := map[string]any{"online": !h.off}
	if h.consumer[0] != "" {
		spec["consumerRef"] = map[string]any{"kind": h.consumer[0], "namespace": hostNamespace, "name": h.consumer[1]}
	}
	object.Object["spec"] = spec
	now, err := hosts.Get(bounded(t), h.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		now, err = hosts.Create(bounded(t), object, metav1.CreateOptions{})
	case err == nil:
		object.SetResourceVersion(now.GetResourceVersion())
		now, err = hosts.Update(bounded(t), object, metav1.UpdateOptions{})
	}
	must(t, err)
	now.Object["status"] = map[string]any{
		"poweredOn": !h.off, "operationalStatus": orElse(h.operational, "OK"),
		"provisioning": map[string]any{"state": orElse(h.state, "provisioned"), "ID": "id-of-" + h.name},
	}
	now, err = hosts.UpdateStatus(bounded(t), now, metav1.UpdateOptions{})
	must(t, err)
	if h.address != "" {
		inspected(t, client, h)
	}
	return now
}

// inspected creates what inspection has found out about a host.
func inspected(t *testing.T, client dynamic.Interface, h host) {
	t.Helper()
	data := object("HardwareData", h.name)
	data.Object["spec"] = map[string]any{"hardware": map[string]any{
		"systemVendor": map[string]any{"productName": "PowerEdge R650 (SKU=NotProvided)"},
		"nics":         []any{map[string]any{"name": "eth0", "ip": h.address}},
	}}
	_, err := client.Resource(hardwareResource).Namespace(hostNamespace).Create(bounded(t), data, metav1.CreateOptions{})
	must(t, err)
}

func object(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("metal3.io/v1alpha1")
	o.SetKind(kind)
	o.SetNamespace(hostNamespace)
	o.SetName(name)
	return o
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// joinAs creates a Node whose kubelet has set a providerID, as join does one
// without. It may be gone when the test ends.
func joinAs(t *testing.T, name, providerID, ip string) {
	t.Helper()
	nodes := cluster.Client().CoreV1().Nodes()
	made := registered(name, ip)
	made.Spec.ProviderID = providerID
	_, err := nodes.Create(bounded(t), made, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// initialized waits until Nodes have lost the taint of the cloud provider.
func initialized(t *testing.T, names ...string) {
	t.Helper()
	eventually(t, "the Nodes to be initialized", func(ctx context.Context) error {
		var waiting []error
		for _, name := range names {
			n, err := cluster.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err == nil && tainted(n, cloudTaint) {
				err = fmt.Errorf("%s waits", name)
			}
			waiting = append(waiting, err)
		}
		return errors.Join(waiting...)
	})
}

// restore configures the shared installation as it was, after the test.
func restore(t *testing.T) {
	t.Cleanup(func() {
		if err := installed.Configure(context.Background(), document); err != nil {
			t.Error(err)
		}
	})
}
