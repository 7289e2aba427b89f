package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cloudTaint is what a kubelet with --cloud-provider=external registers with.
const cloudTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// machines is the configuration of the shared installation with an inventory.
const machines = document + `nodes:
  inventory:
  - {name: joined, providerID: "baremetal://rack1-u7", addresses: [192.0.2.77], zone: %s, region: dc1, instanceType: r650, labels: {%s: x}}
`

// A Node that joins is initialized within seconds, and follows the
// configuration afterwards. test/lab/e2e/nodes has the rest about Nodes.
func TestB157NodeIsInitialized(t *testing.T) {
	atRest(t)
	temporarily(t, fmt.Sprintf(machines, "rack1", "one"))
	began := join(t, "joined", "198.51.100.77", "2001:db8:51::77")
	eventually(t, "the taint to go", func(ctx context.Context) error {
		if n := node(t, "joined"); tainted(n, cloudTaint) {
			return fmt.Errorf("taints are %v", n.Spec.Taints)
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("initialized after %.1f s", took.Seconds())
	if took > 20*time.Second {
		t.Errorf("initialized after %.1f s, want 5 (four times that on a shared machine)", took.Seconds())
	}
	n := node(t, "joined")
	if n.Spec.ProviderID != "baremetal://rack1-u7" || !tainted(n, "node.cluster.x-k8s.io/uninitialized") {
		t.Errorf("providerID %q, taints %v", n.Spec.ProviderID, n.Spec.Taints)
	}
	labels(t, "joined", map[string]string{"topology.kubernetes.io/zone": "rack1", "topology.kubernetes.io/region": "dc1", "node.kubernetes.io/instance-type": "r650", "one": "x"})
	addressed(t, "joined", "InternalIP 198.51.100.77", "InternalIP 2001:db8:51::77", "ExternalIP 192.0.2.77", "Hostname joined")

	enforce(t, fmt.Sprintf(machines, "rack2", "two"))
	labels(t, "joined", map[string]string{"topology.kubernetes.io/zone": "rack2", "failure-domain.beta.kubernetes.io/zone": "rack2", "one": "", "two": "x"})
	if id := node(t, "joined").Spec.ProviderID; id != "baremetal://rack1-u7" {
		t.Errorf("providerID has become %q", id)
	}
}

// addressed waits until a Node has these addresses, each after its type.
func addressed(t *testing.T, name string, want ...string) {
	t.Helper()
	eventually(t, "the addresses of "+name, func(context.Context) error {
		var got []string
		for _, a := range node(t, name).Status.Addresses {
			got = append(got, string(a.Type)+" "+a.Address)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %q, want %q", got, want)
		}
		return nil
	})
}

// join creates a Node as its kubelet does, and returns when it had done so.
func join(t *testing.T, name string, ips ...string) time.Time {
	t.Helper()
	nodes := cluster.Client().CoreV1().Nodes()
	_, err := nodes.Create(bounded(t), registered(name, ips...), metav1.CreateOptions{})
	must(t, err)
	began := time.Now()
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return began
}

func node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := cluster.Client().CoreV1().Nodes().Get(bounded(t), name, metav1.GetOptions{})
	must(t, err)
	return n
}

func tainted(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
