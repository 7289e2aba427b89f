package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const frrK8sLivePause = 3 * time.Second

const frrK8sLiveDocument = document + `advertisements:
- {name: lan, pools: [lan], layer2: {}}
- {name: tor, pools: [wide], bgp: {communities: ["64500:7", "64500:1:2"]}}
bgp:
  backend: frr-k8s
  localASN: 64500
  leavePause: 3s
  peers:
  - {name: r1, address: 198.51.100.1, asn: 64501, connectTime: 1s, passwordSecret: ` + bgpSecret + `, nodeSelector: "kubernetes.io/hostname in (n1, n2)"}
`

// A Service whose sessions a real frr-k8s has: its controller, its reloader and
// its status exporter on each node, with the rights of its manifests, and FRR.
// The tables of the router's own FRR judge.
func TestServiceByARunningFRRK8s(t *testing.T) {
	if !soak() {
		t.Skip("it takes three minutes, most of which frr-k8s waits: make soak runs it")
	}
	atRest(t)
	release := buildFRRK8s(t)
	router := newFRR(t)
	makeFRRK8sNamespace(t)
	overlay(t, "bgp-frr-k8s")
	release.install(t)
	for _, n := range byFRRK8s {
		release.run(t, n)
	}
	defer func() {
		restoreDocument(t, router)
		startMissing(t)
		waitFRRConfigurations(t)
		forgetPasswordOfFRRK8s(t)
		restartAnnouncers(t, startAsEver)
	}()
	restartAnnouncers(t, startOnItsNode)
	givePasswordToFRRK8s(t)
	must(t, installed.Configure(bounded(t), frrK8sLiveDocument))
	inForce(t, frrK8sLiveDocument)
	serve(t, "by-frr-k8s", "web")
	last := routedByFRRK8s("web")
	last.Annotations["ccm-baremetal.io/addresses"] = "203.0.113.200" // after all others: frr-k8s numbers them in order
	vip := address(t, create(t, last))
	router.waitForwards(vip, byFRRK8s...)
	reachable(t, vip)

	t.Run("RouterIsToldTheCommunities", func(t *testing.T) { toldByFRRK8s(t, router, vip) })
	t.Run("ItsReportsAreRead", func(t *testing.T) { reportsOfFRRK8sAreRead(t, vip) })
	t.Run("NothingHappensAtRest", func(t *testing.T) { nothingHappensToFRRK8sAtRest(t, router) })
	t.Run("ServicesComeAndGoWithoutAReset", func(t *testing.T) { servicesComeAndGoByFRRK8s(t, router, vip) })
	t.Run("DrainLosesNothing", func(t *testing.T) { drainByFRRK8sLosesNothing(t, release, router, vip) })
	t.Run("EndLosesNothing", func(t *testing.T) { endByFRRK8sLosesNothing(t, release, router, vip) })
}

func toldByFRRK8s(t *testing.T, router *frr, vip netip.Addr) {
	out, err := router.show(bounded(t), "show bgp ipv4 unicast "+vip.String()+"/32")
	must(t, err)
	for _, community := range []string{"Community: 64500:7\n", "Large Community: 64500:1:2\n"} {
		if n := strings.Count(out, community); n != len(byFRRK8s) {
			t.Errorf("%d paths have %q, want %d:\n%s", n, community, len(byFRRK8s), out)
		}
	}
}

// frr-k8s looks at the configuration that FRR runs every 30 s.
func reportsOfFRRK8sAreRead(t *testing.T, vip netip.Addr) {
	for _, n := range byFRRK8s {
		asked(t, n, "Established", vip.String()+"/32 for by-frr-k8s/web by tor")
	}
}

func nothingHappensToFRRK8sAtRest(t *testing.T, router *frr) {
	sessions, updates, began := router.waitNeighbours(byFRRK8s...), router.updates(), calm(t, 2*time.Second)
	time.Sleep(time.Duration(times(5, 300)) * time.Second)
	if w := objectWrites(t, began); len(w) != 0 {
		t.Errorf("at rest there were\n%s", w)
	}
	if now := router.updates(); fmt.Sprint(now) != fmt.Sprint(updates) {
		t.Errorf("UPDATEs while nothing changed: %v, now %v", updates, now)
	}
	sameSessions(t, sessions, router.waitNeighbours(byFRRK8s...))
}

// While Services come and go the router always has the paths of one that stays.
func servicesComeAndGoByFRRK8s(t *testing.T, router *frr, vip netip.Addr) {
	const services = 10
	sessions := router.waitNeighbours(byFRRK8s...)
	stays := watchForward(t, router, []netip.Addr{vip}, "n1")
	told := []netip.Addr{vip}
	var made []*corev1.Service
	for i := range services {
		made = append(made, create(t, routedByFRRK8s(fmt.Sprint("web-", i))))
	}
	for _, s := range made {
		told = append(told, address(t, s))
	}
	router.waitPrefixes(told...)
	for _, s := range made {
		remove(t, s)
	}
	router.waitPrefixes(vip)
	stays()
	sameSessions(t, sessions, router.waitNeighbours(byFRRK8s...))
}

// avoided is since when a router is to avoid a node's path, and when it lost it.
type avoided struct{ since, gone time.Time }

// watchAvoided looks at the path of a node until the router has lost it.
func watchAvoided(t *testing.T, router *frr, vip netip.Addr, node string) <-chan avoided {
	out := make(chan avoided, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	go func() {
		var seen avoided
		defer func() { out <- seen }()
		for ctx.Err() == nil {
			there, avoid, err := router.path(ctx, vip, node)
			now := time.Now()
			switch {
			case err != nil:
			case !there:
				seen.gone = now
				return
			case avoid && seen.since.IsZero():
				seen.since = now
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return out
}

// path tells whether the router has a path of a node, and whether it is to be
// avoided.
func (f *frr) path(ctx context.Context, a netip.Addr, node string) (there, avoid bool, err error) {
	out, err := f.show(ctx, "show bgp ipv4 unicast "+a.String()+"/32 json")
	if err != nil {
		return false, false, err
	}
	var all struct {
		Paths []struct {
			Community struct{ String string }
			Nexthops  []struct{ IP netip.Addr }
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return false, false, fmt.Errorf("%w in %s", err, out)
	}
	for _, p := range all.Paths {
		for _, hop := range p.Nexthops {
			if nodeAt(hop.IP) == node {
				return true, strings.Contains(p.Community.String, "graceful-shutdown"), nil
			}
		}
	}
	return false, false, nil
}

// fastReload is how long a reload of FRR may take for its router to be sure of
// the pause. On a machine that is so busy that it takes longer, frr-k8s may put
// the withdrawal in the place of a configuration that FRR has not read yet.
const fastReload = 5 * time.Second

// checkAvoided fails the test unless a router was asked to avoid a path, and had
// the pause to do so before it lost it.
func checkAvoided(t *testing.T, began time.Time, seen avoided, reloads []time.Duration) {
	t.Helper()
	if slices.ContainsFunc(reloads, func(took time.Duration) bool { return took > fastReload }) {
		t.Logf("reloads of FRR took %v: asked to avoid the path at %s, lost it at %s", reloads, seen.since, seen.gone)
		return
	}
	if seen.since.IsZero() || seen.gone.IsZero() {
		t.Errorf("the router was asked to avoid the path at %s, and lost it at %s", seen.since, seen.gone)
		return
	}
	pause := seen.gone.Sub(seen.since)
	t.Logf("asked to avoid it after %.1f s, lost it %.1f s later", seen.since.Sub(began).Seconds(), pause.Seconds())
	if pause < frrK8sLivePause/2 { // as they take turns here, reloads take seconds
		t.Errorf("the router had %s to avoid the path, want %s", pause, frrK8sLivePause)
	}
}

func drainByFRRK8sLosesNothing(t *testing.T, release *frrK8sRelease, router *frr, vip netip.Addr) {
	defer func() {
		drainNode(t, "n1", false)
		router.waitForwards(vip, byFRRK8s...)
	}()
	f := newFlows(t, vip)
	time.Sleep(time.Second)
	before := len(release.reloads(t, "n1"))
	seen, began := watchAvoided(t, router, vip, "n1"), time.Now()
	drainNode(t, "n1", true)
	router.waitForwards(vip, "n2")
	router.waitNeighbours("n2")
	checkAvoided(t, began, <-seen, release.reloads(t, "n1")[before:])
	f.lostNothing(t)
}

// endsWithin is what an announcer has that ends, and the end of its process.
const endsWithin = 19*time.Second + 3*time.Second

func endByFRRK8sLosesNothing(t *testing.T, release *frrK8sRelease, router *frr, vip netip.Addr) {
	f := newFlows(t, vip)
	time.Sleep(time.Second)
	before := len(release.reloads(t, "n2"))
	seen, began := watchAvoided(t, router, vip, "n2"), time.Now()
	must(t, installed.Announcer("n2").Signal(syscall.SIGTERM))
	must(t, installed.Announcer("n2").Wait(bounded(t)))
	if took := time.Since(began); took > endsWithin {
		t.Errorf("the announcer ended after %s, want %s at most", took, endsWithin)
	} else {
		t.Logf("the announcer ended after %.1f s", took.Seconds())
	}
	waitFRRConfigurations(t, slices.DeleteFunc(slices.Clone(byFRRK8s), func(n string) bool { return n == "n2" })...)
	router.waitNeighbours("n1")
	checkAvoided(t, began, <-seen, release.reloads(t, "n2")[before:])
	must(t, startOnItsNode("n2"))
	router.waitForwards(vip, byFRRK8s...)
	f.lostNothing(t)
	whole(t)
}
