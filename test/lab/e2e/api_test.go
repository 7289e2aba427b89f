package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/apiproxy"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// behindProxy puts a proxy in front of the API server until the test is over,
// and returns it with a kubeconfig for an account that goes through it.
func behindProxy(t *testing.T, account string) (*apiproxy.Proxy, string) {
	t.Helper()
	proxy, err := cluster.APIProxy()
	must(t, err)
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := proxy.Kubeconfig(bounded(t), product.Namespace, account)
	must(t, err)
	return proxy.Proxy, kubeconfig
}

// withoutCCMs ends both CCMs until the test is over.
func withoutCCMs(t *testing.T) {
	t.Helper()
	for i := range 2 {
		must(t, installed.CCM(i).Kill())
	}
	t.Cleanup(func() {
		for i := range 2 {
			if err := installed.CCM(i).Kill(); err != nil {
				t.Error(err)
			}
			if _, err := installed.StartCCM(i); err != nil {
				t.Error(err)
			}
		}
	})
}

// At start the list of Services takes long, while their watch works: nobody
// gets an address before all that is held is known.
func TestB025SlowListAtStartGivesNoAddressInUse(t *testing.T) {
	atRest(t)
	var old []*corev1.Service
	for i := range 5 {
		old = append(old, create(t, lab.LoadBalancer("b025", fmt.Sprintf("old%d", i), "web")))
	}
	for _, s := range old {
		address(t, s)
	}
	before := held(t, "b025")
	proxy, kubeconfig := behindProxy(t, product.CCM)
	withoutCCMs(t)
	const slow = 10 * time.Second
	// Clients of today read their first list by a watch, older ones by a list.
	proxy.Set(apiproxy.Delay(apiproxy.Match{Verb: "list", Resource: "services"}, slow),
		apiproxy.Delay(apiproxy.Match{Verb: "watch", Resource: "services"}, slow))
	begin := time.Now()
	_, err := installed.StartCCMBy(kubeconfig, 0)
	must(t, err)
	fresh := create(t, lab.LoadBalancer("b025", "fresh", "web"))
	address(t, fresh)
	if took := time.Since(begin); took < slow {
		t.Errorf("it was decided after %s, before the list could be complete", took)
	}
	after := held(t, "b025")
	distinct(t, after, 6)
	delete(after, "fresh")
	sameHoldings(t, before, after)
}

// A fresh installation without a gossip key, and without an API server for the
// first time of its life: it converges by itself, and the key is made once.
func TestB110GossipKeyIsMadeOnceWhenTheAPIServerComes(t *testing.T) {
	atRest(t)
	must(t, installed.Stop(t.Context()))
	must(t, cluster.Client().CoreV1().Secrets(product.Namespace).Delete(bounded(t), product.Secret, metav1.DeleteOptions{}))
	must(t, cluster.StopAPI())
	mark := time.Now()
	for _, n := range names() {
		_, err := installed.StartAnnouncer(n)
		must(t, err)
	}
	keepCCMs(t)
	time.Sleep(time.Duration(times(15, 60)) * time.Second)
	for _, n := range names() {
		if !installed.Announcer(n).Running() {
			t.Errorf("the announcer on %s has ended without an API server:\n%s", n, installed.Announcer(n).Log())
		}
	}
	must(t, cluster.StartAPI(bounded(t)))
	eventuallyWithin(t, 2*patience, "every announcer to be ready", func(ctx context.Context) error {
		keepCCMs(t) // those that found no API server have ended
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return installed.Ready(ctx)
	})
	whole(t)
	log, err := cluster.Audit(mark)
	must(t, err)
	if made := log.User("kube-system/ccm-baremetal").On("secrets").Writes().Succeeded(); len(made) != 1 {
		t.Errorf("the gossip key was written %d times, want once", len(made))
	}
	keepCCMs(t)
}

// keepCCMs starts the CCMs that do not run, as a kubelet would.
func keepCCMs(t *testing.T) {
	t.Helper()
	for i := range 2 {
		if !installed.CCM(i).Running() {
			_, err := installed.StartCCM(i)
			must(t, err)
		}
	}
}

// Watches break every few seconds, and once the history they ask for is gone:
// no deletion is missed.
func TestB171BrokenWatchesMissNoDeletion(t *testing.T) {
	atRest(t)
	serve(t, "b171", "web")
	ccm, ccmKubeconfig := behindProxy(t, product.CCM)
	announcers, announcerKubeconfig := behindProxy(t, product.Announcer)
	withoutCCMs(t)
	_, err := installed.StartCCMBy(ccmKubeconfig, 0)
	must(t, err)
	t.Cleanup(func() {
		replaceAnnouncers(t, func(n string) error { _, err := installed.StartAnnouncer(n); return err })
	})
	replaceAnnouncers(t, func(n string) error {
		_, err := installed.StartAnnouncerBy(announcerKubeconfig, n)
		return err
	})
	whole(t)
	for _, proxy := range []*apiproxy.Proxy{ccm, announcers} {
		proxy.Set(apiproxy.CutWatches("services", 5*time.Second), apiproxy.CutWatches("endpointslices", 5*time.Second), apiproxy.GoneOnce("services"))
	}
	var alive, dead []*corev1.Service
	for i := range 20 {
		s := create(t, lab.LoadBalancer("b171", fmt.Sprintf("s%02d", i), "web"))
		if i%2 == 0 {
			alive = append(alive, s)
		} else {
			dead = append(dead, s)
		}
		time.Sleep(300 * time.Millisecond)
	}
	var gone, there []string
	for _, s := range dead {
		gone = append(gone, address(t, s).String())
		remove(t, s)
		time.Sleep(300 * time.Millisecond)
	}
	for _, s := range alive {
		there = append(there, address(t, s).String())
	}
	time.Sleep(15 * time.Second)
	for _, a := range there {
		answeredBySome(t, a, 1)
	}
	for _, a := range gone {
		answeredBySome(t, a, 0) // its Service is deleted
	}
}

// answeredBySome waits until so many hosts answer for an address within a second.
func answeredBySome(t *testing.T, a string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d hosts to answer for %s", want, a), func(context.Context) error {
		if who := answerers(t, a); len(who) != want {
			return fmt.Errorf("%v do", who)
		}
		return nil
	})
}

// replaceAnnouncers ends every announcer and starts it anew, by a function.
func replaceAnnouncers(t *testing.T, start func(node string) error) {
	t.Helper()
	for _, n := range names() {
		must(t, installed.Announcer(n).Kill())
		must(t, start(n))
	}
}

// answerers returns the hosts that answer for an address within a second.
func answerers(t *testing.T, a string) []string {
	t.Helper()
	addr := netip.MustParseAddr(a)
	w, err := cluster.Watch(lab.Client, askEvery, addr)
	must(t, err)
	begin := time.Now()
	time.Sleep(time.Second)
	must(t, w.Close())
	var hosts []string
	for _, mac := range w.Of(addr).MACs(begin, time.Now()) {
		hosts = append(hosts, cluster.HostOf(mac))
	}
	return hosts
}
