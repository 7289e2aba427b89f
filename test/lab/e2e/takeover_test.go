package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// speakerOn is the node whose kernel stands in for MetalLB's speaker.
const speakerOn = "n2"

// A foreigner is a cluster in which MetalLB serves Services: its resources, the
// addresses in their status, and a node that answers for them.
type foreigner struct {
	t        *testing.T
	services []*corev1.Service
	has      [][]netip.Addr                      // of the Services, in their order
	seen     map[netip.Addr]*observe.Observation // by address
	owners   map[netip.Addr]string               // by address, as a rehearsal has said
	config   string                              // the document, as a file
	speaking bool
}

// TestTakeOverFromMetalLB does what docs/migrate.md says, step by step: import,
// rehearsal, controller, announcers, and the way back.
func TestTakeOverFromMetalLB(t *testing.T) {
	atRest(t)
	t.Cleanup(func() { reinstall(t) })
	must(t, installed.Stop(bounded(t)))
	f := metalLB(t)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"Import", f.importIt}, {"Rehearsal", f.rehearse}, {"Controller", f.startController},
		{"Announcers", f.switchOver}, {"WayBack", f.goBack},
	} {
		if !t.Run(step.name, func(t *testing.T) { f.t = t; step.do() }) {
			return // the next would only say the same
		}
	}
}

// reinstall brings the shared installation back.
func reinstall(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, installed.Stop(ctx))
	forgetThePast(t)
	must(t, installed.Configure(ctx, document))
	for i := range 2 {
		_, err := installed.StartCCM(i)
		must(t, err)
	}
	startMissing(t)
	must(t, installed.Ready(ctx))
	inForce(t, document)
}

// forgetUs makes the cluster one that has never seen us. Nothing of us runs then.
func forgetUs(t *testing.T) {
	t.Helper()
	forgetThePast(t)
	gone := func(err error) {
		t.Helper()
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	for _, name := range []string{product.ConfigMap, product.Accepted} {
		gone(cluster.Client().CoreV1().ConfigMaps(product.Namespace).Delete(bounded(t), name, metav1.DeleteOptions{}))
	}
	gone(cluster.Client().CoreV1().Secrets(product.Namespace).Delete(bounded(t), product.Secret, metav1.DeleteOptions{}))
	gone(cluster.Client().CoordinationV1().Leases(product.Namespace).Delete(bounded(t), product.CCM, metav1.DeleteOptions{}))
}

// metalLBResources makes the kinds of MetalLB known until the test ends. It waits
// until those of the test before are gone.
func metalLBResources(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "--ignore-not-found", "--timeout=110s", "-f", "testdata/metallb.yaml")
	kubectl(t, "apply", "-f", "testdata/metallb.yaml")
	t.Cleanup(func() {
		if _, err := cluster.Kubectl(bounded(t), "delete", "--wait=false", "-f", "testdata/metallb.yaml"); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "wait", "--for=condition=Established", "--timeout=110s", "crd",
		"ipaddresspools.metallb.io", "l2advertisements.metallb.io", "bgppeers.metallb.io", "bgpadvertisements.metallb.io")
}

// metalLB makes a cluster that has never seen us, and has MetalLB.
func metalLB(t *testing.T) *foreigner {
	t.Helper()
	forgetUs(t)
	metalLBResources(t)
	kubectl(t, "apply", "-f", "testdata/metallb-pool.yaml")
	f := &foreigner{t: t, seen: map[netip.Addr]*observe.Observation{}, owners: map[netip.Addr]string{}}
	serve(t, "takeover", "web")
	for i, texts := range [][]string{{"198.51.100.160"}, {"198.51.100.161"}, {"198.51.100.165", "2001:db8:51::1:65"}} {
		f.serves(fmt.Sprintf("s%d", i), texts...)
	}
	f.speak(true)
	t.Cleanup(func() {
		if f.t = t; f.speaking {
			f.speak(false)
		}
	})
	w, err := cluster.Watch(lab.Client, askEvery, f.addresses()...)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	for _, a := range f.addresses() {
		f.seen[a] = w.Of(a)
		_, err := w.Of(a).WaitReply(bounded(t), time.Time{})
		must(t, err)
		reachable(t, a)
	}
	return f
}

// serves makes a Service that has addresses from MetalLB, one of each family.
func (f *foreigner) serves(name string, texts ...string) {
	f.t.Helper()
	s := lab.LoadBalancer("takeover", name, "web")
	s.Annotations = map[string]string{"metallb.io/ip-allocated-from-pool": "old-pool"}
	if len(texts) > 1 {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	var has []netip.Addr
	for _, text := range texts {
		has = append(has, netip.MustParseAddr(text))
	}
	s = create(f.t, s)
	must(f.t, cluster.SetIngress(bounded(f.t), s, has...))
	f.services, f.has = append(f.services, s), append(f.has, has)
}

// addresses returns those of all Services.
func (f *foreigner) addresses() []netip.Addr { return slices.Concat(f.has...) }

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	_, err := cluster.Kubectl(bounded(t), args...)
	must(t, err)
}

// speak makes the kernel of a node answer ARP and NDP for the addresses, or end
// that. As with a speaker they are on no link: the node forwards what comes for
// them.
func (f *foreigner) speak(on bool) {
	f.t.Helper()
	verb, script := "del", "sysctl -qw net.ipv6.conf.eth0.proxy_ndp=0\n"
	if on {
		verb = "add"
		script = "ip link add old0 type veth peer name old1\nip link set old0 up\nip link set old1 up\n" +
			"sysctl -qw net.ipv4.neigh.eth0.proxy_delay=0 net.ipv6.neigh.eth0.proxy_delay=0 net.ipv6.conf.eth0.proxy_ndp=1\n"
	}
	for _, a := range f.addresses() {
		script += fmt.Sprintf("ip neigh %s proxy %s dev eth0\n", verb, a)
		if a.Is6() {
			continue // the kernel answers NDP for it wherever its route is
		}
		script += fmt.Sprintf("ip rule %s to %s lookup 100 pref 100\n", verb, a)
		if on {
			script += fmt.Sprintf("ip route replace %s/32 dev old0 table 100\n", a)
		}
	}
	if !on {
		script += "ip link del old0\n"
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := cluster.Run(ctx, speakerOn, "sh", "-ec", script)
	if err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	f.speaking = on
}

// importIt is the first step: the document, from the cluster.
func (f *foreigner) importIt() {
	out, code := command(f.t, "import", "--cluster", "-o", "json")
	var got struct {
		Document         string
		Losses, Services []json.RawMessage
		InUse            int
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.InUse != len(f.addresses()) || len(got.Losses)+len(got.Services) > 0 {
		f.t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	f.config = filepath.Join(cluster.Dir(), "takeover.yaml")
	must(f.t, os.WriteFile(f.config, []byte(got.Document), 0o600))
	must(f.t, installed.Configure(bounded(f.t), got.Document))
}

// rehearse is the second: both programs observe, and nothing changes.
func (f *foreigner) rehearse() {
	root, err := product.Root(bounded(f.t))
	must(f.t, err)
	kubectl(f.t, "apply", "--dry-run=server", "--validate=strict", "-k", filepath.Join(root, "manifests", "example", "observe"))
	began := time.Now()
	_, err = cluster.Client().CoreV1().Secrets(product.Namespace).Create(bounded(f.t), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: product.Secret},
		StringData: map[string]string{"key": "made by hand for the rehearsal"},
	}, metav1.CreateOptions{})
	must(f.t, err)
	ccm, err := installed.StartCCM(0, "--observe-only")
	must(f.t, err)
	for _, node := range names() {
		_, err := installed.StartAnnouncer(node, "--observe-only", "--cloud-config", f.config)
		must(f.t, err)
	}
	must(f.t, installed.Ready(bounded(f.t)))
	for _, s := range f.services {
		must(f.t, ccm.WaitLog(bounded(f.t), fmt.Sprintf("/api/v1/namespaces/takeover/services/%s/status", s.Name)))
	}
	for address := range f.seen {
		f.owners[address] = f.agreed(address)
	}
	time.Sleep(3 * time.Second) // for whoever would still write or answer
	must(f.t, installed.Stop(bounded(f.t)))
	f.answeredBy(began, time.Now(), speakerOn)
	log, err := cluster.Audit(began)
	must(f.t, err)
	for _, account := range []string{product.CCM, product.Announcer} {
		mine := log.User(product.Namespace + "/" + account)
		if len(mine) == 0 || len(mine.Writes()) > 0 {
			f.t.Errorf("%s made %d requests, and wrote:\n%s", account, len(mine), mine.Writes())
		}
	}
	f.unchanged()
	for _, s := range f.services {
		if c := condition(get(f.t, s)); c != nil {
			f.t.Errorf("%s has a condition: %+v", s.Name, c)
		}
	}
}

// agreed waits until the observers on all nodes name one owner of an address.
func (f *foreigner) agreed(address netip.Addr) (owner string) {
	eventually(f.t, "an owner of "+address.String(), func(ctx context.Context) error {
		said := map[string]bool{}
		for _, node := range names() {
			out, err := installed.Ask(ctx, node, "explain", address.String(), "-o", "json")
			if err != nil {
				return fmt.Errorf("on %s: %w: %s", node, err, out)
			}
			var e explained
			if err := json.Unmarshal([]byte(out), &e); err != nil {
				return err
			}
			if !e.Addresses[0].ObserveOnly {
				f.t.Errorf("%s says that it announces", node)
			}
			owner = e.Addresses[0].Owner
			said[owner] = true
		}
		if len(said) != 1 || owner == "" {
			return fmt.Errorf("they say %v", said)
		}
		return nil
	})
	return owner
}

// startController is the third: addresses are adopted, and answered as before.
func (f *foreigner) startController() {
	began := time.Now()
	for i := range 2 {
		_, err := installed.StartCCM(i)
		must(f.t, err)
	}
	for i, s := range f.services {
		var want []string
		for _, a := range f.has[i] {
			want = append(want, fmt.Sprintf("%s from pool %q", a, "old-pool"))
		}
		eventually(f.t, s.Name+" to be adopted", func(context.Context) error {
			c := condition(get(f.t, s))
			if c == nil || c.Status != metav1.ConditionTrue || c.Message != strings.Join(want, "; ") {
				return fmt.Errorf("its condition is %+v", c)
			}
			return nil
		})
	}
	f.unchanged()
	if got := len(allocations(f.t).Holders); got != len(f.addresses()) {
		f.t.Errorf("%d addresses are held", got)
	}
	f.answeredBy(began, time.Now(), speakerOn)
}

// switchOver is the fourth: the old speaker ends and the announcers begin.
func (f *foreigner) switchOver() {
	echoes := map[netip.Addr]*observe.Echo{}
	for address := range f.seen {
		e, err := cluster.Echo(bounded(f.t), lab.Client, netip.AddrPortFrom(address, lab.PodUDPPort), 100)
		must(f.t, err)
		echoes[address] = e
	}
	began := time.Now()
	f.speak(false)
	for _, node := range names() {
		_, err := installed.StartAnnouncer(node)
		must(f.t, err)
	}
	for address, o := range f.seen {
		host, err := cluster.Host(f.owners[address])
		must(f.t, err)
		eventually(f.t, f.owners[address]+" to answer for "+address.String(), func(context.Context) error {
			if macs := o.MACs(time.Now().Add(-time.Second), time.Now()); !slices.Equal(macs, []string{host.MAC}) {
				return fmt.Errorf("%v answer", macs)
			}
			return nil
		})
	}
	f.t.Logf("all addresses where the rehearsal had them after %s", time.Since(began))
	for address, e := range echoes {
		loss, gap := e.Stop(time.Second), time.Duration(0)
		for _, g := range f.seen[address].Gaps(askEvery * 5) {
			gap = max(gap, g.Length())
		}
		f.t.Logf("%s, now on %s: no reply to ARP or NDP for %s; %s", address, f.owners[address], gap, loss)
		if len(loss.Lost) > 0 {
			f.t.Logf("lost from %s to %s after the old speaker ended", loss.Lost[0].Sub(began), loss.Lost[len(loss.Lost)-1].Sub(began))
		}
		if loss.Longest > gap+3*time.Second { // a client's kernel asks again once a second, and the machine may be busy
			f.t.Errorf("datagrams to %s were lost for %s, and nobody answered for %s only", address, loss.Longest, gap)
		}
	}
	f.unchanged()
}

// goBack is the way back: all of ours ends, the old speaker answers, and
// the Services have their addresses. What cleanup does then has its own test.
func (f *foreigner) goBack() {
	ctx := bounded(f.t)
	must(f.t, installed.Stop(ctx))
	f.speak(true)
	began := time.Now()
	time.Sleep(time.Second)
	f.answeredBy(began, time.Now(), speakerOn)
	f.unchanged()
	for _, a := range f.addresses() {
		reachable(f.t, a)
	}
}

// answeredBy fails the test unless one host alone has answered for all
// addresses, again and again.
func (f *foreigner) answeredBy(from, to time.Time, name string) {
	f.t.Helper()
	host, err := cluster.Host(name)
	must(f.t, err)
	for address, o := range f.seen {
		if macs := o.MACs(from, to); !slices.Equal(macs, []string{host.MAC}) {
			f.t.Errorf("%s: %v have answered, not %s (%s) alone\n%s", address, macs, name, host.MAC, o)
		}
	}
}

// unchanged fails the test unless each Service shows the addresses that it had.
func (f *foreigner) unchanged() {
	f.t.Helper()
	for i, s := range f.services {
		if got, err := lab.Ingress(get(f.t, s)); err != nil || !slices.Equal(got, f.has[i]) {
			f.t.Errorf("%s has %v now (%v), and had %v", s.Name, got, err, f.has[i])
		}
	}
}
