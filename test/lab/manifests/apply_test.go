package manifests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/expect"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// An overlay is a directory for kustomize.
type overlay struct {
	programs  bool   // it holds the programs, and not only rights
	namespace string // which has to be there before
}

// overlays are all that there are.
var overlays = map[string]overlay{
	"base": {programs: true}, "bgp": {programs: true}, "bgp-frr": {programs: true}, "example": {programs: true}, "lb-only": {programs: true},
	"bgp-frr-k8s":  {programs: true, namespace: frrNamespace},
	"delete-nodes": {},
	"metal3":       {},
}

// frrNamespace is where frr-k8s is, and what our accounts may do there.
const frrNamespace = "frr-k8s-system"

// elsewhere are the manifests that no API server of a workload cluster without
// add-ons takes, and who judges them.
var elsewhere = map[string]string{
	"capi":       "templates with variables, and the kinds of Cluster API and Metal3, HelmChartProxy among them: tools/templates decodes them strictly",
	"kubeadm":    "read by kubeadm, whose own validation test/lab/kubeadm asks",
	"monitoring": "read by Prometheus and Grafana, not by an API server: tools/monitoring",
	"chart":      "the templates of what is applied below",
}

func TestEveryDirectoryOfManifestsIsJudged(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(root, "manifests"))
	expect.Must(t, err)
	for _, e := range entries {
		_, applied := overlays[e.Name()]
		_, err := os.Stat(filepath.Join(root, "manifests", e.Name(), "kustomization.yaml"))
		if built := err == nil; built != applied || !built && elsewhere[e.Name()] == "" {
			t.Errorf("manifests/%s: nobody has thought of it here", e.Name())
		}
	}
}

func TestOverlaysAreApplied(t *testing.T) {
	for name, o := range overlays {
		dir := filepath.Join(root, "manifests", name)
		if _, err := os.Stat(dir); err != nil {
			continue // judged above
		}
		t.Run(name, func(t *testing.T) {
			if o.namespace != "" {
				makeNamespace(t, o.namespace)
			}
			apply(t, "-k", dir)
			if o.programs {
				running(t, product.Namespace)
			}
		})
	}
}

// The chart with values that change what objects there are, and with all others.
// Without any it makes what is applied above (tools/install compares them).
func TestChartIsApplied(t *testing.T) {
	for name, c := range map[string]struct{ namespace, frrK8s, values string }{
		"more rights": {product.Namespace, "", "nodes: {delete: true, metal3: {enabled: true}}\nbgp: {passwordSecrets: [bgp-tor]}"},
		"frr":         {product.Namespace, "", "bgp: {backend: frr, passwordSecrets: [bgp-tor], frr: {image: registry.test/frr:v9}}"},
		"frr-k8s":     {product.Namespace, frrNamespace, "bgp: {frrK8s: {enabled: true, passwordSecrets: [bgp-tor]}}"},
		"its frr-k8s": {"elsewhere", "metallb", "bgp: {frrK8s: {enabled: true, namespace: metallb}}"},
		"rehearsal":   {product.Namespace, "", "observeOnly: true"},
		"elsewhere":   {"elsewhere", "", "podDisruptionBudget: false\nnetworkPolicy: false"},
		"everything": {product.Namespace, "", `
image: {registry: registry.test, tag: v9, pullPolicy: Always, pullSecrets: [pull]}
config: "apiVersion: ccm-baremetal.io/v1alpha1\nkind: CloudConfig\npools: [{addresses: [203.0.113.1]}]\n"
ccm: {replicas: 3, extraArgs: [--v=4], resources: {limits: {memory: 256Mi}}}
announcer: {maxUnavailable: 3, extraArgs: [--log-level=debug], nodeSelector: {kubernetes.io/os: linux}, resources: {limits: {memory: 96Mi}}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.namespace != product.Namespace {
				makeNamespace(t, c.namespace)
			}
			if c.frrK8s != "" {
				makeNamespace(t, c.frrK8s)
			}
			apply(t, "-f", rendered(t, c.namespace, c.values))
			running(t, c.namespace)
		})
	}
}

// What is applied is held to the API server's schemas: a key that it does not know
// is an error, and not left out.
func TestUnknownKeysAreRefused(t *testing.T) {
	path := rendered(t, product.Namespace, "{}")
	text, err := os.ReadFile(path)
	expect.Must(t, err)
	wrong := strings.Replace(string(text), "readOnlyRootFilesystem:", "readOnlyRootFileSystem:", 1)
	expect.Must(t, os.WriteFile(path, []byte(wrong), 0o600))
	out, err := cluster.Kubectl(expect.Bounded(t), "apply", "--dry-run=server", "--validate=strict", "-f", path)
	if err == nil || !strings.Contains(fmt.Sprint(out, err), `unknown field "spec.template.spec.containers[0].securityContext.readOnlyRootFileSystem"`) {
		t.Errorf("a key that does not exist: %v\n%s", err, out)
	}
}

// apply has the API server judge objects strictly, makes them, and deletes them
// after the test. A warning of the API server is an error here.
func apply(t *testing.T, objects ...string) {
	t.Helper()
	out, err := cluster.Kubectl(expect.Bounded(t), append([]string{"apply", "--validate=strict"}, objects...)...)
	expect.Must(t, err)
	if strings.Contains(out, "Warning") {
		t.Errorf("the API server warns:\n%s", out)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
		defer cancel()
		if _, err := cluster.Kubectl(ctx, append([]string{"delete"}, objects...)...); err != nil {
			t.Error(err)
		}
	})
}

// makeNamespace makes one as docs/security.md says.
func makeNamespace(t *testing.T, name string) {
	t.Helper()
	namespaces := cluster.Client().CoreV1().Namespaces()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn": "privileged",
	}}}
	expect.Eventually(t, "the namespace "+name, func(ctx context.Context) error { // one of an earlier test may be on its way out
		_, err := namespaces.Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		if err := namespaces.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// A program that is given a flag which it does not have says so and ends, or what
// running has looked for would mean nothing.
func TestUnknownFlagsAreRefused(t *testing.T) {
	for _, program := range []string{product.CCM, product.Announcer} {
		if out, err := helped(t, program, "--no-such-flag"); err == nil || !strings.Contains(fmt.Sprint(out, err), "unknown flag: --no-such-flag") {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
	}
}

// helped runs a program by the arguments of its pods and --help: it reads all of
// them, and does nothing.
func helped(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	return cluster.Run(expect.Bounded(t), lab.ControlPlane, slices.Concat([]string{filepath.Join(programs, program)}, args, []string{"--help"})...)
}

// running waits until the controllers of Kubernetes have made all pods of both
// programs, so that neither quota, priority class nor Pod Security refuses one, and
// checks that the programs know the flags in them, and that the API server finds no
// fault in the expressions of the policy.
func running(t *testing.T, namespace string) {
	t.Helper()
	client := cluster.Client()
	deployment, err := client.AppsV1().Deployments(namespace).Get(expect.Bounded(t), product.CCM, metav1.GetOptions{})
	expect.Must(t, err)
	daemonSet, err := client.AppsV1().DaemonSets(namespace).Get(expect.Bounded(t), product.Announcer, metav1.GetOptions{})
	expect.Must(t, err)
	for program, pod := range map[string]corev1.PodSpec{product.CCM: deployment.Spec.Template.Spec, product.Announcer: daemonSet.Spec.Template.Spec} {
		if out, err := helped(t, program, pod.Containers[0].Args...); err != nil {
			t.Errorf("%s does not take the arguments %q: %v\n%s", program, pod.Containers[0].Args, err, out)
		}
	}
	expect.Eventually(t, "the pods of both programs", func(ctx context.Context) error {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		controllers := owned(sets.Items, deployment.UID)
		if n := count(pods.Items, controllers...); n != int(*deployment.Spec.Replicas) {
			return fmt.Errorf("%d pods of ccm-baremetal", n)
		}
		if n := count(pods.Items, daemonSet.UID); n != nodes {
			return fmt.Errorf("%d pods of announcer", n)
		}
		return nil
	})
	expect.Eventually(t, "the check of the policy's expressions", func(ctx context.Context) error {
		policy, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "ccm-baremetal-announcer", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if policy.Status.TypeChecking == nil {
			return fmt.Errorf("not checked yet")
		}
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s", w.FieldRef, w.Warning)
		}
		return nil
	})
}

func owned(sets []appsv1.ReplicaSet, by types.UID) []types.UID {
	var all []types.UID
	for _, s := range sets {
		if owner := metav1.GetControllerOf(&s); owner != nil && owner.UID == by {
			all = append(all, s.UID)
		}
	}
	return all
}

func count(pods []corev1.Pod, by ...types.UID) int {
	n := 0
	for _, p := range pods {
		if owner := metav1.GetControllerOf(&p); owner != nil && slices.Contains(by, owner.UID) {
			n++
		}
	}
	return n
}
