package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// bgpSecret is the Secret that manifests/bgp lets announcers read.
const bgpSecret = "bgp-tor"

// routedDocument is document with a router for three of the four nodes, and for
// those with a label, to which the pools that lie in no subnet are advertised.
func routedDocument(settings string) string {
	return document + `- name: wide6
  addresses: ["2001:db8:77::/120"]
  autoAssign: false
advertisements:
- {name: lan, pools: [lan], layer2: {}}
- {name: tor, pools: [wide, wide6], bgp: {communities: ["64500:7"]}}
bgp:
  localASN: 64500
  leavePause: 2s
  peers:
  - name: r1
    address: 198.51.100.1
    asn: 64501
    families: [IPv4, IPv6]
    connectTime: 1s
    passwordSecret: ` + bgpSecret + `
    nodeSelector: ["kubernetes.io/hostname in (n1, n2, n3)", ` + routedLabel + `=true]` + settings + "\n"
}

// routedLabel is a label of nodes that have a session with the router too.
const routedLabel = "routed"

// routed are the nodes that have a session with the router.
var routed = []string{"n1", "n2", "n3"}

// A Service behind a real router: FRR, with a password from a Secret, and the
// announcers with no right but those of manifests/bgp. The router's own tables
// and the packets of a client behind it judge.
func TestRoutedService(t *testing.T) {
	atRest(t)
	router := newFRR(t)
	defer restoreDocument(t, router) // before what the test has made goes
	defer startMissing(t)
	t.Cleanup(func() { forgetPassword(t) })
	configureRoutes(t, "")
	pods := serve(t, "routed", "web")
	s := create(t, routedService("web"))
	vip := address(t, s)

	t.Run("NoSessionWithoutThePassword", func(t *testing.T) { noSessionWithoutThePassword(t, router) })
	router.waitForwards(vip, routed...)
	reachable(t, vip)
	t.Run("ExplainAndTheRouterAgree", func(t *testing.T) { toldWithCommunity(t, router, vip) })
	t.Run("LocalPolicyFollowsEndpoints", func(t *testing.T) { localPolicyFollowsEndpoints(t, router, s, vip, pods) })
	t.Run("ZeroEndpointsWithdraw", func(t *testing.T) { zeroEndpointsWithdraw(t, router, vip, pods) })
	t.Run("OneServiceIsOneUpdate", func(t *testing.T) { oneServiceIsOneUpdate(t, router) })
	t.Run("BothFamiliesOfANodeFollowItsLabel", func(t *testing.T) { routesFollowALabel(t, router, vip) })
	t.Run("Layer2ComesAndGoesBeside", func(t *testing.T) { layer2ComesAndGoes(t, router, vip) })
	t.Run("DrainLosesNothing", func(t *testing.T) { routedDrainLosesNothing(t, router, vip) })
	t.Run("EndLosesNothing", func(t *testing.T) { routedEndLosesNothing(t, router, vip) })
	t.Run("RestartLosesNothing", func(t *testing.T) { routedRestartLosesNothing(t, router, vip) })
}

// restoreDocument returns to the document of all other tests, and waits until the
// announcers have taken leave of the router.
func restoreDocument(t *testing.T, router *frr) {
	must(t, installed.Configure(context.Background(), document))
	inForce(t, document)
	router.waitNeighbours()
}

func configureRoutes(t *testing.T, settings string) {
	t.Helper()
	must(t, installed.Configure(bounded(t), routedDocument(settings)))
	inForce(t, routedDocument(settings))
}

func routedService(name string) *corev1.Service {
	s := lab.LoadBalancer("routed", name, "web")
	s.Annotations = map[string]string{"ccm-baremetal.io/pool": "wide"}
	return s
}

func noSessionWithoutThePassword(t *testing.T, router *frr) {
	eventually(t, "n1 to miss the Secret", func(ctx context.Context) error {
		out, err := installed.Ask(ctx, "n1", "bgp")
		if err == nil && !strings.Contains(out, bgpSecret) {
			err = fmt.Errorf("it says:\n%s", out)
		}
		return err
	})
	router.waitNeighbours()
	givePassword(t)
	router.waitNeighbours(routed...)
}

// givePassword makes the Secret with the router's password.
func givePassword(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: bgpSecret}, StringData: map[string]string{"password": bgpPassword}}
	_, err := cluster.Client().CoreV1().Secrets(product.Namespace).Create(bounded(t), secret, metav1.CreateOptions{})
	must(t, err)
}

// forgetPassword deletes the Secret, if there is one. The context of the test
// may have ended.
func forgetPassword(t *testing.T) {
	err := cluster.Client().CoreV1().Secrets(product.Namespace).Delete(context.Background(), bgpSecret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func toldWithCommunity(t *testing.T, router *frr, vip netip.Addr) {
	out, err := router.show(bounded(t), "show bgp ipv4 unicast "+vip.String()+"/32")
	must(t, err)
	if n := strings.Count(out, "64500:7"); n != len(routed) {
		t.Errorf("%d paths have the community, want %d:\n%s", n, len(routed), out)
	}
	said, err := installed.Ask(bounded(t), "n2", "bgp", "r1")
	must(t, err)
	if !strings.Contains(said, vip.String()+"/32 for routed/web by tor") || strings.Contains(said, bgpPassword) {
		t.Errorf("n2 says:\n%s", said)
	}
	said, err = installed.Ask(bounded(t), "n4", "bgp")
	must(t, err)
	if !strings.Contains(said, "n4 speaks with no router") {
		t.Errorf("n4 says:\n%s", said)
	}
}

// With policy Local the routers use the nodes with endpoints, and every request
// is answered by a pod of the node that it came through.
func localPolicyFollowsEndpoints(t *testing.T, router *frr, s *corev1.Service, vip netip.Addr, pods []lab.Pod) {
	defer func() { // the next part begins with this one undone
		must(t, cluster.SetPodReady(bounded(t), pods[2], true))
		patch(t, s, `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
		router.waitForwards(vip, routed...)
	}()
	must(t, cluster.SetPodReady(bounded(t), pods[2], false))
	patch(t, s, `{"spec":{"externalTrafficPolicy":"Local"}}`)
	router.waitForwards(vip, "n1", "n2")
	eventually(t, "pods of n1 and n2 alone to answer", func(ctx context.Context) error { // kube-proxies take longer
		by := map[string]int{}
		for range 30 {
			body, err := cluster.Get(ctx, lab.Client, "http://"+vip.String()+"/")
			if err != nil {
				return err
			}
			by[strings.TrimSpace(body[strings.LastIndex(body, " ")+1:])]++
		}
		if len(by) != 2 || by["n1"] == 0 || by["n2"] == 0 {
			return fmt.Errorf("answers by node: %v", by)
		}
		return nil
	})
}

func zeroEndpointsWithdraw(t *testing.T, router *frr, vip netip.Addr, pods []lab.Pod) {
	before := router.waitNeighbours(routed...)
	for _, p := range pods {
		must(t, cluster.SetPodReady(bounded(t), p, false))
	}
	router.waitForwards(vip)
	for _, p := range pods {
		must(t, cluster.SetPodReady(bounded(t), p, true))
	}
	router.waitForwards(vip, routed...)
	sameSessions(t, before, router.waitNeighbours(routed...))
	reachable(t, vip)
}

func sameSessions(t *testing.T, before, after map[string]neighbour) {
	t.Helper()
	for name, n := range before {
		if n.Port == 0 || after[name].Port != n.Port {
			t.Errorf("the session with %s was reset: %+v, now %+v", name, n, after[name])
		}
	}
}

func oneServiceIsOneUpdate(t *testing.T, router *frr) {
	sessions := router.waitNeighbours(routed...)
	before := router.updates()
	time.Sleep(time.Duration(times(5, 120)) * time.Second)
	if after := router.updates(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("UPDATEs while nothing changed: %v, now %v", before, after)
	}
	more := create(t, routedService("more"))
	a := address(t, more)
	router.waitForwards(a, routed...)
	eachOne(t, "a new Service", before, router.updates())
	before = router.updates()
	remove(t, more)
	router.waitForwards(a)
	eachOne(t, "a Service that goes", before, router.updates())
	sameSessions(t, sessions, router.waitNeighbours(routed...))
}

// eachOne fails the test unless each node has sent one UPDATE more.
func eachOne(t *testing.T, what string, before, after map[string]int) {
	t.Helper()
	for _, n := range routed {
		if after[n] != before[n]+1 {
			t.Errorf("%s took %d UPDATEs of %s, want 1", what, after[n]-before[n], n)
		}
	}
}

func routedDrainLosesNothing(t *testing.T, router *frr, vip netip.Addr) {
	t.Cleanup(func() {
		drainNode(t, "n1", false)
		router.waitForwards(vip, routed...)
	})
	f := newFlows(t, vip)
	time.Sleep(time.Second)
	drainNode(t, "n1", true)
	router.waitForwards(vip, "n2", "n3")
	router.waitNeighbours("n2", "n3")
	f.lostNothing(t)
}

func routedEndLosesNothing(t *testing.T, router *frr, vip netip.Addr) {
	f := newFlows(t, vip)
	time.Sleep(time.Second)
	must(t, installed.Announcer("n2").Signal(syscall.SIGTERM))
	router.waitForwards(vip, "n1", "n3")
	must(t, installed.Announcer("n2").Wait(bounded(t)))
	_, err := installed.StartAnnouncer("n2")
	must(t, err)
	router.waitForwards(vip, routed...)
	f.lostNothing(t)
	whole(t)
}

// With graceful restart the router never notices that an announcer was away.
func routedRestartLosesNothing(t *testing.T, router *frr, vip netip.Addr) {
	before := router.waitNeighbours(routed...)
	configureRoutes(t, "\n    gracefulRestart: 60s")
	eventually(t, "new sessions, with graceful restart", func(ctx context.Context) error {
		now, err := router.neighbours(ctx)
		for _, n := range routed {
			if err == nil && (now[n].Port == 0 || now[n].Port == before[n].Port) {
				err = fmt.Errorf("that with %s is %+v, was %+v", n, now[n], before[n])
			}
		}
		return err
	})
	router.waitForwards(vip, routed...)
	f := newFlows(t, vip)
	time.Sleep(time.Second)
	must(t, installed.Announcer("n3").Signal(syscall.SIGTERM))
	must(t, installed.Announcer("n3").Wait(bounded(t)))
	eventually(t, "the router to keep the path of n3 as stale", func(ctx context.Context) error {
		paths, err := router.paths(ctx, vip)
		if err == nil && !paths["n3"] {
			err = fmt.Errorf("it has %v", paths)
		}
		return err
	})
	_, err := installed.StartAnnouncer("n3")
	must(t, err)
	eventually(t, "the new announcer to confirm the path", func(ctx context.Context) error {
		hops, err := router.forwards(ctx, vip)
		if err != nil {
			return err
		}
		if !slices.Equal(hops, routed) {
			t.Errorf("the router sends packets to %v meanwhile", hops)
		}
		paths, err := router.paths(ctx, vip)
		if stale, there := paths["n3"]; err == nil && (stale || !there) {
			err = fmt.Errorf("it has %v", paths)
		}
		return err
	})
	f.lostNothing(t)
	whole(t)
}
