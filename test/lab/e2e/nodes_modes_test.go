package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// balancersOnly is the flag of docs/nodes.md for clusters whose Nodes are
// another program's business.
const balancersOnly = "--controllers=configuration-controller,gossip-key-controller,service-lb-controller"

// nodesOnly is that for clusters whose Services are.
const nodesOnly = "--controllers=*,-service-lb-controller,-gossip-key-controller"

// restartCCMs ends the CCMs and starts n others with more flags. It may be
// called when the test is over.
func restartCCMs(t *testing.T, n int, flags ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range 2 {
		if p := installed.CCM(i); p != nil && p.Running() {
			must(t, p.Stop(ctx))
		}
	}
	for i := range n {
		_, err := installed.StartCCM(i, flags...)
		must(t, err)
	}
}

// alone has one CCM run, with more flags, until the test is over. It returns a
// function that fails the test if that one has complained.
func alone(t *testing.T, flags ...string) (complaints func()) {
	t.Helper()
	t.Cleanup(func() { restartCCMs(t, 2) })
	for i := range 2 {
		must(t, installed.CCM(i).Stop(bounded(t)))
	}
	before := len(installed.CCM(0).Log())
	restartCCMs(t, 1, flags...)
	return func() {
		t.Helper()
		for line := range strings.SplitSeq(installed.CCM(0).Log()[before:], "\n") {
			if complaint(line) {
				t.Errorf("it complains: %s", line)
			}
		}
	}
}

// Without its controllers of Nodes the CCM gives addresses to Services, touches
// no Node, and finds nothing to complain about.
func TestBalancersOnly(t *testing.T) {
	atRest(t)
	complaints := alone(t, balancersOnly)
	join(t, "joined", "198.51.100.77")
	mark := time.Now()
	s := create(t, lab.LoadBalancer("balancers-only", "web", "web"))
	address(t, s)
	time.Sleep(6 * time.Second) // longer than any Node had to wait
	if n := node(t, "joined"); !tainted(n, cloudTaint) || n.Spec.ProviderID != "" {
		t.Errorf("taints %v, providerID %q", n.Spec.Taints, n.Spec.ProviderID)
	}
	log, err := cluster.Audit(mark)
	must(t, err)
	if w := log.User("kube-system/ccm-baremetal").Writes(); len(w.On("nodes"))+len(w.On("nodes/status")) > 0 {
		t.Errorf("it writes to Nodes:\n%s", w)
	}
	complaints()
}

// Without its controller of Services the CCM takes a document with pools,
// initializes Nodes by it, touches no Service, and comes to rest.
func TestNodesOnly(t *testing.T) {
	atRest(t)
	complaints := alone(t, nodesOnly)
	mark := time.Now()
	temporarily(t, fmt.Sprintf(machines, "rack1", "one"))
	s := create(t, lab.LoadBalancer("nodes-only", "web", "web"))
	join(t, "joined", "198.51.100.77")
	initialized(t, "joined")
	if id := node(t, "joined").Spec.ProviderID; id != "baremetal://rack1-u7" {
		t.Errorf("its providerID is %q", id)
	}
	addressed(t, "joined", "InternalIP 198.51.100.77", "ExternalIP 192.0.2.77", "Hostname joined")
	labels(t, "joined", map[string]string{"topology.kubernetes.io/zone": "rack1", "one": "x"})
	calm(t, 3*time.Second)
	must(t, bare(get(t, s)))
	if tried := serviceAttempts(t, mark); len(tried) > 0 {
		t.Errorf("it writes to Services:\n%s", tried)
	}
	complaints()
}

// complaint tells whether a line of a log is a warning or an error, in the
// format of klog or in that of slog. How quickly a Lease could be renewed is the
// machine's business.
func complaint(line string) bool {
	if strings.Contains(line, " leaderelection.go:") {
		return false
	}
	return strings.HasPrefix(line, "W") || strings.HasPrefix(line, "E") ||
		strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")
}

// The value that belongs to the kubelet is refused, and what to do is said.
func TestExternalIsForTheKubelet(t *testing.T) {
	out, err := installed.Command(bounded(t), "--cloud-provider=external", "--kubeconfig", cluster.AdminKubeconfig())
	if err == nil || !strings.Contains(out, "is for the kubelet") || !strings.Contains(out, "leave the flag out") {
		t.Errorf("%v: %s", err, out)
	}
}

// A Node that joined without the taint is left as it is, until somebody adds
// the taint.
func TestNodeWithoutTheTaintIsBroughtUnderManagement(t *testing.T) {
	atRest(t)
	bare := registered("joined", "198.51.100.77")
	bare.Spec.Taints = nil
	nodes := cluster.Client().CoreV1().Nodes()
	_, err := nodes.Create(bounded(t), bare, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), "joined", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(5 * time.Second) // longer than any Node had to wait
	if n := node(t, "joined"); n.Spec.ProviderID != "" {
		t.Errorf("not asked for, it has the providerID %q", n.Spec.ProviderID)
	}
	_, err = cluster.Kubectl(bounded(t), "taint", "node", "joined", cloudTaint+"=true:NoSchedule")
	must(t, err)
	initialized(t, "joined")
	if n := node(t, "joined"); n.Spec.ProviderID != "baremetal://joined" {
		t.Errorf("its providerID is %q", n.Spec.ProviderID)
	}
}

// A kubelet that gets a second --node-ip later has a Node with both addresses:
// at the latest five minutes later, and at once when a CCM starts.
func TestB158SecondStackIsAddedLater(t *testing.T) {
	atRest(t)
	join(t, "joined", "198.51.100.77")
	initialized(t, "joined")
	nodes := cluster.Client().CoreV1().Nodes()
	// As the kubelet does: it restarts with both, and leaves the status to us.
	patch := `{"metadata":{"annotations":{"alpha.kubernetes.io/provided-node-ip":"198.51.100.77,2001:db8:51::77"}}}`
	_, err := nodes.Patch(bounded(t), "joined", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	restartCCMs(t, 2)
	want := []string{"198.51.100.77", "2001:db8:51::77"}
	eventually(t, "both addresses", func(context.Context) error {
		var got []string
		for _, a := range node(t, "joined").Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				got = append(got, a.Address)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %q, want %q", got, want)
		}
		return nil
	})
}

// A cluster that manages itself has the hosts beside the CCM, and needs no
// kubeconfig.
func TestB159HostsInTheSameCluster(t *testing.T) {
	atRest(t)
	serveHosts(t, cluster.Kubectl)
	overlay(t, "metal3")
	restore(t)
	client := hostsOf(t, cluster.RESTConfig())
	put(t, client, host{name: "host-self", consumer: [2]string{"Metal3Machine", "joined"}})
	enforce(t, strings.Replace(fmt.Sprintf(metal3, false, "nothing"), "kubeconfigSecret: nothing, ", "", 1))
	join(t, "joined", "198.51.100.77")
	initialized(t, "joined")
	if n := node(t, "joined"); n.Spec.ProviderID != "metal3://hosts/host-self/joined" {
		t.Errorf("its providerID is %q", n.Spec.ProviderID)
	}
	labels(t, "joined", map[string]string{"rack": "a7", "topology.kubernetes.io/region": "dc1"})
	must(t, client.Resource(hostResource).Namespace(hostNamespace).Delete(bounded(t), "host-self", metav1.DeleteOptions{}))
}
