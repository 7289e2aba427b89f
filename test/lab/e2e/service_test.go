package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

func TestServiceGetsAnAddressAndIsReachedThroughIt(t *testing.T) {
	atRest(t)
	s, a, o := serving(t, "reach")
	if !netip.MustParsePrefix("198.51.100.0/24").Contains(a) {
		t.Errorf("got %s, which is not of pool lan", a)
	}
	now := get(t, s)
	if mode := now.Status.LoadBalancer.Ingress[0].IPMode; mode == nil || *mode != corev1.LoadBalancerIPModeVIP {
		t.Errorf("ipMode is %v, want VIP", mode)
	}
	if len(now.Finalizers) != 0 {
		t.Errorf("it has finalizers: %v", now.Finalizers)
	}
	on := map[string]bool{}
	for range 60 {
		body, err := cluster.Get(bounded(t), lab.Client, "http://"+a.String()+"/")
		must(t, err)
		on[body[strings.LastIndex(body, " ")+1:]] = true
	}
	if len(on) < 2 {
		t.Errorf("60 requests reached pods on %v only", on)
	}
	who := owner(t, o)
	waitEvent(t, "reach", "web", "announcing "+a.String()+" from "+who)
	page, err := installed.Debug(bounded(t), names()[0], "/debug/plan?format=text")
	must(t, err)
	if !strings.Contains(page, a.String()) || !strings.Contains(page, who) {
		t.Errorf("/debug/plan does not name %s and %s:\n%s", a, who, page)
	}
	noAddressOnAnyLink(t, a)
}

// noAddressOnAnyLink: an address that is announced is never configured.
func noAddressOnAnyLink(t *testing.T, a netip.Addr) {
	t.Helper()
	for _, h := range cluster.Hosts() {
		out, err := cluster.Run(bounded(t), h.Name, "ip", "address", "show")
		must(t, err)
		if strings.Contains(out, a.String()+"/") {
			t.Errorf("%s is configured on %s:\n%s", a, h.Name, out)
		}
	}
}

func TestTwoHundredServicesAtOnce(t *testing.T) {
	atRest(t)
	const n = 200
	serve(t, "many", "web")
	mark := time.Now()
	services := make([]*corev1.Service, n)
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := w; i < n; i += 8 {
				s := lab.LoadBalancer("many", fmt.Sprintf("s%03d", i), "web")
				s.Annotations = map[string]string{"ccm-baremetal.io/pool": "wide"}
				made, err := cluster.CreateService(t.Context(), s)
				if err != nil {
					t.Error(err)
					return
				}
				services[i] = made
			}
		})
	}
	workers.Wait()
	t.Cleanup(func() {
		for _, s := range services {
			if s != nil {
				remove(t, s)
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	created := time.Now()

	var all []netip.Addr
	for _, s := range services {
		all = append(all, address(t, s))
	}
	t.Logf("%d Services created in %.1f s, all have addresses %.1f s later", n, created.Sub(mark).Seconds(), time.Since(created).Seconds())
	distinct(t, held(t, "many"), n)

	w, err := cluster.Watch(lab.Client, 200*time.Millisecond, all...)
	must(t, err)
	ctx, cancel := context.WithDeadline(t.Context(), created.Add(time.Minute))
	defer cancel()
	for _, a := range all {
		if _, err := w.Of(a).WaitReply(ctx, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("all are answered %.1f s after the last was created", time.Since(created).Seconds())
	must(t, w.Close())

	log, err := cluster.Audit(mark)
	must(t, err)
	patches := log.User("kube-system/ccm-baremetal").On("services/status").Verb("patch").Succeeded()
	if len(patches) != n {
		t.Errorf("%d patches of services/status for %d Services", len(patches), n)
	}

	t.Run("RestartWritesNothing", func(t *testing.T) { restartWritesNothing(t, "many") })
	t.Run("NothingIsWrittenAtRest", nothingIsWrittenAtRest)
}

// restartWritesNothing kills both CCMs and starts one again.
func restartWritesNothing(t *testing.T, namespace string) {
	before := held(t, namespace)
	must(t, installed.CCM(1).Kill())
	mark := time.Now()
	restartCCM(t)
	probe := create(t, lab.LoadBalancer(namespace, "after-restart", "web"))
	address(t, probe) // it leads, has restored, and decides
	if n := serviceWrites(t, mark); n != 1 {
		t.Errorf("%d writes to Services after the restart, want only the one for the new Service", n)
	}
	remove(t, probe)
	after := held(t, namespace)
	delete(after, "after-restart")
	sameHoldings(t, before, after)
	_, err := installed.StartCCM(1)
	must(t, err)
}

// restartCCM kills the CCM number 0 and starts it again.
func restartCCM(t *testing.T) {
	t.Helper()
	must(t, installed.CCM(0).Kill())
	_, err := installed.StartCCM(0)
	must(t, err)
}

func sameHoldings(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, a := range before {
		if after[name] != a {
			t.Errorf("%s had %s, and has %q", name, a, after[name])
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d Services had an address, and %d have", len(before), len(after))
	}
}

// nothingIsWrittenAtRest looks at a world that does not change: neither
// program may write anything but the leader's Lease.
func nothingIsWrittenAtRest(t *testing.T) {
	mark := calm(t, slowly)
	time.Sleep(time.Duration(times(20, 300)) * time.Second)
	must(t, written(mark))
}

// A document that refuses: the doubled pool is named, the last good one stays
// in force, and new Services are still served.
func TestB002DoubledPoolNameKeepsTheLastGoodDocument(t *testing.T) {
	atRest(t)
	restore := document
	t.Cleanup(func() { must(t, installed.Configure(context.Background(), restore)) })
	must(t, installed.Configure(bounded(t), document+"- name: lan\n  addresses: [198.51.100.160-198.51.100.165]\n"))
	waitEvent(t, product.Namespace, product.ConfigMap, "Warning", "lan", "pools[0]", "pools[2]")
	s := create(t, lab.LoadBalancer("b002", "new", "web"))
	address(t, s)
	accepted, err := cluster.Client().CoreV1().ConfigMaps(product.Namespace).Get(bounded(t), product.Accepted, metav1.GetOptions{})
	must(t, err)
	if accepted.Data[product.ConfigKey] != document {
		t.Errorf("in force is\n%s", accepted.Data[product.ConfigKey])
	}
}

func TestB010PoolGrownAtTheLowEndMovesNobody(t *testing.T) {
	atRest(t)
	t.Cleanup(func() { must(t, installed.Configure(context.Background(), document)) })
	withPool := func(addresses string) string {
		return document + "- name: narrow\n  autoAssign: false\n  addresses: " + addresses + "\n"
	}
	enforce(t, withPool("[198.51.100.170-198.51.100.177]"))
	for i := range 5 {
		s := lab.LoadBalancer("b010", fmt.Sprintf("s%d", i), "web")
		s.Annotations = map[string]string{"ccm-baremetal.io/pool": "narrow"}
		address(t, create(t, s))
	}
	before := held(t, "b010")
	mark := time.Now()
	for _, addresses := range []string{"[198.51.100.167-198.51.100.177]", "[198.51.100.167-198.51.100.175, 198.51.100.177]"} {
		enforce(t, withPool(addresses))
	}
	time.Sleep(3 * time.Second)
	sameHoldings(t, before, held(t, "b010"))
	if n := serviceWrites(t, mark); n != 0 {
		t.Errorf("%d writes to Services", n)
	}
}

// inForce waits until a document is the accepted one, and what the announcers
// that run go by.
func inForce(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the document to be in force", func(ctx context.Context) error {
		accepted, err := cluster.Client().CoreV1().ConfigMaps(product.Namespace).Get(ctx, product.Accepted, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if accepted.Data[product.ConfigKey] != want {
			return fmt.Errorf("in force is\n%s", accepted.Data[product.ConfigKey])
		}
		for _, n := range names() {
			if err := goesBy(ctx, n, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// goesBy returns an error if the announcer of a node runs and goes by another
// document.
func goesBy(ctx context.Context, node, want string) error {
	if !installed.Announcer(node).Running() {
		return nil
	}
	page, err := debug(ctx, node)
	if err != nil {
		return err
	}
	if page.Document != want {
		return fmt.Errorf("%s goes by\n%s", node, page.Document)
	}
	return nil
}

func TestB013TwoNamespacesNeverGetTheSameAddress(t *testing.T) {
	atRest(t)
	var creators sync.WaitGroup
	for _, namespace := range []string{"b013-a", "b013-b"} {
		creators.Go(func() {
			for i := range 20 {
				s, err := cluster.CreateService(t.Context(), lab.LoadBalancer(namespace, fmt.Sprintf("%s-s%d", namespace, i), "web"))
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { remove(t, s) })
				if _, err := cluster.WaitIngress(t.Context(), s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creators.Wait()
	all := held(t, "b013-a")
	for name, a := range held(t, "b013-b") {
		all[name] = a
	}
	distinct(t, all, 40)
}

func TestB015AddressesOutsideThePoolsAreNeverGivenNorAnnounced(t *testing.T) {
	atRest(t)
	node := cluster.Nodes()[0].IPv4.String()
	serve(t, "b015", "web")
	wrong := map[string]string{
		"outside": "198.51.100.199", "router": "198.51.100.1", "node": node, "zero": "0.0.0.0", "loopback": "127.0.0.1",
		"multicast": "224.0.0.1", "link-local-v6": "fe80::1", "loopback-v6": "::1",
	}
	for name, a := range wrong {
		s := lab.LoadBalancer("b015", name, "web")
		s.Annotations = map[string]string{"ccm-baremetal.io/addresses": a}
		made := create(t, s)
		eventually(t, "a refusal of "+a, func(context.Context) error {
			now := get(t, made)
			if c := condition(now); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, a) {
				return fmt.Errorf("its condition is %+v", c)
			}
			if len(now.Status.LoadBalancer.Ingress) > 0 {
				return fmt.Errorf("it got %v", now.Status.LoadBalancer.Ingress)
			}
			return nil
		})
	}
	t.Run("NotEvenFromAStatusWrittenByHand", func(t *testing.T) {
		byHand := create(t, lab.LoadBalancer("b015", "by-hand", "web"))
		address(t, byHand)
		theft := netip.MustParseAddr("198.51.100.199")
		o := look(t, theft)
		mark := time.Now()
		must(t, cluster.SetIngress(bounded(t), byHand, theft))
		time.Sleep(5 * time.Second)
		silent(t, o, mark)
	})
}

// The CCM is killed again and again with one Service waiting and the pool full.
func TestB023RestartGivesTheWaitingServiceNobodysAddress(t *testing.T) {
	atRest(t)
	t.Cleanup(func() { must(t, installed.Configure(context.Background(), document)) })
	enforce(t, document+"- name: two\n  autoAssign: false\n  addresses: [198.51.100.180, 198.51.100.181]\n")
	pinned := func(name string) *corev1.Service {
		s := lab.LoadBalancer("b023", name, "web")
		s.Annotations = map[string]string{"ccm-baremetal.io/pool": "two"}
		return s
	}
	address(t, create(t, pinned("b")))
	address(t, create(t, pinned("c")))
	waitReason(t, create(t, pinned("a")), "PoolExhausted")
	before := held(t, "b023")
	must(t, installed.CCM(1).Kill())
	for range times(3, 20) {
		mark := time.Now()
		restartCCM(t)
		probe := create(t, lab.LoadBalancer("b023-probe", "probe", "web"))
		address(t, probe)
		remove(t, probe)
		sameHoldings(t, before, held(t, "b023"))
		if n := serviceWrites(t, mark); n != 1 {
			t.Errorf("%d writes to Services, want one: that for the probe", n)
		}
	}
	_, err := installed.StartCCM(1)
	must(t, err)
}

// bare says what is left of either program on a Service that is not ours.
func bare(s *corev1.Service) error {
	if len(s.Status.LoadBalancer.Ingress) != 0 || len(s.Status.Conditions) != 0 || len(s.Finalizers) != 0 {
		return fmt.Errorf("it has %+v, finalizers %v", s.Status, s.Finalizers)
	}
	return nil
}

func TestB041TypeChangedAwayAndBack(t *testing.T) {
	atRest(t)
	s, a, o := serving(t, "b041")
	saysAnnounced(t, s, metav1.ConditionTrue, "Layer2", a.String())
	patch(t, s, `{"spec":{"type":"ClusterIP"}}`)
	eventually(t, "status to be empty", func(context.Context) error { return bare(get(t, s)) })
	quiet := time.Now().Add(5 * time.Second)
	time.Sleep(time.Until(quiet.Add(time.Second)))
	silent(t, o, quiet)
	must(t, bare(get(t, s))) // nobody has written it again

	// The address goes to another Service by name, so that it is taken for sure.
	other := lab.LoadBalancer("b041", "other", "web")
	other.Annotations = map[string]string{"ccm-baremetal.io/addresses": a.String()}
	if got := address(t, create(t, other)); got != a {
		t.Fatalf("the other Service got %s, want %s", got, a)
	}
	patch(t, s, `{"spec":{"type":"LoadBalancer"}}`)
	if got := address(t, s); got == a {
		t.Errorf("both Services have %s", a)
	}
}

// 200 Services of which each is edited right after it was created.
func TestB043EditsRightAfterCreationLoseNoAddress(t *testing.T) {
	atRest(t)
	const n = 200
	var all []*corev1.Service
	for i := range n {
		s := lab.LoadBalancer("b043", fmt.Sprintf("s%03d", i), "web")
		s.Annotations = map[string]string{"ccm-baremetal.io/pool": "wide"}
		made := create(t, s)
		patch(t, made, `{"metadata":{"labels":{"touched":"yes"}}}`)
		all = append(all, made)
	}
	for _, s := range all {
		address(t, s)
	}
	distinct(t, held(t, "b043"), n)
}

func TestB045NodePortsAreNotNeeded(t *testing.T) {
	atRest(t)
	serve(t, "b045", "web")
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{"Cluster", "Local"} {
		t.Run(string(policy), func(t *testing.T) {
			no := false
			s := lab.LoadBalancer("b045", "web-"+strings.ToLower(string(policy)), "web")
			s.Spec.AllocateLoadBalancerNodePorts = &no
			s.Spec.ExternalTrafficPolicy = policy
			made := create(t, s)
			a := address(t, made)
			watch(t, a)
			reachable(t, a)
			for _, ports := range []string{"false", "true", "false"} {
				patch(t, made, `{"spec":{"allocateLoadBalancerNodePorts":`+ports+`}}`)
				reachable(t, a)
				if now := address(t, made); now != a {
					t.Errorf("the address is %s, was %s", now, a)
				}
			}
		})
	}
}

func TestB050OtherKindsOfServicesAreLeftAlone(t *testing.T) {
	atRest(t)
	clusterIP := lab.LoadBalancer("b050", "cluster-ip", "web")
	clusterIP.Spec.Type = corev1.ServiceTypeClusterIP
	headless := lab.LoadBalancer("b050", "headless", "web")
	headless.Spec.Type, headless.Spec.ClusterIP = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone
	external := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "b050", Name: "external"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"},
	}
	class := "example.org/other"
	foreign := lab.LoadBalancer("b050", "foreign", "web")
	foreign.Spec.LoadBalancerClass = &class
	others := []*corev1.Service{create(t, clusterIP), create(t, headless), create(t, external), create(t, foreign)}

	changing := create(t, lab.LoadBalancer("b050", "changing", "web"))
	a := address(t, changing)
	patch(t, changing, `{"spec":{"type":"ExternalName","externalName":"example.org","clusterIP":null,"clusterIPs":null}}`)
	eventually(t, "the address to be free", func(context.Context) error {
		if c := condition(get(t, changing)); c != nil {
			return fmt.Errorf("it still has %+v", c)
		}
		return nil
	})
	taker := lab.LoadBalancer("b050", "taker", "web")
	taker.Annotations = map[string]string{"ccm-baremetal.io/addresses": a.String()}
	if got := address(t, create(t, taker)); got != a {
		t.Errorf("got %s, want the freed %s", got, a)
	}
	for _, s := range others {
		now := get(t, s)
		if len(now.Status.LoadBalancer.Ingress) != 0 || len(now.Status.Conditions) != 0 || len(now.Finalizers) != 0 {
			t.Errorf("%s was touched: %+v, finalizers %v", s.Name, now.Status, now.Finalizers)
		}
	}
}

// The leader is stopped for so long that the other takes over, and goes on.
func TestFrozenLeaderCannotGiveAnAddressTwice(t *testing.T) {
	atRest(t)
	leader := leading(t)
	must(t, leader.Pause())
	var made []*corev1.Service
	for i := range 10 {
		made = append(made, create(t, lab.LoadBalancer("frozen", fmt.Sprintf("s%d", i), "web")))
	}
	for _, s := range made {
		address(t, s) // by the other, once the Lease has run out
	}
	before := held(t, "frozen")
	distinct(t, before, 10)
	eventually(t, "the new leader to be done", func(context.Context) error {
		if w := serviceAttempts(t, time.Now().Add(-2*time.Second)); len(w) > 0 {
			return fmt.Errorf("in the last two seconds:\n%s", w)
		}
		return nil
	})

	awake := time.Now()
	must(t, leader.Resume())
	// It tries for ten seconds to get its Lease back, and then ends.
	eventually(t, "the former leader to end", func(context.Context) error {
		if leader.Running() {
			return errors.New("it runs")
		}
		return nil
	})
	if w := serviceAttempts(t, awake); len(w) > 0 {
		t.Errorf("writes of services since the former leader woke up:\n%s", w)
	}
	if after := held(t, "frozen"); !maps.Equal(before, after) {
		t.Errorf("before it woke up: %v, after: %v", before, after)
	}
	for i := range 2 {
		if p := installed.CCM(i); !p.Running() {
			_, err := installed.StartCCM(i)
			must(t, err)
		}
	}
}

// leading waits for the CCM that holds the Lease.
func leading(t *testing.T) (leads *lab.Process) {
	t.Helper()
	eventually(t, "a CCM to lead", func(context.Context) error {
		if leads = leader(); leads == nil {
			return errors.New("none does")
		}
		return nil
	})
	return leads
}

// leader returns the CCM that holds the Lease, nil if none does.
func leader() *lab.Process {
	for i := range 2 {
		// Both run on one host, so the holder's name does not tell them apart,
		// and the log is also that of the processes before this one. But each
		// line has the process' number.
		p := installed.CCM(i)
		if p == nil || !p.Running() {
			continue
		}
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, fmt.Sprintf(" %d ", p.PID)) && strings.Contains(line, "became leader") {
				return p
			}
		}
	}
	return nil
}
