package product

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

const (
	probeEvery  = time.Second
	probeWithin = time.Second
)

// probe does until ctx ends what kubelets do for the pods of the announcers'
// DaemonSet: it asks each announcer whether it is ready and writes the answer
// into the condition of its node's pod, if it is another one. The controllers
// of the lab make these pods and count those that are ready; the processes run
// beside them. Errors pass: it tries again.
func (p *Product) probe(ctx context.Context) {
	for ctx.Err() == nil {
		pods, err := p.Lab.Client().CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: p.pods})
		if err == nil {
			for i := range pods.Items {
				p.probePod(ctx, &pods.Items[i])
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(probeEvery):
		}
	}
}

func (p *Product) probePod(ctx context.Context, pod *corev1.Pod) {
	node := NodeOf(pod)
	if ready := p.answersReady(ctx, node); ready != isReady(pod) {
		_ = p.Lab.SetPodReady(ctx, lab.Pod{Namespace: pod.Namespace, Name: pod.Name, Node: node}, ready) // again in a second
	}
}

// answersReady tells whether a node's announcer runs and says that it is ready.
func (p *Product) answersReady(ctx context.Context, node string) bool {
	process := p.Announcer(node)
	if process == nil || !process.Running() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	_, err := p.Lab.Get(ctx, node, readyURL())
	return err == nil
}

func readyURL() string { return fmt.Sprintf("http://127.0.0.1:%d/readyz", HTTPPort) }

// NodeOf returns the node that a pod of a DaemonSet is meant for: without a
// scheduler it is not bound to it.
func NodeOf(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pod.Spec.NodeName
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return pod.Spec.NodeName
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
