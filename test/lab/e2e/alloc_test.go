package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
)

const upstreamFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// asking is a Service with one of our annotations.
func asking(namespace, name, annotation, value string) *corev1.Service {
	s := lab.LoadBalancer(namespace, name, "web")
	s.Annotations = map[string]string{"ccm-baremetal.io/" + annotation: value}
	return s
}

// has waits until a Service has just these addresses, in any order.
func has(t *testing.T, s *corev1.Service, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, fmt.Sprintf("%s/%s to have %v", s.Namespace, s.Name, want), func(context.Context) error {
		now := get(t, s)
		var got []string
		for _, i := range now.Status.LoadBalancer.Ingress {
			got = append(got, i.IP)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("it has %v, its condition is %+v", got, condition(now))
		}
		return nil
	})
}

// annotate sets one of our annotations; an empty value removes it.
func annotate(t *testing.T, s *corev1.Service, annotation, value string) {
	t.Helper()
	text := "null"
	if value != "" {
		text = `"` + value + `"`
	}
	patch(t, s, `{"metadata":{"annotations":{"ccm-baremetal.io/`+annotation+`":`+text+`}}}`)
}

// answered fails the test if an address that somebody observes has gone without
// an answer for more than two seconds since a time.
func answered(t *testing.T, o *observe.Observation, since time.Time) {
	t.Helper()
	last := since
	for _, r := range append(o.Replies(since, time.Now()), observe.Reply{Time: time.Now()}) {
		if gap := r.Time.Sub(last); gap > 2*time.Second {
			t.Errorf("no answer for %s since %s\n%s", gap, last.Format(time.TimeOnly), o)
		}
		last = r.Time
	}
}

func TestB004RequestedAddressIsTakenAndKept(t *testing.T) {
	atRest(t)
	serve(t, "b004", "web")
	var services []*corev1.Service
	for i := range 3 {
		s := create(t, lab.LoadBalancer("b004", fmt.Sprintf("s%d", i+1), "web"))
		address(t, s)
		services = append(services, s)
	}
	first, third := address(t, services[0]), address(t, services[2])
	old := watch(t, third)
	remove(t, services[1])

	const wish = "198.51.100.159"
	fresh := look(t, netip.MustParseAddr(wish))
	annotate(t, services[2], "addresses", wish)
	has(t, services[2], wish)
	moved := time.Now()
	_, err := fresh.WaitReply(bounded(t), moved)
	must(t, err)
	quiet := moved.Add(5 * time.Second)
	time.Sleep(time.Until(quiet.Add(time.Second)))
	silent(t, old, quiet)
	owner(t, fresh)

	mark := time.Now()
	annotate(t, services[2], "addresses", "")
	time.Sleep(2 * time.Second)
	has(t, services[2], wish)
	has(t, services[0], first.String())
	if n := serviceWrites(t, mark); n > 1 {
		t.Errorf("%d writes to take a request back", n)
	}
}

func TestB005PoolAnnotationOfARunningServiceIsHonoured(t *testing.T) {
	atRest(t)
	temporarily(t, document+"- {name: z1, autoAssign: false, addresses: [198.51.100.170]}\n- {name: z2, autoAssign: false, addresses: [198.51.100.180]}\n")
	s := create(t, asking("b005", "s", "pool", "z1"))
	has(t, s, "198.51.100.170")
	for _, step := range []struct{ pool, address string }{{"z2", "198.51.100.180"}, {"nowhere", "198.51.100.180"}} {
		mark := time.Now()
		annotate(t, s, "pool", step.pool)
		has(t, s, step.address)
		if step.pool == "nowhere" {
			waitEvent(t, "b005", "s", "Warning", "nowhere")
		}
		time.Sleep(time.Second)
		if n := serviceWrites(t, mark); n > 2 {
			t.Errorf("pool %s: %d writes", step.pool, n)
		}
		has(t, s, step.address)
	}
}

// The first two parts; the third is the command cleanup.
func TestB042NamespaceIsDeletedWhetherACCMRunsOrNot(t *testing.T) {
	atRest(t)
	temporarily(t, document+"- {name: five, autoAssign: false, addresses: [198.51.100.170-198.51.100.174]}\n")
	fill := func() {
		for i := range 5 {
			s, err := cluster.CreateService(bounded(t), asking("b042", fmt.Sprintf("s%d", i), "pool", "five"))
			must(t, err)
			address(t, s)
		}
	}
	finalize := func() {
		for i := range 5 {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "b042", Name: fmt.Sprintf("s%d", i)}}
			patch(t, s, `{"metadata":{"finalizers":["`+upstreamFinalizer+`"]}}`)
		}
	}
	namespaces := cluster.Client().CoreV1().Namespaces()
	gone := func() {
		t.Helper()
		eventually(t, "the namespace to be gone", func(ctx context.Context) error {
			_, err := namespaces.Get(ctx, "b042", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there: %v", err)
		})
	}
	fill()
	must(t, namespaces.Delete(bounded(t), "b042", metav1.DeleteOptions{}))
	gone()

	fill() // the pool is free again
	for i := range 2 {
		must(t, installed.CCM(i).Kill())
	}
	t.Cleanup(func() { keepCCMs(t) })
	finalize() // as a release before this one would have left it
	must(t, namespaces.Delete(bounded(t), "b042", metav1.DeleteOptions{}))
	time.Sleep(3 * time.Second)
	if _, err := namespaces.Get(bounded(t), "b042", metav1.GetOptions{}); err != nil {
		t.Errorf("the finalizers do not hold the namespace, so that there is nothing to show: %v", err)
	}
	keepCCMs(t)
	gone()
	fill()
	must(t, namespaces.Delete(bounded(t), "b042", metav1.DeleteOptions{}))
	gone()
}

func TestB047ProtocolsCountForSharing(t *testing.T) {
	atRest(t)
	port := func(name string, protocol corev1.Protocol, number int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: protocol, Port: number}
	}
	with := func(name string, ports ...corev1.ServicePort) *corev1.Service {
		s := asking("b047", name, "sharing-key", "dns")
		s.Spec.Ports = ports
		return create(t, s)
	}
	first := with("s1", port("t", corev1.ProtocolTCP, 53), port("u", corev1.ProtocolUDP, 53))
	a := address(t, first)
	for _, s := range []*corev1.Service{with("s2", port("s", corev1.ProtocolSCTP, 38412)), with("s3", port("s", corev1.ProtocolSCTP, 53))} {
		has(t, s, a.String())
	}
	// A port that is taken: B-031.
	clash := asking("b047", "s4", "addresses", a.String())
	clash.Annotations["ccm-baremetal.io/sharing-key"] = "dns"
	clash.Spec.Ports = []corev1.ServicePort{port("u", corev1.ProtocolUDP, 53)}
	waiting := waitReason(t, create(t, clash), "SharingRefused")
	if message := condition(waiting).Message; !strings.Contains(message, "UDP 53") || !strings.Contains(message, "b047/s1") {
		t.Errorf("it says %q", message)
	}
	patch(t, clash, `{"spec":{"ports":[{"name":"u","protocol":"UDP","port":54}]}}`)
	has(t, clash, a.String())
}

func TestB048ClassDecidesWhoseAServiceIs(t *testing.T) {
	atRest(t)
	own, foreign := "ccm-baremetal.io/announcer", "example.org/other"
	classed := func(name string, class *string) *corev1.Service {
		s := lab.LoadBalancer("b048", name, "web")
		s.Spec.LoadBalancerClass = class
		return create(t, s)
	}
	serve(t, "b048", "web")
	t.Run("Default", func(t *testing.T) {
		ours := classed("own", &own)
		address(t, classed("none", nil))
		a := address(t, ours)
		other := classed("foreign", &foreign)
		o := watch(t, a)

		patch(t, ours, `{"spec":{"type":"ClusterIP","loadBalancerClass":null}}`)
		patch(t, ours, `{"spec":{"type":"LoadBalancer","loadBalancerClass":"`+foreign+`"}}`)
		eventually(t, "nothing of ours to be left", func(context.Context) error { return bare(get(t, ours)) })
		quiet := time.Now().Add(5 * time.Second)
		time.Sleep(time.Until(quiet.Add(time.Second)))
		silent(t, o, quiet)
		must(t, bare(get(t, ours)))
		untouched(t, other)
	})
	t.Run("ByClassOnly", func(t *testing.T) {
		temporarily(t, strings.Replace(document, "pools:\n", "services: {handleUnclassed: false}\npools:\n", 1))
		address(t, classed("own2", &own))
		untouched(t, classed("none2", nil))
		untouched(t, classed("foreign2", &foreign))
	})
}

// untouched fails the test if a Service has anything in its status.
func untouched(t *testing.T, s *corev1.Service) {
	t.Helper()
	time.Sleep(time.Second)
	if now := get(t, s); len(now.Status.LoadBalancer.Ingress) != 0 || len(now.Status.Conditions) != 0 || len(now.Finalizers) != 0 {
		t.Errorf("%s was touched: %+v, finalizers %v", s.Name, now.Status, now.Finalizers)
	}
}

func TestB053AddressOfAnotherControllerIsLeftAlone(t *testing.T) {
	atRest(t)
	serve(t, "b053", "web")
	stranger := netip.MustParseAddr("198.51.100.198") // in no pool
	class := "example.org/other"
	s := lab.LoadBalancer("b053", "ext-api", "web")
	s.Spec.LoadBalancerClass = &class
	made := create(t, s)
	o := look(t, stranger)
	mark := time.Now()
	must(t, cluster.SetIngress(bounded(t), made, stranger))
	time.Sleep(2 * time.Second)
	has(t, made, stranger.String())
	silent(t, o, mark)
	if n := serviceWrites(t, mark); n != 0 {
		t.Errorf("%d writes", n)
	}

	// Without a class it is looked at, and still left alone.
	temporarily(t, strings.Replace(document, "pools:\n", "services: {handleUnclassed: false}\npools:\n", 1))
	unclassed := create(t, lab.LoadBalancer("b053", "unclassed", "web"))
	must(t, cluster.SetIngress(bounded(t), unclassed, stranger))
	untilQuiet := time.Now()
	time.Sleep(time.Second)
	if c := condition(get(t, unclassed)); c != nil {
		t.Errorf("it was looked at: %+v", c)
	}
	temporarily(t, document)
	waitReason(t, unclassed, "ForeignAddress")
	has(t, unclassed, stranger.String())
	time.Sleep(time.Until(untilQuiet.Add(4 * time.Second)))
	silent(t, o, mark)
}

func TestB057APIServersServiceAsALoadBalancer(t *testing.T) {
	atRest(t)
	s, err := cluster.Client().CoreV1().Services("default").Get(bounded(t), "kubernetes", metav1.GetOptions{})
	must(t, err)
	t.Cleanup(func() {
		_, err := cluster.Client().CoreV1().Services("default").Patch(context.Background(), "kubernetes", types.MergePatchType,
			[]byte(`{"spec":{"type":"ClusterIP"},"metadata":{"annotations":{"ccm-baremetal.io/addresses":null}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	patch(t, s, `{"spec":{"type":"LoadBalancer"}}`)
	versionBy(t, address(t, s).String())
	const wish = "198.51.100.158"
	annotate(t, s, "addresses", wish)
	has(t, s, wish)
	versionBy(t, wish)
	address(t, create(t, lab.LoadBalancer("b057", "after", "web"))) // the CCM's own way to the API server is as it was
}

// versionBy waits until a client outside the cluster reaches the API server
// through an address.
func versionBy(t *testing.T, address string) {
	t.Helper()
	eventually(t, "the API server to answer through "+address, func(ctx context.Context) error {
		out, err := cluster.Run(ctx, lab.Client, "curl", "--silent", "--show-error", "--insecure", "--max-time", "5", "https://"+address+"/version")
		if err == nil && !strings.Contains(out, "gitVersion") {
			err = fmt.Errorf("it says %s", out)
		}
		return err
	})
}

func TestB037AndB038FamiliesFollowTheSpec(t *testing.T) {
	atRest(t)
	const four, six = "198.51.100.170", "2001:db8:51::1:70"
	v4 := document + "- {name: four, autoAssign: false, addresses: [198.51.100.170-198.51.100.173]}\n"
	both := v4 + `- {name: six, autoAssign: false, addresses: ["2001:db8:51::1:70-2001:db8:51::1:73"]}` + "\n"
	temporarily(t, v4)
	dual := func(name string, policy corev1.IPFamilyPolicy) *corev1.Service {
		s := asking("b037", name, "pool", "four,six")
		s.Spec.IPFamilyPolicy = &policy
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		return create(t, s)
	}
	prefer := dual("prefer", corev1.IPFamilyPolicyPreferDualStack)
	has(t, prefer, four)
	waitReason(t, prefer, "PartialFamilies")
	require := dual("require", corev1.IPFamilyPolicyRequireDualStack)
	if now := waitReason(t, require, "FamilyUnavailable"); len(now.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("it has %+v", now.Status.LoadBalancer.Ingress)
	}

	temporarily(t, both) // an address of each pool
	has(t, prefer, four, six)
	has(t, require, "198.51.100.171", "2001:db8:51::1:71")

	// The API server takes the second family away, and gives it back.
	patch(t, prefer, `{"spec":{"ipFamilyPolicy":"SingleStack"}}`)
	has(t, prefer, four)
	patch(t, prefer, `{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`)
	eventually(t, "both families", func(context.Context) error {
		if n := len(get(t, prefer).Status.LoadBalancer.Ingress); n != 2 {
			return fmt.Errorf("it has %d addresses", n)
		}
		return nil
	})
	if got := get(t, prefer).Status.LoadBalancer.Ingress; got[0].IP != four {
		t.Errorf("got %+v, want %s first", got, four)
	}
}
