package cloudprovider

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// A cluster of Nodes under the framework's own controllers and our Labeller,
// in a bubble: the framework's periods cost nothing there.
type nodeCluster struct {
	*Provider
	t        *testing.T
	ctx      context.Context
	client   *fake.Clientset
	events   *record.FakeRecorder
	balancer *service.Balancer
}

// inBubble runs a test with Nodes that exist from the beginning.
func inBubble(t *testing.T, test func(t *testing.T, c *nodeCluster), nodes ...*v1.Node) {
	t.Helper()
	// The second handler slows errors down by a clock that all tests share,
	// those outside of bubbles too.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = handlers[:1]
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset()
		shared := informers.NewSharedInformerFactory(client, 0)
		events := record.NewFakeRecorder(1000)
		balancer := service.NewBalancer(func(string) map[string]string { return nil })
		c := &nodeCluster{Provider: forNodes(client, shared, events, balancer), t: t, ctx: ctx, client: client, events: events, balancer: balancer}
		for _, n := range nodes {
			c.create(n)
		}
		c.start(shared)
		defer func() {
			cancel()
			shared.Shutdown()
			synctest.Wait()
		}()
		test(t, c)
	})
}

// start runs what the binary runs, without the leader election.
func (c *nodeCluster) start(shared informers.SharedInformerFactory) {
	c.t.Helper()
	if err := c.follow(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	if err := c.labels.Watch(); err != nil {
		c.t.Fatal(err)
	}
	nodes := &kicked{NodeInformer: shared.Core().V1().Nodes()}
	c.instances.OnChange(nodes.kick)
	initializer, err := node.NewCloudNodeController(nodes, c.client, c, 5*time.Minute, 1, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	lifecycle, err := nodelifecycle.NewCloudNodeLifecycleController(shared.Core().V1().Nodes(), c.client, c, 5*time.Second, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	metrics := controllersmetrics.NewControllerManagerMetrics("test")
	shared.Start(c.ctx.Done())
	go initializer.RunWithContext(c.ctx, metrics)
	go lifecycle.Run(c.ctx, metrics)
	go c.labels.Run(c.ctx)
	c.settle(time.Second)
}

// settle lets time pass, and then everything come to rest.
func (c *nodeCluster) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *nodeCluster) configure(nodes string) {
	c.t.Helper()
	read, err := config.Load([]byte(config.Smallest + nodes))
	if err != nil {
		c.t.Fatal(err)
	}
	c.instances.Apply(read)
	c.settle(time.Second)
}

func (c *nodeCluster) create(n *v1.Node) {
	c.t.Helper()
	if _, err := c.client.CoreV1().Nodes().Create(c.ctx, n, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// get returns a Node, nil if it was deleted.
func (c *nodeCluster) get(name string) *v1.Node {
	c.t.Helper()
	n, err := c.client.CoreV1().Nodes().Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return n
}

// writes returns the writes to Nodes since the last call.
func (c *nodeCluster) writes() []string {
	var out []string
	for _, a := range c.client.Actions() {
		if verb := a.GetVerb(); a.GetResource().Resource == "nodes" && !slices.Contains([]string{"get", "list", "watch"}, verb) {
			out = append(out, strings.TrimSuffix(verb+" "+a.GetSubresource(), " "))
		}
	}
	c.client.ClearActions()
	return out
}

func (c *nodeCluster) told() []string {
	var out []string
	for {
		select {
		case e := <-c.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// registered is a Node as its kubelet registers it with --cloud-provider=external.
func registered(name, ips string) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), CreationTimestamp: longAgo,
			Labels:      map[string]string{v1.LabelHostname: name},
			Annotations: map[string]string{"alpha.kubernetes.io/provided-node-ip": ips},
		},
		Spec: v1.NodeSpec{Taints: []v1.Taint{
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule},
		}},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: longAgo}}},
	}
	for ip := range strings.SplitSeq(ips, ",") {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: name})
	return n
}

// Bubbles begin with the year 2000.
var longAgo = metav1.NewTime(time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC))

// silent is a Node that was initialized, and has not been Ready for a day.
func silent(name, providerID string) *v1.Node {
	n := registered(name, "198.51.100.11")
	n.Spec = v1.NodeSpec{ProviderID: providerID}
	n.Status.Conditions[0].Status = v1.ConditionUnknown
	return n
}

const inventory = `nodes:
  inventory:
  - {name: n1, providerID: "baremetal://rack1-u7", addresses: [203.0.113.7], zone: rack1, region: dc1, instanceType: r650, labels: {rack: a7}}
`

func TestUpstreamNodeControllerInitializesANode(t *testing.T) {
	n1 := registered("n1", "198.51.100.11")
	n1.Spec.Taints = append(n1.Spec.Taints, v1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: v1.TaintEffectNoSchedule})
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		if n := c.get("n1"); len(n.Spec.Taints) != 2 || len(c.told()) > 0 {
			t.Fatalf("before there is a configuration: taints %v", n.Spec.Taints)
		}
		c.configure(inventory) // kicks: nothing else would, as the Node does not change
		n := c.get("n1")
		if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "node.cluster.x-k8s.io/uninitialized" {
			t.Errorf("B-157: taints are %v", n.Spec.Taints)
		}
		if n.Spec.ProviderID != "baremetal://rack1-u7" {
			t.Errorf("providerID is %q", n.Spec.ProviderID)
		}
		for key, want := range map[string]string{
			"topology.kubernetes.io/zone": "rack1", "failure-domain.beta.kubernetes.io/zone": "rack1", "topology.kubernetes.io/region": "dc1",
			"node.kubernetes.io/instance-type": "r650", "rack": "a7", v1.LabelHostname: "n1",
		} {
			if n.Labels[key] != want {
				t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
			}
		}
		want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "198.51.100.11"}, {Type: v1.NodeExternalIP, Address: "203.0.113.7"}, {Type: v1.NodeHostName, Address: "n1"}}
		if !slices.Equal(n.Status.Addresses, want) {
			t.Errorf("B-158: addresses are %v", n.Status.Addresses)
		}
	}, n1)
}

// The framework patches the status of a Node with two addresses of one type
// each time that it looks, unless it is answered with none.
func TestSteadyStateWritesNothingOnDualStackNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		c.configure(inventory)
		c.writes()
		c.settle(time.Hour)
		if w := c.writes(); len(w) > 0 {
			t.Errorf("in an hour: %v", w)
		}
	}, registered("n1", "198.51.100.11,2001:db8:51::11"), registered("n2", "2001:db8:51::12,198.51.100.12"))
}

// own is a Node that joined without the taint and whose kubelet manages its
// addresses, one of them in a pool.
func own(name string) *v1.Node {
	n := registered(name, "192.0.2.100,2001:db8:51::11")
	delete(n.Annotations, "alpha.kubernetes.io/provided-node-ip")
	n.Spec.Taints = nil
	return n
}

// What the Node loses the allocator gives out.
func TestPoolTakesNoAddressFromItsNode(t *testing.T) {
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		ready(t, c.balancer, 100)
		c.configure("")
		c.writes()
		c.settle(time.Hour)
		if w := c.writes(); len(w) > 0 {
			t.Errorf("in an hour: %v", w)
		}
		if got := c.get("n1").Status.Addresses; len(got) != 3 {
			t.Errorf("addresses are %v", got)
		}
	}, own("n1"))
}

// A kubelet that finds an address of a Service on a link takes it for the Node's.
func TestAddressOfAServiceIsTakenOffTheNode(t *testing.T) {
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		c.configure("")
		c.settle(10 * time.Minute)
		if got := c.get("n1").Status.Addresses; len(got) != 3 {
			t.Errorf("before it is known what Services hold, addresses are %v", got)
		}
		ready(t, c.balancer, 100)
		svc := lb("vip")
		svc.Annotations = map[string]string{"ccm-baremetal.io/addresses": "192.0.2.100"}
		if _, err := c.balancer.Decide(svc, time.Now()); err != nil {
			t.Fatal(err)
		}
		c.settle(10 * time.Minute)
		if got := c.get("n1").Status.Addresses; len(got) != 2 || got[0].Address != "2001:db8:51::11" {
			t.Errorf("addresses are %v", got)
		}
	}, own("n1"))
}

func TestSecondStackIsAddedLater(t *testing.T) {
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		c.configure("")
		n := c.get("n1")
		n.Annotations["alpha.kubernetes.io/provided-node-ip"] = "198.51.100.11,2001:db8:51::11"
		if _, err := c.client.CoreV1().Nodes().Update(c.ctx, n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.settle(6 * time.Minute)
		var got []string
		for _, a := range c.get("n1").Status.Addresses {
			got = append(got, a.Address)
		}
		if !slices.Equal(got, []string{"198.51.100.11", "2001:db8:51::11", "n1"}) {
			t.Errorf("addresses are %v", got)
		}
	}, registered("n1", "198.51.100.11"))
}

func TestLabelsFollowTheConfiguration(t *testing.T) {
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		c.configure(inventory)
		c.configure("nodes: {inventory: [{name: n1, zone: rack2, labels: {disk: nvme}}]}\n")
		n := c.get("n1")
		if n.Labels["topology.kubernetes.io/zone"] != "rack2" || n.Labels["failure-domain.beta.kubernetes.io/zone"] != "rack2" || n.Labels["disk"] != "nvme" {
			t.Errorf("labels are %v", n.Labels)
		}
		if _, ok := n.Labels["rack"]; ok {
			t.Errorf("a label that nobody speaks of any more is still there: %v", n.Labels)
		}
		if n.Labels["topology.kubernetes.io/region"] != "dc1" || n.Spec.ProviderID != "baremetal://rack1-u7" {
			t.Errorf("what nobody has changed has changed: %v, %s", n.Labels, n.Spec.ProviderID)
		}
		c.writes()
		c.settle(time.Hour)
		if w := c.writes(); len(w) > 0 {
			t.Errorf("in an hour: %v", w)
		}
	}, registered("n1", "198.51.100.11"))
}

func TestB155NothingUnknownIsDeleted(t *testing.T) {
	fresh := registered("n9", "198.51.100.19") // not Ready from the start, and without a providerID
	fresh.Status.Conditions = nil
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		for _, document := range []string{
			"nodes: {deleteGone: true, goneAfter: 10s}\n", // an empty inventory
			"nodes: {deleteGone: true, goneAfter: 10s, inventory: [{name: else, decommissioned: true}]}\n",
			"nodes: {deleteGone: true, goneAfter: 10s, source: metal3, metal3: {namespace: hosts, kubeconfigSecret: absent, onMissingHost: delete}}\n", // and unreadable
		} {
			c.configure(document)
			c.settle(time.Hour)
		}
		if w := c.writes(); slices.Contains(w, "delete") {
			t.Errorf("writes: %v", w)
		}
		if n := c.get("foreign"); n == nil || n.Spec.ProviderID != "other://x" || len(n.Labels) != 1 {
			t.Errorf("the Node of another provider was touched: %+v", n)
		}
	}, silent("foreign", "other://x"), silent("host", "metal3://hosts/host/m"), silent("ours", "baremetal://ours"), silent("none", ""), fresh)
}

func TestDecommissionedNodeIsDeletedIfThatIsAllowed(t *testing.T) {
	decommissioned := "inventory: [{name: n1, decommissioned: true}, {name: n2, decommissioned: true}, {name: n3, decommissioned: true}]"
	ready := silent("n3", "baremetal://n3")
	ready.Status.Conditions[0].Status = v1.ConditionTrue
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		c.configure("nodes: {" + decommissioned + "}\n")
		c.settle(time.Hour)
		if w := c.writes(); slices.Contains(w, "delete") {
			t.Errorf("without deleteGone: %v", w)
		}
		if told := c.told(); len(told) != 2 || !strings.Contains(told[0], "PossibleNodeDeletion") {
			t.Errorf("told %q", told)
		}
		c.configure("nodes: {deleteGone: true, " + decommissioned + "}\n")
		c.settle(9 * time.Minute)
		if got := len(slices.DeleteFunc(c.writes(), func(w string) bool { return w != "delete" })); got != 1 {
			t.Errorf("%d deletions within ten minutes, want one", got)
		}
		c.settle(10 * time.Minute)
		if c.get("n1") != nil || c.get("n2") != nil || c.get("n3") == nil {
			t.Error("not just the two that are not Ready are gone")
		}
	}, silent("n1", "baremetal://n1"), silent("n2", "baremetal://n2"), ready)
}

func TestNodeWithoutAddressSaysSoOnce(t *testing.T) {
	n := registered("n1", "198.51.100.11")
	delete(n.Annotations, "alpha.kubernetes.io/provided-node-ip")
	n.Status.Addresses = n.Status.Addresses[1:]
	inBubble(t, func(t *testing.T, c *nodeCluster) {
		c.configure("")
		c.settle(2 * time.Hour)
		told := c.told()
		if len(told) != 1 || !strings.Contains(told[0], "NodeNotInitialized") || !strings.Contains(told[0], "--node-ip") {
			t.Errorf("told %q", told)
		}
		c.configure("nodes: {inventory: [{name: n1, addresses: [198.51.100.11]}]}\n")
		if n := c.get("n1"); len(n.Spec.Taints) != 0 {
			t.Errorf("with an address it still has the taints %v", n.Spec.Taints)
		}
	}, n)
}
