package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// speakers are the nodes that MetalLB's BGPPeer selects.
var speakers = []string{"n1", "n2"}

// copyPassword is what docs/migrate.md says about the Secret of a session.
const copyPassword = `kubectl -n metallb-system get secret bgp-tor -o go-template='{{.data.password | base64decode}}' |
  kubectl -n kube-system create secret generic bgp-tor --from-file=password=/dev/stdin`

// An advertised is a cluster in which MetalLB advertises a Service to a router:
// its resources, an address in a status, and a bgpd on each node as its speaker.
type advertised struct {
	t       *testing.T
	router  *frr
	service *corev1.Service
	vip     netip.Addr
	old     map[string]*lab.Process // by node
	routes  *lab.Process            // tells what becomes of the routes of the router's kernel
}

// TestTakeOverRoutesFromMetalLB does what docs/migrate.md says about pools that
// are advertised to routers, node by node; in a soak the way back too. The router
// never is without a route, and no datagram is lost.
func TestTakeOverRoutesFromMetalLB(t *testing.T) {
	atRest(t)
	t.Cleanup(func() { reinstall(t) })
	must(t, installed.Stop(bounded(t)))
	forgetUs(t)
	a := &advertised{t: t, router: newFRR(t), old: map[string]*lab.Process{}}
	metalLBResources(t)
	kubectl(t, "apply", "-f", "testdata/metallb-bgp.yaml")
	t.Cleanup(func() { forgetPassword(t) })
	serve(t, "takeover-bgp", "web")
	a.service = create(t, lab.LoadBalancer("takeover-bgp", "web", "web"))
	a.vip = netip.MustParseAddr("203.0.113.165")
	must(t, cluster.SetIngress(bounded(t), a.service, a.vip))
	for _, node := range speakers {
		a.speak(node)
	}
	a.router.waitForwards(a.vip, speakers...)
	reachable(t, a.vip)
	a.monitor()
	defer func() {
		a.t = t // a step that has failed is over
		a.neverGone()
	}()
	f := newFlows(t, a.vip)
	type step struct {
		name string
		do   func()
	}
	steps := []step{{"Import", a.importIt}, {"Controller", a.startController}, {"NodeByNode", a.switchOver}}
	if soak() {
		steps = append(steps, step{"WayBack", a.goBack})
	}
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { a.t = t; step.do() }) {
			break // the next would only say the same
		}
	}
	a.t = t
	f.lostNothing(t)
}

// speak runs a stand-in for MetalLB's speaker on a node.
func (a *advertised) speak(node string) {
	a.t.Helper()
	dir, err := os.MkdirTemp("", "frr") // not t.TempDir, whose name is too long for a socket
	must(a.t, err)
	a.router.own(dir)
	host, err := cluster.Host(node)
	must(a.t, err)
	conf := filepath.Join(dir, "bgpd.conf")
	must(a.t, os.WriteFile(conf, []byte(fmt.Sprintf(`
router bgp 64500
 bgp router-id %s
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 198.51.100.1 remote-as 64501
 neighbor 198.51.100.1 password %s
 neighbor 198.51.100.1 timers connect 1
 address-family ipv4 unicast
  network %s/32
 exit-address-family
`, host.IPv4, bgpPassword, a.vip)), 0o600))
	a.router.own(conf)
	p, err := cluster.Start(node, "speaker", []string{
		frrLibrary + "bgpd", "-f", conf, "-i", filepath.Join(dir, "bgpd.pid"), "--vty_socket", dir, "--log", "stdout", "--no_zebra", "--no_kernel", "-p", "0",
	}, nil)
	must(a.t, err)
	a.old[node] = p
	a.router.t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			a.router.t.Error(err)
		}
		if a.router.t.Failed() {
			a.router.t.Logf("the speaker of %s said:\n%s", node, lastWords(p, 20))
		}
		os.RemoveAll(dir)
	})
}

// end ends a program, whatever its exit code then.
func (a *advertised) end(p *lab.Process) {
	a.t.Helper()
	var exit *exec.ExitError
	if err := p.Stop(bounded(a.t)); err != nil && !errors.As(err, &exit) {
		a.t.Fatal(err)
	}
}

// monitor lets the router tell of every change of its routes, until the test ends.
func (a *advertised) monitor() {
	p, err := cluster.Start(lab.Router, "routes", []string{"ip", "-4", "-timestamp", "monitor", "route"}, nil)
	must(a.t, err)
	a.routes = p
	a.t.Cleanup(func() { must(a.t, p.Kill()) })
}

// neverGone fails the test if the router was without a route in the meantime.
func (a *advertised) neverGone() {
	a.t.Helper()
	log := a.routes.Log()
	if strings.Contains(log, "Deleted "+a.vip.String()) || !strings.Contains(log, a.vip.String()) {
		a.t.Errorf("the route was gone, or nothing was seen of it:\n%s", log)
	}
}

// importIt writes the document, and copies the password as the report says.
func (a *advertised) importIt() {
	out, code := command(a.t, "import", "--cluster", "-o", "json")
	var got struct {
		Document         string
		Losses, Services []json.RawMessage
		Notes            []struct{ Message string }
		InUse            int
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.InUse != 1 || len(got.Losses)+len(got.Services) > 0 {
		a.t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	if len(got.Notes) == 0 || !strings.Contains(fmt.Sprint(got.Notes), "the Secret bgp-tor is read in the namespace of the announcer: copy it there") {
		a.t.Errorf("the report does not say where the password has to be: %v", got.Notes)
	}
	said, err := cluster.Run(bounded(a.t), lab.ControlPlane, "sh", "-ec", copyPassword)
	if err != nil {
		a.t.Fatalf("%v: %s", err, said)
	}
	must(a.t, installed.Configure(bounded(a.t), got.Document))
}

// startController lets our controller adopt the Service.
func (a *advertised) startController() {
	for i := range 2 {
		_, err := installed.StartCCM(i)
		must(a.t, err)
	}
	waitReason(a.t, a.service, "Allocated")
	a.unchanged()
}

// switchOver replaces the speakers by announcers, one after the other.
func (a *advertised) switchOver() {
	for i, node := range speakers {
		a.end(a.old[node])
		a.router.waitNeighbours(slices.Concat(speakers[:i], speakers[i+1:])...)
		_, err := installed.StartAnnouncer(node)
		must(a.t, err)
		a.router.waitForwards(a.vip, speakers...)
		said, err := installed.Ask(bounded(a.t), node, "bgp", "tor")
		must(a.t, err)
		if !strings.Contains(said, a.vip.String()+"/32 for takeover-bgp/web") {
			a.t.Errorf("%s says:\n%s", node, said)
		}
	}
	for _, node := range names() {
		if !slices.Contains(speakers, node) {
			_, err := installed.StartAnnouncer(node)
			must(a.t, err)
		}
	}
	must(a.t, installed.Ready(bounded(a.t)))
	a.router.waitNeighbours(speakers...)
	a.unchanged()
}

// goBack replaces the announcers by speakers, one after the other, and ends the
// controller.
func (a *advertised) goBack() {
	for i, node := range speakers {
		a.end(installed.Announcer(node))
		a.router.waitNeighbours(slices.Concat(speakers[:i], speakers[i+1:])...)
		a.speak(node)
		a.router.waitForwards(a.vip, speakers...)
	}
	for _, p := range []*lab.Process{installed.CCM(0), installed.CCM(1), installed.Announcer("n3"), installed.Announcer("n4")} {
		a.end(p)
	}
	a.unchanged()
	time.Sleep(time.Second) // for what would still come to the router
	forwards, err := a.router.forwards(context.WithoutCancel(a.t.Context()), a.vip)
	if err != nil || !slices.Equal(forwards, speakers) {
		a.t.Errorf("the router sends to %v (%v)", forwards, err)
	}
}

// unchanged fails the test unless the Service shows the address that it had.
func (a *advertised) unchanged() {
	a.t.Helper()
	if got, err := lab.Ingress(get(a.t, a.service)); err != nil || !slices.Equal(got, []netip.Addr{a.vip}) {
		a.t.Errorf("it has %v now (%v)", got, err)
	}
}
