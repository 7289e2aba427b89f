package source

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// machine returns a Node with InternalIPs.
func machine(name string, internal ...string) *corev1.Node {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	for _, a := range internal {
		o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return o
}

func TestConvertNode(t *testing.T) {
	now := metav1.Now()
	o := machine("n1", "192.0.2.11", "2001:db8::11")
	o.DeletionTimestamp = &now
	o.Spec.Taints = []corev1.Taint{{Key: "z", Effect: "NoExecute"}, {Key: "a", Effect: "NoSchedule"}, {Key: "z", Effect: "NoSchedule"}}
	o.Status.Addresses = append(o.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.11"},
		corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "n1.example.org"},
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "not an address"})
	o.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue},
	}
	want := node{
		Node: plan.Node{
			Name:               "n1",
			Labels:             map[string]string{corev1.LabelOSStable: "linux"},
			Addresses:          addrs("192.0.2.11", "2001:db8::11", "198.51.100.11"),
			Taints:             []string{"a", "z"},
			Deleting:           true,
			NetworkUnavailable: true,
			Ready:              true,
		},
		internal: addrs("192.0.2.11", "2001:db8::11"),
	}
	got, ok := convertNode(o)
	if !ok {
		t.Fatal("dropped")
	}
	if diff := cmp.Diff(want, got, compareNet, cmp.AllowUnexported(node{})); diff != "" {
		t.Error(diff)
	}
}

func TestHeartbeatOfANodeIsNoChange(t *testing.T) {
	beat := func(at time.Time) node {
		o := machine("n1", "192.0.2.11")
		o.ResourceVersion = at.String()
		o.Annotations = map[string]string{"example.org/seen": at.String()}
		o.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(at)},
			{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, LastHeartbeatTime: metav1.NewTime(at)},
		}
		o.Status.Images = []corev1.ContainerImage{{Names: []string{at.String()}}}
		n, _ := convertNode(o)
		return n
	}
	if diff := cmp.Diff(beat(created), beat(created.Add(time.Minute)), compareNet, cmp.AllowUnexported(node{})); diff != "" {
		t.Error(diff)
	}
}

func TestB115GossipAddress(t *testing.T) {
	n, _ := convertNode(machine("n1", "192.0.2.11", "10.9.0.11", "2001:db8::11"))
	none, _ := convertNode(machine("n2"))
	tests := []struct {
		name      string
		n         node
		advertise string
		want      string // or the error
	}{
		{"the first InternalIP", n, "", "192.0.2.11"},
		{"the one inside the prefix", n, "10.9.0.0/16", "10.9.0.11"},
		{"the one inside an IPv6 prefix", n, "2001:db8::/64", "2001:db8::11"},
		{"none inside the prefix", n, "10.8.0.0/16", "node n1 has no address inside membership.advertise 10.8.0.0/16"},
		{"no address yet", none, "", "node n2 has no InternalIP yet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var advertise netip.Prefix
			if tt.advertise != "" {
				advertise = netip.MustParsePrefix(tt.advertise)
			}
			address, err := tt.n.gossip(advertise)
			got := address.String()
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDrainAnnotation(t *testing.T) {
	for value, want := range map[string]bool{"true": true, " True ": true, "1": true, "false": false, "": false, "yes": false} {
		o := machine("n1", "192.0.2.11")
		o.Annotations = map[string]string{"ccm-baremetal.io/drain": value}
		if n, _ := convertNode(o); n.Drain != want {
			t.Errorf("%q: drain %t, want %t", value, n.Drain, want)
		}
	}
}
