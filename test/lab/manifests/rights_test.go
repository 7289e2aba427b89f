package manifests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/apiproxy"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/expect"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// Both programs start without any right of their manifests, and are given each as
// soon as their log names it: so none is missed silently, none takes a restart, and
// none is named that is not missing.
func TestB168RightsThatAreMissingAtTheStartAreNamedAndUsedOnceTheyAreGiven(t *testing.T) {
	s := newStage(t)
	s.ccm.take(t, all)
	s.announcer.take(t, all)
	s.start(t)
	s.recovers(t, "from the start without rights")
}

// All rights are taken from programs that work, and their watches broken. What is
// announced stays announced; each right is named, and used once it is back. The one
// that the controller cannot be without is that to renew its Lease: it ends, as with
// every lost leadership, and says why.
func TestB168RightsThatAreTakenAwayAreNamedAndUsedOnceTheyAreBack(t *testing.T) {
	s := newStage(t)
	s.start(t)
	url := served(t, newWorkload(t, "b168-served").service)
	attempts := cluster.Connects(lab.Client, url, 200*time.Millisecond, 10*time.Second)
	s.ccm.take(t, whileRunning)
	s.announcer.take(t, whileRunning)
	s.ccm.proxy.Break()
	s.announcer.proxy.Break()
	s.recovers(t, "from the loss of rights")

	s.ccm.take(t, func(r *right) bool { return r.Resource == "leases" && r.Verb == "update" })
	if err := s.ccm.runs[0].Wait(expect.Bounded(t)); s.ccm.runs[0].Running() {
		t.Errorf("the controller goes on without the right to renew its Lease: %v", err)
	}
	if missing := s.ccm.unnamed(); len(missing) > 0 {
		t.Errorf("the controller ends and does not say that it lacks %q", missing)
	}
	if failed := attempts.Stop().Failed(); len(failed) > 0 {
		t.Errorf("requests to an address that was announced failed meanwhile:\n%s", failed)
	}
	for _, r := range s.announcer.runs {
		if !r.Running() {
			t.Errorf("the announcer on %s has ended", r.Host)
		}
	}
}

func all(*right) bool { return true }

// whileRunning picks the rights that a program uses again once it has started: not
// those to make what is there by now, to learn which cluster this is, and, with an
// end of its own, to lead.
func whileRunning(r *right) bool {
	made := r.Verb == "create" && (r.Resource == "configmaps" || r.Resource == "secrets")
	return !made && r.Resource != "leases" && !(r.Verb == "get" && r.Resource == "namespaces")
}

// stage is an installation of a controller and an announcer on each node, both
// programs behind proxies and confined to the rights that are left to them.
type stage struct {
	installed      *product.Product
	ccm, announcer *confined
	swings         workload // whose endpoint comes and goes
	stirred        int
}

// newStage applies manifests/base and starts nothing.
func newStage(t *testing.T) *stage {
	t.Helper()
	forget(t)
	t.Cleanup(func() { forget(t) })
	apply(t, "-k", filepath.Join(root, "manifests", "base"))
	p, err := product.Install(t.Context(), cluster, product.Options{CCMs: -1, Nodes: []string{}, Config: trialDocument(0), Out: t.Output()})
	expect.Must(t, err)
	s := &stage{installed: p, ccm: confine(t, product.CCM), announcer: confine(t, product.Announcer)}
	t.Cleanup(func() { expect.Must(t, p.Stop(context.Background())) })
	t.Cleanup(func() {
		if t.Failed() {
			s.ccm.show(t)
			s.announcer.show(t)
		}
	})
	return s
}

// start starts both programs, and makes what they have work with.
func (s *stage) start(t *testing.T) {
	t.Helper()
	s.ccm.start(t, s.installed.CCM(0), func() (*lab.Process, error) {
		// The framework looks at addresses of Nodes again after five minutes only.
		return s.installed.StartCCMBy(s.ccm.kubeconfig, 0, "--node-status-update-frequency=2s")
	})
	for _, n := range cluster.Nodes() {
		s.announcer.start(t, s.installed.Announcer(n.Name), func() (*lab.Process, error) {
			return s.installed.StartAnnouncerBy(s.announcer.kubeconfig, n.Name)
		})
	}
	s.swings = newWorkload(t, "b168-swings")
}

// recovers has both programs do all that they have rights for until each right that
// was taken from them has been named, given and used. None is named that was not
// missing.
func (s *stage) recovers(t *testing.T, what string) {
	t.Helper()
	begin := time.Now()
	uninitialized(t)
	turn := 0
	expect.Within(t, 5*time.Minute, "the recovery "+what, func(context.Context) error {
		if turn%10 == 0 {
			s.stir(t)
		}
		turn++
		return errors.Join(s.ccm.learn(t), s.announcer.learn(t))
	})
	s.ccm.proxy.Set()
	for _, c := range []*confined{s.ccm, s.announcer} {
		t.Logf("%s recovered %s in %.1f s", c.name, what, time.Since(begin).Seconds())
		c.report(t, begin)
		if named := c.unfounded(); len(named) > 0 {
			t.Errorf("%s names rights that it did not lack: %q", c.name, named)
		}
	}
}

// stir causes what takes rights: a document to accept and a label to write, somebody
// to ask the API server about, a Service to give an address to, for every other one a
// write that conflicts with another, and an endpoint that comes and goes.
func (s *stage) stir(t *testing.T) {
	t.Helper()
	s.stirred++
	n := s.stirred
	expect.Must(t, s.installed.Configure(expect.Bounded(t), trialDocument(n)))
	bearer := token(t, "default", "default")
	url := fmt.Sprintf("https://127.0.0.1:%d/metrics", product.CCMPort)
	// It may not listen yet, and is asked again.
	_, _ = cluster.Run(expect.Bounded(t), lab.ControlPlane, "curl", "--silent", "--max-time", "1", "--insecure", "--header", "Authorization: Bearer "+bearer, url)
	var faults []apiproxy.Fault
	if n%2 == 0 {
		faults = append(faults, apiproxy.Refuse(apiproxy.Match{Verb: "patch", Resource: "services/status"}, http.StatusConflict))
	}
	s.ccm.proxy.Set(faults...)
	newService(t, "b168-passing", fmt.Sprint("web-", n))
	s.swing(t)
}

// swing takes the endpoint away once the announcer says that it announces, and puts
// it back once it says that it does not.
func (s *stage) swing(t *testing.T) {
	t.Helper()
	status, err := announced(expect.Bounded(t), s.swings.service)
	expect.Must(t, err)
	if status != "" {
		expect.Must(t, cluster.SetPodReady(expect.Bounded(t), s.swings.pod, status == metav1.ConditionFalse))
	}
}

// A workload is a Service in a namespace of its own, and the pod behind it.
type workload struct {
	service *corev1.Service
	pod     lab.Pod
}

func newWorkload(t *testing.T, namespace string) workload {
	t.Helper()
	pods, err := cluster.RunPods(expect.Bounded(t), namespace, "web", "n1")
	expect.Must(t, err)
	t.Cleanup(func() { expect.Must(t, cluster.DeletePods(context.Background(), pods...)) })
	return workload{newService(t, namespace, "web"), pods[0]}
}

// newService makes a Service that is deleted after the test.
func newService(t *testing.T, namespace, name string) *corev1.Service {
	t.Helper()
	s, err := cluster.CreateService(expect.Bounded(t), lab.LoadBalancer(namespace, name, "web"))
	expect.Must(t, err)
	t.Cleanup(func() {
		expect.Must(t, cluster.Client().CoreV1().Services(namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
	return s
}

// uninitialized makes a Node as a kubelet with an external provider does, and
// deletes it after the test.
func uninitialized(t *testing.T) {
	t.Helper()
	const name = "spare"
	nodes := cluster.Client().CoreV1().Nodes()
	_, err := nodes.Create(expect.Bounded(t), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"alpha.kubernetes.io/provided-node-ip": "198.51.100.90"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	expect.Must(t, err)
	t.Cleanup(func() { expect.Must(t, nodes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
}

// trialDocument is the configuration, in an edition of it, which a label of a Node
// is to tell.
func trialDocument(edition int) string {
	return fmt.Sprintf(`apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
membership: {settle: 0s}
pools: [{addresses: [198.51.100.120-198.51.100.199]}]
nodes: {inventory: [{name: spare, labels: {edition: "%d"}}]}
`, edition)
}

// forget deletes what the programs have made, and the configuration.
func forget(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	client := cluster.Client()
	for _, err := range []error{
		client.CoreV1().ConfigMaps(product.Namespace).Delete(ctx, product.ConfigMap, metav1.DeleteOptions{}),
		client.CoreV1().ConfigMaps(product.Namespace).Delete(ctx, product.Accepted, metav1.DeleteOptions{}),
		client.CoreV1().Secrets(product.Namespace).Delete(ctx, product.Secret, metav1.DeleteOptions{}),
		client.CoordinationV1().Leases(product.Namespace).Delete(ctx, product.Lease, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}
