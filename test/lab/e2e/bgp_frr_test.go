package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

const frrBackendDocument = document + `advertisements:
- {name: lan, pools: [lan], layer2: {}}
- {name: tor, pools: [wide], bgp: {communities: ["64500:7"]}}
bgp:
  backend: frr
  localASN: 64500
  leavePause: 1s
  peers:
  - {name: r1, address: 198.51.100.1, asn: 64501, connectTime: 1s, passwordSecret: ` + bgpSecret + `, nodeSelector: "kubernetes.io/hostname in (n1, n2, n3)"}
`

// A Service whose sessions an FRR beside each announcer has, run as
// manifests/bgp-frr does. The tables of the router's own FRR judge.
func TestServiceByFRR(t *testing.T) {
	atRest(t)
	router := newFRR(t)
	startSidecars(t)
	givePassword(t)
	t.Cleanup(func() { forgetPassword(t) })
	defer restoreDocument(t, router) // before what the test has made goes
	defer startMissing(t)
	must(t, installed.Configure(bounded(t), frrBackendDocument))
	inForce(t, frrBackendDocument)
	serve(t, "by-frr", "web")
	vip := address(t, create(t, wideService("web", "web")))
	router.waitForwards(vip, routed...)
	reachable(t, vip)

	t.Run("NothingHappensAtRest", func(t *testing.T) { nothingHappensAtRest(t, router) })
	t.Run("B142ServicesComeAndGoWithoutAReset", func(t *testing.T) { servicesComeAndGoByFRR(t, router, vip) })
	t.Run("B137RoutesFollowARollout", func(t *testing.T) { routesFollowARollout(t, router) })
	t.Run("DrainLosesNothing", func(t *testing.T) { routedDrainLosesNothing(t, router, vip) })
	t.Run("EndLosesNothing", func(t *testing.T) { routedEndLosesNothing(t, router, vip) })
}

// wideService is a Service for pods of an app, from the pool that the router is
// told of.
func wideService(name, app string) *corev1.Service {
	s := lab.LoadBalancer("by-frr", name, app)
	s.Annotations = map[string]string{"ccm-baremetal.io/pool": "wide"}
	return s
}

// startSidecars runs on each node with a session what the overlay puts beside
// its announcer, until the test ends.
func startSidecars(t *testing.T) {
	t.Helper()
	root, err := product.Root(bounded(t))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "manifests", "bgp-frr", "frr.yaml"))
	must(t, err)
	var set appsv1.DaemonSet
	must(t, yaml.Unmarshal(text, &set))
	for _, node := range routed {
		startSidecar(t, node, filepath.Join(root, "manifests", "bgp-frr"), set.Spec.Template.Spec.InitContainers[0])
	}
}

// startSidecar runs a container of the overlay: as root with its capabilities
// and no others, its command, and its environment. Whatever runs in it ends with
// it. Its volumes are directories of the host, because the nodes of a lab share
// one file system.
func startSidecar(t *testing.T, node, scripts string, c corev1.Container) {
	t.Helper()
	own, err := os.MkdirTemp("", "frr") // a short name: it has sockets
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(own) })
	must(t, os.Chmod(own, 0o777))
	must(t, os.MkdirAll(installed.FRR(node), 0o777))
	volumes := map[string]string{"frr": installed.FRR(node), "frr-run": own, "frr-scripts": scripts}
	var mounts []string
	for _, m := range c.VolumeMounts {
		if volumes[m.Name] == "" {
			t.Fatalf("the test does not know the volume %s", m.Name)
		}
		mounts = append(mounts, m.MountPath, volumes[m.Name])
	}
	mounted := strings.NewReplacer(mounts...)
	bounding := "-all"
	for _, capability := range c.SecurityContext.Capabilities.Add {
		bounding += ",+" + strings.ToLower(string(capability))
	}
	argv := []string{"unshare", "--pid", "--fork", "--kill-child", "setpriv", "--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=" + bounding}
	for _, word := range c.Command {
		argv = append(argv, mounted.Replace(word))
	}
	var env []string
	for _, e := range c.Env {
		env = append(env, e.Name+"="+mounted.Replace(e.Value))
	}
	p, err := cluster.Start(node, "frr", argv, env)
	must(t, err)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the sidecar of %s said:\n%s", node, p.Log())
		}
	})
}

// prefixes returns what the router has been told, sorted.
func (f *frr) prefixes(ctx context.Context) ([]string, error) {
	out, err := f.show(ctx, "show bgp ipv4 unicast json")
	if err != nil {
		return nil, err
	}
	var all struct{ Routes map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("%w in %s", err, out)
	}
	found := []string{}
	for p := range all.Routes {
		found = append(found, p)
	}
	slices.Sort(found)
	return found, nil
}

// waitPrefixes waits until the router has been told of exactly some addresses.
func (f *frr) waitPrefixes(want ...netip.Addr) {
	f.t.Helper()
	var prefixes []string
	for _, a := range want {
		prefixes = append(prefixes, a.String()+"/32")
	}
	slices.Sort(prefixes)
	eventually(f.t, fmt.Sprintf("the router to be told of %v", prefixes), func(ctx context.Context) error {
		got, err := f.prefixes(ctx)
		if err == nil && !slices.Equal(got, prefixes) {
			err = fmt.Errorf("it has %v", got)
		}
		return err
	})
}

var reloadsLine = regexp.MustCompile(`(?m)^announcer_bgp_reloads_total (\d+)$`)

// reloads returns how often the FRR of each node has been given another
// configuration since the start of its announcer.
func reloads(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, n := range routed {
		page, err := cluster.Get(bounded(t), n, fmt.Sprintf("http://127.0.0.1:%d/metrics", product.HTTPPort))
		must(t, err)
		match := reloadsLine.FindStringSubmatch(page)
		if match == nil {
			t.Fatalf("%s does not count reloads", n)
		}
		found[n], err = strconv.Atoi(match[1])
		must(t, err)
	}
	return found
}

func nothingHappensAtRest(t *testing.T, router *frr) {
	sessions, updates, loads := router.waitNeighbours(routed...), router.updates(), reloads(t)
	time.Sleep(time.Duration(times(5, 600)) * time.Second)
	if now := router.updates(); fmt.Sprint(now) != fmt.Sprint(updates) {
		t.Errorf("UPDATEs while nothing changed: %v, now %v", updates, now)
	}
	if now := reloads(t); fmt.Sprint(now) != fmt.Sprint(loads) {
		t.Errorf("reloads while nothing changed: %v, now %v", loads, now)
	}
	sameSessions(t, sessions, router.waitNeighbours(routed...))
}

// Twenty Services come, Nodes are written about two hundred times with nothing
// new, and the Services go. The router is told of their addresses, of which
// nothing but their status speaks (B141), and of no others.
func servicesComeAndGoByFRR(t *testing.T, router *frr, vip netip.Addr) {
	const services, heartbeats = 20, 200
	sessions, before := router.waitNeighbours(routed...), reloads(t)
	told := []netip.Addr{vip}
	var made []*corev1.Service
	for i := range services {
		made = append(made, create(t, wideService(fmt.Sprint("web-", i), "web")))
	}
	for _, s := range made {
		told = append(told, address(t, s))
	}
	router.waitPrefixes(told...)
	for i := range heartbeats {
		heartbeat(t, routed[i%len(routed)])
	}
	router.waitPrefixes(told...)
	for _, s := range made {
		remove(t, s)
	}
	router.waitPrefixes(vip)
	after := reloads(t)
	t.Logf("reloads: %v, then %v", before, after)
	for _, n := range routed {
		if took := after[n] - before[n]; took < 2 || took > 2*services {
			t.Errorf("%d reloads on %s for %d changes", took, n, 2*services)
		}
	}
	sameSessions(t, sessions, router.waitNeighbours(routed...))
}

// heartbeat writes what a kubelet writes of a Node that is as it was.
func heartbeat(t *testing.T, node string) {
	t.Helper()
	beat := fmt.Sprintf(`{"status": {"conditions": [{"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": %q}]}}`, time.Now().UTC().Format(time.RFC3339))
	_, err := cluster.Client().CoreV1().Nodes().Patch(bounded(t), node, types.StrategicMergePatchType, []byte(beat), metav1.PatchOptions{}, "status")
	must(t, err)
}

// podsByNode are those of an app, one on a node.
type podsByNode map[string]lab.Pod

func (p podsByNode) run(t *testing.T, node string) {
	t.Helper()
	pods, err := cluster.RunPods(bounded(t), "by-frr", "rolling", node)
	must(t, err)
	p[node] = pods[0]
}

func (p podsByNode) end(t *testing.T, node string) {
	t.Helper()
	must(t, cluster.DeletePods(context.Background(), p[node]))
	delete(p, node)
}

// The pods of two Services with policy Local move from node to node, one after
// the other, and at the end they are all replaced. The router uses the nodes
// with a pod for both, and the one whose pod stays throughout.
func routesFollowARollout(t *testing.T, router *frr) {
	pods := podsByNode{}
	t.Cleanup(func() {
		for n := range pods {
			pods.end(t, n)
		}
	})
	pods.run(t, "n1")
	pods.run(t, "n2")
	var vips []netip.Addr
	for _, name := range []string{"rolling-a", "rolling-b"} {
		s := wideService(name, "rolling")
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		vips = append(vips, address(t, create(t, s)))
	}
	follow := func(want ...string) {
		t.Helper()
		for _, vip := range vips {
			router.waitForwards(vip, want...)
		}
	}
	follow("n1", "n2")
	for range times(1, 20) {
		stays := watchForward(t, router, vips, "n2")
		pods.run(t, "n3")
		follow("n1", "n2", "n3")
		pods.end(t, "n1")
		follow("n2", "n3")
		pods.run(t, "n1")
		pods.end(t, "n3")
		follow("n1", "n2")
		stays()
		pods.end(t, "n1")
		pods.end(t, "n2")
		follow()
		pods.run(t, "n1")
		pods.run(t, "n2")
		follow("n1", "n2")
	}
}

// watchForward looks again and again at which nodes the router sends packets to.
// What it returns ends that, and fails the test if a node was not always one.
func watchForward(t *testing.T, router *frr, vips []netip.Addr, node string) func() {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan string, 1)
	go func() {
		missed := ""
		for ctx.Err() == nil {
			for _, vip := range vips {
				if got, err := router.forwards(ctx, vip); err == nil && !slices.Contains(got, node) {
					missed = fmt.Sprintf("%s: the router sent packets to %v", vip, got)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		done <- missed
	}()
	return func() {
		t.Helper()
		cancel()
		if missed := <-done; missed != "" {
			t.Errorf("%s without %s", missed, node)
		}
	}
}
