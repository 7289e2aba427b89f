package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// How NodeLifecycle is set up.
const (
	heartbeatInterval = time.Second

	// NodeGracePeriod is how long a Node stays Ready without a heartbeat.
	NodeGracePeriod = 6 * time.Second
)

const (
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	providedNodeIP     = "alpha.kubernetes.io/provided-node-ip"
)

// createNodes makes the Node objects, as each node's kubelet would.
func (l *Lab) createNodes(ctx context.Context) error {
	for _, h := range l.Nodes() {
		if err := l.createNode(ctx, h); err != nil {
			return fmt.Errorf("node %s: %w", h.Name, err)
		}
		if !l.state.NodeLifecycle {
			continue
		}
		if _, err := l.startOwn(h.Name, "heartbeat", l.state.Binaries[nodeProgram], "heartbeat",
			"-server", l.server(), "-node", h.Name, "-interval", heartbeatInterval.String(),
			"-ca", l.pki(caCert), "-token", l.pki(h.Name+".token")); err != nil {
			return err
		}
	}
	return nil
}

// createNode patches instead of updating: controllers write to a new Node too.
func (l *Lab) createNode(ctx context.Context, h Host) error {
	want := l.nodeObject(h)
	nodes := l.client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, want, metav1.CreateOptions{}); err != nil {
		return err
	}
	// Admission has added the taint of a node that is not ready, and without
	// the node lifecycle controller nobody else takes it away.
	taints, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": want.Spec.Taints}})
	if err != nil {
		return err
	}
	if _, err := nodes.Patch(ctx, h.Name, types.MergePatchType, taints, metav1.PatchOptions{}); err != nil {
		return err
	}
	status, err := json.Marshal(map[string]any{"status": nodeStatus(h)})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, h.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

func (l *Lab) nodeObject(h Host) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.Name,
			Labels: map[string]string{
				corev1.LabelHostname:   h.Name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: h.PodsV4.String(), PodCIDRs: []string{h.PodsV4.String(), h.PodsV6.String()}},
	}
	if l.state.Uninitialized {
		node.Annotations = map[string]string{providedNodeIP: h.IPv4.String() + "," + h.IPv6.String()}
		node.Spec.Taints = []corev1.Taint{{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	return node
}

func nodeStatus(h Host) corev1.NodeStatus {
	now := metav1.Now()
	return corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: h.IPv4.String()},
			{Type: corev1.NodeInternalIP, Address: h.IPv6.String()},
			{Type: corev1.NodeHostName, Address: h.Name},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: Version},
	}
}

// SetNodeReady writes the Ready condition of a Node. With NodeLifecycle the
// node's heartbeat sets it right again.
func (l *Lab) SetNodeReady(ctx context.Context, node string, ready bool) error {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"SetByLab","lastTransitionTime":%q}]}}`,
		conditionStatus(ready), time.Now().UTC().Format(time.RFC3339))
	_, err := l.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set node %s ready=%v: %w", node, ready, err)
	}
	return nil
}

func conditionStatus(ready bool) corev1.ConditionStatus {
	if ready {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// EditNode changes a Node: labels, taints, annotations. It tries again when
// somebody else was faster.
func (l *Lab) EditNode(ctx context.Context, name string, edit func(*corev1.Node)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(node)
		_, err = l.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("edit node %s: %w", name, err)
	}
	return nil
}
