package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ports on which every pod serves: HTTP answers "pod NAME on NODE" (and
// /client with the address that the pod sees as its client's), the others send
// back what they get.
const (
	PodHTTPPort = 8080
	PodTCPPort  = 8081
	PodUDPPort  = 8082
)

// AppLabel is the label by which a Service selects the pods of an app.
const AppLabel = "app"

// A Pod is a Pod object with a process behind it that serves on its addresses.
type Pod struct {
	Namespace, Name, Node string
	IPv4, IPv6            netip.Addr
}

func (p Pod) process() string { return "pod." + p.Namespace + "." + p.Name }

// RunPods runs a pod of app on each of the nodes, of which one may be named
// several times, and returns when all are Ready. The namespace is created when
// there is none.
func (l *Lab) RunPods(ctx context.Context, namespace, app string, nodes ...string) ([]Pod, error) {
	if err := l.ensureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	var pods []Pod
	for _, node := range nodes {
		p, err := l.runPod(ctx, namespace, app, node)
		if err != nil {
			return pods, fmt.Errorf("run a pod of %s/%s on %s: %w", namespace, app, node, err)
		}
		pods = append(pods, p)
	}
	return pods, nil
}

func (l *Lab) runPod(ctx context.Context, namespace, app, node string) (Pod, error) {
	p, err := l.createPod(ctx, namespace, app, node)
	if err != nil {
		return Pod{}, err
	}
	if err := ip(ctx, l.namespace(node), []string{
		fmt.Sprintf("address add %s/32 dev lo", p.IPv4),
		fmt.Sprintf("address add %s/128 dev lo nodad", p.IPv6),
	}); err != nil {
		return Pod{}, err
	}
	if _, err := l.startOwn(node, p.process(), l.state.Binaries[nodeProgram], "pod",
		"-name", p.Name, "-node", node, "-ips", p.IPv4.String()+","+p.IPv6.String()); err != nil {
		return Pod{}, err
	}
	if err := l.waitServing(ctx, p); err != nil {
		return Pod{}, err
	}
	return p, l.SetPodReady(ctx, p, true)
}

// createPod makes the object and chooses the addresses, which are then in its
// status, where the next one sees that they are taken.
func (l *Lab) createPod(ctx context.Context, namespace, app, node string) (Pod, error) {
	h, err := l.Host(node)
	if err != nil {
		return Pod{}, err
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	v4, v6, err := l.freePodAddresses(ctx, h)
	if err != nil {
		return Pod{}, err
	}
	made, err := l.client.CoreV1().Pods(namespace).Create(ctx, podObject(app, node), metav1.CreateOptions{})
	if err != nil {
		return Pod{}, err
	}
	patch := fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q},{"ip":%q}],"hostIP":%q}}`, v4, v4, v6, h.IPv4)
	_, err = l.client.CoreV1().Pods(namespace).Patch(ctx, made.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return Pod{Namespace: namespace, Name: made.Name, Node: node, IPv4: v4, IPv6: v6}, err
}

func podObject(app, node string) *corev1.Pod {
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: app + "-" + node + "-",
			Labels:       map[string]string{AppLabel: app},
		},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{
				Name: "lab", Image: "lab",
				Ports: []corev1.ContainerPort{
					{Name: "http", ContainerPort: PodHTTPPort},
					{Name: "tcp", ContainerPort: PodTCPPort},
					{Name: "udp", ContainerPort: PodUDPPort, Protocol: corev1.ProtocolUDP},
				},
			}},
		},
	}
}

// freePodAddresses returns the lowest addresses of a node that no pod has.
func (l *Lab) freePodAddresses(ctx context.Context, h Host) (v4, v6 netip.Addr, err error) {
	list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + h.Name})
	if err != nil {
		return v4, v6, err
	}
	taken := map[string]bool{}
	for _, p := range list.Items {
		taken[p.Status.PodIP] = true
	}
	v4, v6 = h.PodsV4.Addr().Next(), h.PodsV6.Addr().Next()
	for taken[v4.String()] {
		v4, v6 = v4.Next(), v6.Next()
	}
	if !h.PodsV4.Contains(v4) {
		return v4, v6, fmt.Errorf("%s is full", h.PodsV4)
	}
	return v4, v6, nil
}

func (l *Lab) waitServing(ctx context.Context, p Pod) error {
	process, _ := l.Process(p.Node, p.process())
	url := fmt.Sprintf("http://%s/", netip.AddrPortFrom(p.IPv4, PodHTTPPort))
	return l.waitFor(ctx, process, "the answer of pod "+p.Name, func(ctx context.Context) bool {
		_, err := l.Get(ctx, p.Node, url)
		return err == nil
	})
}

// SetPodReady writes the readiness of a pod, as its probe would. The process
// goes on serving.
func (l *Lab) SetPodReady(ctx context.Context, p Pod, ready bool) error {
	status := conditionStatus(ready)
	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"phase":"Running","startTime":%q,"conditions":[
		{"type":"Ready","status":%q,"lastTransitionTime":%q},
		{"type":"ContainersReady","status":%q,"lastTransitionTime":%q}]}}`, now, status, now, status, now)
	_, err := l.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set pod %s/%s ready=%v: %w", p.Namespace, p.Name, ready, err)
	}
	return nil
}

// TerminatePod marks a pod as being deleted, as `kubectl delete` with a grace
// period does: its endpoint is terminating, and still serves. DeletePods ends
// it.
func (l *Lab) TerminatePod(ctx context.Context, p Pod, grace time.Duration) error {
	seconds := int64(grace.Seconds())
	return l.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &seconds})
}

// DeletePods deletes pods at once: the objects, their processes and addresses.
// It goes on past an error.
func (l *Lab) DeletePods(ctx context.Context, pods ...Pod) error {
	var errs []error
	for _, p := range pods {
		if err := l.deletePod(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) deletePod(ctx context.Context, p Pod) error {
	now := int64(0)
	err := l.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return errors.Join(err, l.endOwn(p.Node, p.process()), ip(ctx, l.namespace(p.Node), []string{
		fmt.Sprintf("address delete %s/32 dev lo", p.IPv4),
		fmt.Sprintf("address delete %s/128 dev lo", p.IPv6),
	}))
}

// ensureNamespace also waits for what every pod needs: the namespace's default
// service account.
func (l *Lab) ensureNamespace(ctx context.Context, name string) error {
	_, err := l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return poll(ctx, "the default service account of "+name, func() (bool, error) {
		_, err := l.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}
