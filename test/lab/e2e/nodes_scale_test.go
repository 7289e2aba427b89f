package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A thousand Nodes that join at once are initialized with the flags of our
// manifests in less than a minute, and then nothing is written.
func TestThousandNodesAreInitialized(t *testing.T) {
	atRest(t)
	const n, bound = 1000, 3 * time.Minute // three times the minute, on a shared machine
	const label = "e2e.ccm-baremetal.io/many"
	client := cluster.Client().CoreV1().Nodes()
	many := metav1.ListOptions{LabelSelector: label}
	t.Cleanup(func() {
		// A minute, which a request may take, may be too short for all of them.
		eventuallyWithin(t, 10*time.Minute, "no Node to be left", func(ctx context.Context) error {
			err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, many)
			list, listErr := client.List(ctx, many)
			if listErr == nil && len(list.Items) == 0 {
				return nil
			}
			return errors.Join(err, listErr, errors.New("there are some"))
		})
	})
	began := time.Now()
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := w; i < n; i += 8 {
				made := registered(fmt.Sprintf("many-%04d", i), fmt.Sprintf("10.9.%d.%d", i/200, 1+i%200), fmt.Sprintf("2001:db8:9::%x", 1+i))
				made.Labels[label] = ""
				if _, err := client.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	created := time.Now()
	eventuallyWithin(t, 2*bound, "all to be initialized", func(ctx context.Context) error {
		list, err := client.List(ctx, many)
		if err != nil {
			return err
		}
		waiting := 0
		for _, node := range list.Items {
			if tainted(&node, cloudTaint) || node.Spec.ProviderID != "baremetal://"+node.Name {
				waiting++
			}
		}
		if waiting > 0 || len(list.Items) != n {
			return fmt.Errorf("%d of %d wait", waiting, len(list.Items))
		}
		return nil
	})
	done := time.Now()
	t.Logf("%d Nodes created in %.1f s, all initialized %.1f s later", n, created.Sub(began).Seconds(), done.Sub(created).Seconds())
	if took := done.Sub(began); took > bound {
		t.Errorf("took %.1f s, want less than 60 (three times that on a shared machine)", took.Seconds())
	}
	mark := calm(t, 5*time.Second) // events of what was done are on their way
	time.Sleep(10 * time.Second)
	log, err := cluster.Audit(mark)
	must(t, err)
	if w := log.User("kube-system/ccm-baremetal").Writes(); len(w.On("nodes"))+len(w.On("nodes/status")) > 0 {
		t.Errorf("at rest it writes:\n%s", w)
	}
}

// registered is a Node as its kubelet registers it.
func registered(name string, ips ...string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name},
			Annotations: map[string]string{"alpha.kubernetes.io/provided-node-ip": ips[0]},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: cloudTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule},
			{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}, // another project's
		}},
	}
	for i, ip := range ips {
		if i > 0 {
			node.Annotations["alpha.kubernetes.io/provided-node-ip"] += "," + ip
		}
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return node
}
