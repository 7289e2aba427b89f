package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/apiproxy"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// The API server is slow for the leader until it gives its Lease up, and then
// away from it, while Services are created: the other leads, nobody gets what
// somebody else has, and whoever answers does not notice.
func TestB027LeaderThatLosesItsLeaseGivesNothingTwice(t *testing.T) {
	atRest(t)
	_, a, o := serving(t, "b027")
	proxy, kubeconfig := behindProxy(t, product.CCM)
	withoutCCMs(t)
	slow, err := installed.StartCCMBy(kubeconfig, 0)
	must(t, err)
	first := create(t, lab.LoadBalancer("b027", "first", "web"))
	address(t, first) // so the one behind the proxy leads
	_, err = installed.StartCCM(1)
	must(t, err)

	begin := time.Now()
	proxy.Set(apiproxy.Delay(apiproxy.Match{}, 12*time.Second))
	var made []*corev1.Service
	for i := range 20 {
		made = append(made, create(t, lab.LoadBalancer("b027", fmt.Sprintf("new%d", i), "web")))
	}
	eventually(t, "the slow leader to give up", func(context.Context) error {
		if slow.Running() {
			return fmt.Errorf("it still runs %s after the API server became slow", time.Since(begin))
		}
		return nil
	})
	proxy.Set(apiproxy.Refuse(apiproxy.Match{}, 503))
	_, err = installed.StartCCMBy(kubeconfig, 0) // as the kubelet would
	must(t, err)
	for _, s := range made {
		address(t, s)
	}
	proxy.Set()
	t.Logf("20 Services served %s after the API server became slow for the leader", time.Since(begin).Round(time.Second))
	distinct(t, held(t, "b027"), 22)
	if n := gaps(o, begin, 2*time.Second); n > 0 {
		t.Errorf("%s was not answered for two seconds, %d times\n%s", a, n, o)
	}
}

// A cluster of which one node is left is switched off and on, the API server
// last: what had an address answers again without anybody's help.
func TestB028AddressAnswersAfterEverythingWasOff(t *testing.T) {
	atRest(t)
	s, a, o := serving(t, "b028")
	before := get(t, s).Status.LoadBalancer.Ingress
	must(t, installed.Stop(t.Context()))
	must(t, cluster.StopAPI())
	must(t, cluster.StopEtcd())
	t.Cleanup(func() { startMissing(t) })
	dark := time.Now()
	time.Sleep(2 * time.Second)
	silent(t, o, dark.Add(time.Second))

	n := names()[0]
	_, err := installed.StartAnnouncer(n)
	must(t, err)
	keepCCMs(t)
	must(t, cluster.StartEtcd(bounded(t)))
	must(t, cluster.StartAPI(bounded(t)))
	up := time.Now()
	keepCCMs(t) // those that found no API server have ended
	r, err := o.WaitReply(bounded(t), dark.Add(time.Second))
	must(t, err)
	t.Logf("%s answers from %s %s after the API server was up", a, cluster.HostOf(r.MAC), r.Time.Sub(up).Round(time.Millisecond))
	if took := r.Time.Sub(up); took > 2*30*time.Second {
		t.Errorf("the first answer came %s after the API server was up", took)
	}
	if host := cluster.HostOf(r.MAC); host != n {
		t.Errorf("%s answers, where only %s has an announcer", host, n)
	}
	after := get(t, s).Status.LoadBalancer.Ingress
	if len(after) != 1 || after[0].IP != before[0].IP {
		t.Errorf("its address is %v, was %v", after, before)
	}
	for i := range 2 {
		eventually(t, "the CCMs to run", func(context.Context) error {
			keepCCMs(t)
			if !installed.CCM(i).Running() {
				return fmt.Errorf("number %d does not", i)
			}
			return nil
		})
	}
	startMissing(t)
	whole(t)
}

// Two Services share an address, and their pods are replaced again and again:
// somebody announces it throughout, one node says so in its metrics, and with
// the Services that is over.
func TestB036SharedAddressIsAnnouncedWhilePodsComeAndGo(t *testing.T) {
	atRest(t)
	web, api := sharedService("web", 80), sharedService("api", 443)
	pods, err := cluster.RunPods(bounded(t), "b036", "web", names()[:2]...)
	must(t, err)
	t.Cleanup(func() {
		if err := cluster.DeletePods(context.Background(), pods...); err != nil {
			t.Error(err)
		}
	})
	first, second := create(t, web), create(t, api)
	a := address(t, first)
	if b := address(t, second); b != a {
		t.Fatalf("they have %s and %s, want one address", a, b)
	}
	o := watch(t, a)
	begin := time.Now()
	for i := range times(4, 50) {
		next, err := cluster.RunPods(bounded(t), "b036", "web", names()[i%nodes])
		must(t, err)
		must(t, cluster.DeletePods(bounded(t), pods...))
		pods = next
	}
	owner(t, o)
	if n := gaps(o, begin, 2*time.Second); n > 0 {
		t.Errorf("%s was not answered for two seconds, %d times\n%s", a, n, o)
	}
	eventually(t, "one node to say that it announces "+a.String(), func(ctx context.Context) error {
		return announcedBy(ctx, a, 1)
	})
	remove(t, first)
	remove(t, second)
	eventually(t, "no node to say that it announces "+a.String(), func(ctx context.Context) error {
		return announcedBy(ctx, a, 0)
	})
}

// gaps counts the times of at least length without a reply that ended after a time.
func gaps(o *observe.Observation, since time.Time, length time.Duration) int {
	n := 0
	for _, g := range o.Gaps(length) {
		if g.To.After(since) {
			n++
		}
	}
	return n
}

func sharedService(name string, port int32) *corev1.Service {
	s := lab.LoadBalancer("b036", name, "web")
	s.Annotations = map[string]string{"ccm-baremetal.io/sharing-key": "one"}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: port, TargetPort: s.Spec.Ports[0].TargetPort}}
	return s
}

// announcedBy compares how many nodes have a series of an address with want.
func announcedBy(ctx context.Context, a netip.Addr, want int) error {
	var by []string
	for _, n := range names() {
		page, err := cluster.Get(ctx, n, fmt.Sprintf("http://127.0.0.1:%d/metrics", product.HTTPPort))
		if err != nil {
			return err
		}
		if strings.Contains(page, fmt.Sprintf("\nannouncer_announced{address=%q", a)) {
			by = append(by, n)
		}
	}
	if len(by) != want {
		return fmt.Errorf("%v say so", by)
	}
	return nil
}
