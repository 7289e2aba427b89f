package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// frrK8sRelease is an frr-k8s as its Go module has it: programs, scripts and
// manifests.
type frrK8sRelease struct {
	module   string // the directory of its source
	programs string // the directory of its programs
	daemon   appsv1.DaemonSet
	startup  corev1.ConfigMap  // FRR's first configuration
	reloader map[string]string // what the reloader says, by node: a file
}

// buildFRRK8s builds the programs of its DaemonSet.
func buildFRRK8s(t *testing.T) *frrK8sRelease {
	t.Helper()
	if _, err := os.Stat(frrLibrary + "frr-reload.py"); err != nil {
		t.Fatalf("frr-k8s reloads FRR by that: %v; scripts/need installs it", err)
	}
	root, err := product.Root(t.Context())
	must(t, err)
	r := &frrK8sRelease{module: frrK8sModule(t), programs: t.TempDir(), reloader: map[string]string{}}
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", r.programs+"/",
		"github.com/metallb/frr-k8s/cmd/frr-k8s-controller", "github.com/metallb/frr-k8s/frr-tools/status")
	cmd.Dir = filepath.Join(root, "tools", "frrk8s")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build frr-k8s: %v: %s", err, out)
	}
	return r
}

// leftOut are the kinds of its manifests that have no part in this: its webhook,
// which sees no object before the API server's own checks do, and metrics.
var leftOut = []string{"ValidatingWebhookConfiguration", "Deployment", "Service", "Namespace"}

// install gives the API server what its manifests have, until the test ends.
func (r *frrK8sRelease) install(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.module, "config/all-in-one/frr-k8s.yaml"))
	must(t, err)
	var kept [][]byte
	for _, object := range bytes.Split(fitting(text), []byte("\n---\n")) {
		var kind metav1.TypeMeta
		must(t, yaml.Unmarshal(object, &kind))
		switch {
		case slices.Contains(leftOut, kind.Kind):
			continue
		case kind.Kind == "DaemonSet":
			must(t, yaml.Unmarshal(object, &r.daemon))
		case kind.Kind == "ConfigMap":
			must(t, yaml.Unmarshal(object, &r.startup))
		}
		kept = append(kept, object)
	}
	path := filepath.Join(t.TempDir(), "frr-k8s.yaml")
	must(t, os.WriteFile(path, bytes.Join(kept, []byte("\n---\n")), 0o600))
	_, err = cluster.Kubectl(bounded(t), "apply", "-f", path)
	must(t, err)
	t.Cleanup(func() {
		_, err := cluster.Kubectl(bounded(t), "delete", "--ignore-not-found", "-f", path)
		must(t, err)
	})
	_, err = cluster.Kubectl(bounded(t), "wait", "--for=condition=Established", "--timeout=60s", "crd", "frrconfigurations.frrk8s.metallb.io")
	must(t, err)
}

// pod waits for the pod that the DaemonSet has for a node.
func (r *frrK8sRelease) pod(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, "a pod of frr-k8s for "+node, func(ctx context.Context) error {
		pods, err := cluster.Client().CoreV1().Pods(frrK8s).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(r.daemon.Spec.Selector)})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return product.NodeOf(&p) == node })
		if i < 0 {
			return fmt.Errorf("there are %d of others", len(pods.Items))
		}
		found = &pods.Items[i]
		return nil
	})
	return found
}

// frrK8sPod runs what the pod of a node would: all of its containers see the
// node's network and one another's processes, and the files that they share are
// where they expect them, whatever the other nodes of the lab have there.
// frr-k8s's own images are not had, but the same programs.
const frrK8sPod = `set -e
mount --make-rprivate /
cp -a /etc/. "$OWN/etc"
mount --bind "$OWN/etc" /etc
mount -t tmpfs none /run
rm -rf /etc/frr /etc/frr_reloader /etc/frr_status
install -d -o frr -g frr /etc/frr /run/frr
install -o frr -g frr -m 640 "$OWN"/startup/* /etc/frr
install -D "$RELOADER" /etc/frr_reloader/frr-reloader.sh
install -D "$STATUS" /etc/frr_status/frr-status
install -D "$CONTROLLER" /etc/frr_k8s/frr-k8s
(. /usr/lib/frr/frrcommon.sh; exec /usr/lib/frr/watchfrr $(daemon_list)) >"$OWN/frr.log" 2>&1 &
unshare --mount sh -c 'mount --bind "$OWN/tmp" /tmp; exec /etc/frr_reloader/frr-reloader.sh' >"$OWN/reloader.log" 2>&1 &
while ! vtysh -c 'show bgp summary' >/dev/null 2>&1 || [ ! -s /etc/frr_reloader/reloader.pid ]; do sleep 0.1; done
while true; do
	"$@" || true
	sleep 1
done >"$OWN/frr-k8s.log" 2>&1 &
while true; do
	/etc/frr_status/frr-status $STATUS_ARGS || true
	sleep 1
done >"$OWN/frr-status.log" 2>&1 &
wait
`

// run runs frr-k8s on a node until the test ends.
func (r *frrK8sRelease) run(t *testing.T, node string) {
	t.Helper()
	pod := r.pod(t, node)
	own, err := os.MkdirTemp("", "frr-k8s")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(own) })
	must(t, os.Chmod(own, 0o755))
	r.reloader[node] = filepath.Join(own, "reloader.log")
	for _, dir := range []string{"etc", "tmp", "startup"} {
		must(t, os.Mkdir(filepath.Join(own, dir), 0o755))
	}
	for name, text := range r.startup.Data {
		must(t, os.WriteFile(filepath.Join(own, "startup", name), []byte(text), 0o600))
	}
	kubeconfig, err := cluster.KubeconfigOn(bounded(t), node, frrK8s, pod.Spec.ServiceAccountName)
	must(t, err)
	field := strings.NewReplacer("$(NODE_NAME)", node, "$(NAMESPACE)", frrK8s, "$(POD_NAME)", pod.Name)
	argv := []string{"unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "bash", "-c", frrK8sPod, "pod",
		"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "/etc/frr_k8s/frr-k8s"}
	env := []string{
		"OWN=" + own, "KUBECONFIG=" + kubeconfig, "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"RELOADER=" + filepath.Join(r.module, "frr-tools/reloader/frr-reloader.sh"),
		"CONTROLLER=" + filepath.Join(r.programs, "frr-k8s-controller"), "STATUS=" + filepath.Join(r.programs, "status"),
	}
	for _, c := range pod.Spec.Containers {
		switch c.Name {
		case "frr-k8s":
			for _, word := range c.Args {
				argv = append(argv, field.Replace(word))
			}
			for _, e := range c.Env {
				if e.ValueFrom == nil {
					env = append(env, e.Name+"="+e.Value)
				}
			}
		case "frr-status": // it looks seldom by itself
			env = append(env, "STATUS_ARGS="+field.Replace(strings.Join(append(c.Args, "--poll-interval=5s"), " ")))
		}
	}
	p, err := cluster.Start(node, "frr-k8s", argv, env)
	must(t, err)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("frr-k8s on %s: %s", node, p.Log())
			logTails(t, own)
		}
	})
}

var reloadLine = regexp.MustCompile(`(?m)^FRR reloaded successfully! (\d+) seconds$`)

// reloads returns how long each reload of a node's FRR has taken.
func (r *frrK8sRelease) reloads(t *testing.T, node string) []time.Duration {
	t.Helper()
	text, err := os.ReadFile(r.reloader[node])
	must(t, err)
	var took []time.Duration
	for _, match := range reloadLine.FindAllSubmatch(text, -1) {
		seconds, err := strconv.Atoi(string(match[1]))
		must(t, err)
		took = append(took, time.Duration(seconds)*time.Second)
	}
	return took
}

// logTails shows what the containers of a pod have said last.
func logTails(t *testing.T, own string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(own, "*.log"))
	must(t, err)
	for _, path := range logs {
		text, err := os.ReadFile(path)
		must(t, err)
		t.Logf("%s: %s", path, text[max(0, len(text)-6000):])
	}
}

// frrK8sModule returns the directory of frr-k8s's source.
func frrK8sModule(t *testing.T) string {
	t.Helper()
	root, err := product.Root(t.Context())
	must(t, err)
	cmd := exec.Command("go", "mod", "download", "-json", "github.com/metallb/frr-k8s")
	cmd.Dir = filepath.Join(root, "tools", "frrk8s")
	out, err := cmd.Output()
	must(t, err)
	var module struct{ Dir string }
	must(t, json.Unmarshal(out, &module))
	return module.Dir
}

// fitting changes manifests of frr-k8s so that API servers since 1.37 take its
// objects: they mind the format of numbers, and AS numbers do not fit int32.
func fitting(text []byte) []byte {
	return bytes.ReplaceAll(text, []byte("format: int32"), []byte("format: int64"))
}

// routedByFRRK8s is a Service of which the router is told.
func routedByFRRK8s(name string) *corev1.Service {
	s := lab.LoadBalancer("by-frr-k8s", name, "web")
	s.Annotations = map[string]string{"ccm-baremetal.io/pool": "wide"}
	return s
}
