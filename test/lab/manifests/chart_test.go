package manifests

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
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/expect"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// In kube-system the chart makes, object by object, what the directories for
// kustomize make (tools/install), and these are what test/lab/e2e runs with. So
// what is left to run is the chart where it differs: in another namespace, with the
// configuration in its values, and with arguments of one's own.
func TestChartServesFromANamespaceOfItsOwn(t *testing.T) {
	const namespace = "lb"
	makeNamespace(t, namespace)
	objects := rendered(t, namespace, `
config: |
  apiVersion: ccm-baremetal.io/v1alpha1
  kind: CloudConfig
  membership: {settle: 0s}
  pools: [{addresses: [198.51.100.100-198.51.100.119]}]
ccm: {extraArgs: [--v=3]}
announcer: {extraArgs: [--log-level=debug]}
`)
	apply(t, "-f", objects)
	begin := time.Now()
	p, err := product.Install(t.Context(), cluster, product.Options{Rendered: objects, Namespace: namespace, Nodes: []string{"n1", "n2"}, Out: t.Output()})
	expect.Must(t, err)
	t.Cleanup(func() { expect.Must(t, p.Stop(context.Background())) })
	expect.Must(t, p.Ready(expect.Bounded(t)))
	pods, err := cluster.RunPods(expect.Bounded(t), "charted", "web", "n1", "n2")
	expect.Must(t, err)
	t.Cleanup(func() { expect.Must(t, cluster.DeletePods(context.Background(), pods...)) })
	s, err := cluster.CreateService(expect.Bounded(t), lab.LoadBalancer("charted", "web", "web"))
	expect.Must(t, err)
	t.Cleanup(func() {
		expect.Must(t, cluster.Client().CoreV1().Services(s.Namespace).Delete(context.Background(), s.Name, metav1.DeleteOptions{}))
	})
	served(t, s)
	log, err := cluster.Audit(begin)
	expect.Must(t, err)
	for _, program := range []string{product.CCM, product.Announcer} {
		mine := log.User(namespace + "/" + program)
		if len(mine) == 0 {
			t.Errorf("%s asked for nothing by its account in %s", program, namespace)
		}
		if refused := mine.Forbidden(); len(refused) > 0 {
			t.Errorf("%s was refused:\n%s", program, refused)
		}
	}
	guarded(t, namespace, s)
}

// served waits until a Service has an address that answers, and until its
// condition says so. It returns the URL.
func served(t *testing.T, s *corev1.Service) string {
	t.Helper()
	addresses, err := cluster.WaitIngress(expect.Bounded(t), s)
	expect.Must(t, err)
	url := "http://" + addresses[0].String() + "/"
	expect.Eventually(t, "a request to the Service", func(ctx context.Context) error {
		_, err := cluster.Get(ctx, lab.Client, url)
		return err
	})
	expect.Eventually(t, "the announcer's condition", func(ctx context.Context) error {
		status, err := announced(ctx, s)
		if err == nil && status != metav1.ConditionTrue {
			err = fmt.Errorf("it is %q", status)
		}
		return err
	})
	return url
}

// announced returns the status of a Service's condition Announced, empty if there
// is none.
func announced(ctx context.Context, s *corev1.Service) (metav1.ConditionStatus, error) {
	now, err := cluster.Client().CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(now.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "ccm-baremetal.io/Announced" })
	if i < 0 {
		return "", nil
	}
	return now.Status.Conditions[i].Status, nil
}

// guarded checks that the policy is about the account in a namespace: it may write
// the status, and yet not choose an address.
func guarded(t *testing.T, namespace string, s *corev1.Service) {
	t.Helper()
	config := cluster.RESTConfig()
	config.BearerToken = token(t, namespace, product.Announcer)
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	_, err = client.CoreV1().Services(s.Namespace).Patch(expect.Bounded(t), s.Name, types.MergePatchType,
		[]byte(`{"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.119"}]}}}`), metav1.PatchOptions{}, "status")
	if err == nil || !strings.Contains(err.Error(), "an announcer does not choose addresses") {
		t.Errorf("an announcer's account chose an address: %v", err)
	}
}
