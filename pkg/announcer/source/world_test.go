package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// journal is a log that tests read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), part)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// members is a membership of this node alone.
type members struct{}

func (members) Members() ([]plan.Member, error) { return []plan.Member{{Name: "n1"}}, nil }
func (members) Returns() int                    { return 7 }
func (members) Isolated() bool                  { return false }
func (members) Settling() bool                  { return true }

// unmet is a membership that has not started.
type unmet struct{ members }

func (unmet) Members() ([]plan.Member, error) { return nil, errors.New("the gossip key") }

// running is a World at work, and what it did.
type running struct {
	*World
	api   *fakeAPI
	log   *journal
	kicks atomic.Int64
}

// run starts a World against api until the test ends.
func run(t *testing.T, api *fakeAPI, change func(*Options)) *running {
	t.Helper()
	r := &running{api: api, log: &journal{}}
	o := Options{
		Node: "n1", API: api.client(), Namespace: "kube-system",
		Links: &Links{table: &linkTable{links: []link{{Link: plan.Link{Name: "eth0", Index: 2, Up: true}, addresses: addrs("192.0.2.11")}}}},
		Kick:  func() { r.kicks.Add(1) },
		Log:   r.log.logger(),
	}
	if change != nil {
		change(&o)
	}
	r.World = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		api.cutWatches()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run did not end with its context")
		}
	})
	return r
}

func (r *running) known(t *testing.T) *running {
	t.Helper()
	eventually(t, "the world becomes known", func() string {
		if err := r.Known(); err != nil {
			return err.Error()
		}
		return ""
	})
	return r
}

// has waits until the snapshot shows what want says of it.
func (r *running) has(t *testing.T, want string, show func(plan.Snapshot) string) {
	t.Helper()
	eventually(t, "the snapshot", func() string {
		s, err := r.With(members{}).Snapshot()
		if err != nil {
			t.Fatalf("the snapshot failed after it had been known: %v", err)
		}
		if got := show(s); got != want {
			return fmt.Sprintf("shows %q, want %q", got, want)
		}
		return ""
	})
}

func services(s plan.Snapshot) string {
	var out []string
	for _, svc := range s.Services {
		out = append(out, fmt.Sprintf("%s/%s%v%v", svc.Namespace, svc.Name, svc.Addresses, svc.Endpoints.Ready))
	}
	return strings.Join(out, " ")
}

// populated returns an API server with one of everything.
func populated(t *testing.T) *fakeAPI {
	api := newFakeAPI(t)
	api.put(accepted(documentFor("192.0.2.0/24")))
	api.put(machine("n1", "192.0.2.11"))
	api.put(machine("n2", "192.0.2.12"))
	api.put(balancer("web", "shop", "192.0.2.100"))
	api.put(endpointSlice("web", "shop", "shop-1", endpoint("n2", isReady)))
	kubernetes := balancer("default", "kubernetes")
	kubernetes.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{"10.96.0.1", "fd00:96::1"}}
	api.put(kubernetes)
	api.put(endpointSlice("default", "kubernetes", "kubernetes", discoveryAPI("192.0.2.1")))
	return api
}

func TestSnapshot(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	got, err := r.With(members{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	shop := balancer("web", "shop", "192.0.2.100")
	want := plan.Snapshot{
		Node:   "n1",
		Self:   plan.Standing{Settling: true},
		Config: got.Config,
		Services: []plan.Service{{
			Namespace: "web", Name: "shop", Created: created, Addresses: addrs("192.0.2.100"), Allocated: true,
			Endpoints: plan.Endpoints{Ready: []string{"n2"}},
		}},
		Nodes: []plan.Node{
			{Name: "n1", Labels: map[string]string{corev1.LabelOSStable: "linux"}, Addresses: addrs("192.0.2.11")},
			{Name: "n2", Labels: map[string]string{corev1.LabelOSStable: "linux"}, Addresses: addrs("192.0.2.12")},
		},
		Members:  []plan.Member{{Name: "n1"}},
		Links:    []plan.Link{{Name: "eth0", Index: 2, Up: true, NodeIP: true}},
		Reserved: addrs("10.96.0.1", "192.0.2.1", "fd00:96::1"),
		Returns:  7,
	}
	if diff := cmp.Diff(want.Services, got.Services, compareNet); diff != "" {
		t.Error(diff)
	}
	got.Config, want.Config = plan.Snapshot{}.Config, plan.Snapshot{}.Config
	if diff := cmp.Diff(want, got, compareNet); diff != "" {
		t.Error(diff)
	}
	if text := r.Document(); text != documentFor("192.0.2.0/24") {
		t.Errorf("document %q", text)
	}
	if _, err := r.With(unmet{}).Snapshot(); err == nil || err.Error() != "waiting for the gossip key" {
		t.Errorf("without members: %v", err)
	}
	if uid := r.UID("web/shop"); uid != string(shop.UID) {
		t.Errorf("UID %q", uid)
	}
	for _, request := range []string{
		"GET /api/v1/services?spec.type=LoadBalancer",
		"GET /api/v1/namespaces/default/services?metadata.name=kubernetes",
		"GET /api/v1/namespaces/kube-system/configmaps?metadata.name=ccm-baremetal-accepted",
	} {
		if r.api.asked(request) == 0 {
			t.Errorf("%s was never asked", request)
		}
	}
}

func TestSnapshotNamesWhatIsMissing(t *testing.T) {
	api := newFakeAPI(t)
	api.stop()
	r := run(t, api, func(o *Options) { o.Links = &Links{} })
	const want = "waiting for EndpointSlices, Nodes, Service default/kubernetes, Services, a configuration in ConfigMap kube-system/ccm-baremetal-accepted, links"
	if err := r.Known(); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := r.Peers(); err == nil {
		t.Error("peers are known without Nodes")
	}
	if _, err := r.GossipAddress(); err == nil {
		t.Error("the own address is known without a Node")
	}
}

func TestUnchangedWorldCostsNothing(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	source := r.With(members{})
	first, _ := source.Snapshot()
	allocations := testing.AllocsPerRun(100, func() { source.Snapshot() })
	second, _ := source.Snapshot()
	if &first.Services[0] != &second.Services[0] || &first.Nodes[0] != &second.Nodes[0] {
		t.Error("an unchanged part was built again")
	}
	if allocations > 20 {
		t.Errorf("%v allocations per snapshot", allocations)
	}
}

func TestSnapshotsAreImmutable(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	before, _ := r.With(members{}).Snapshot()
	r.api.put(balancer("web", "shop", "192.0.2.101"))
	r.api.put(endpointSlice("web", "shop", "shop-1", endpoint("n1", isReady)))
	r.has(t, "web/shop[192.0.2.101][n1]", services)
	if got := services(before); got != "web/shop[192.0.2.100][n2]" {
		t.Errorf("the old snapshot has become %s", got)
	}
}

func TestServicesThatAreNotOursAreLeftOut(t *testing.T) {
	api := populated(t)
	class := "example.org/other"
	other := balancer("web", "other", "192.0.2.101")
	other.Spec.LoadBalancerClass = &class
	ignore := balancer("web", "ignore", "192.0.2.102")
	ignore.Annotations = map[string]string{ignoreAnnotation: "true"}
	api.put(other)
	api.put(ignore)
	r := run(t, api, nil).known(t)
	r.has(t, "web/shop[192.0.2.100][n2]", services)

	ignore.Annotations = nil
	api.put(ignore)
	r.has(t, "web/ignore[192.0.2.102][] web/shop[192.0.2.100][n2]", services)

	// The configuration decides, so a new one sorts all Services again.
	api.put(accepted(documentFor("192.0.2.0/24") + "services: {loadBalancerClass: example.org/other, handleUnclassed: false}\n"))
	r.has(t, "web/other[192.0.2.101][]", services)
}

func TestServiceThatStopsBeingALoadBalancerIsForgotten(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	o := balancer("web", "shop", "192.0.2.100")
	o.Spec.Type = corev1.ServiceTypeClusterIP
	r.api.put(o)
	r.has(t, "", services)
}

func TestEndpointsOfSeveralSlicesFollow(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	second := endpointSlice("web", "shop", "shop-2", endpoint("n3", isReady), endpoint("n2", isReady))
	r.api.put(second)
	r.has(t, "web/shop[192.0.2.100][n2 n3]", services)
	moved := endpointSlice("web", "elsewhere", "shop-2", endpoint("n3", isReady))
	r.api.put(moved)
	r.has(t, "web/shop[192.0.2.100][n2]", services)
	r.api.put(second)
	r.has(t, "web/shop[192.0.2.100][n2 n3]", services)
	r.api.remove(second)
	r.has(t, "web/shop[192.0.2.100][n2]", services)
}

func TestB165OnlyWhatMattersKicks(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	marker := func(name string) { // everything before it has been seen when it is there
		r.api.put(machine(name))
		r.has(t, "true", func(s plan.Snapshot) string {
			return fmt.Sprint(s.Nodes[len(s.Nodes)-1].Name == name)
		})
		r.api.put(balancer("z", name))
		r.has(t, "z/"+name+"[][]", func(s plan.Snapshot) string { return services(plan.Snapshot{Services: s.Services[len(s.Services)-1:]}) })
		r.api.put(endpointSlice("z", name, name, endpoint(name, isReady)))
		r.has(t, "z/"+name+"[]["+name+"]", func(s plan.Snapshot) string { return services(plan.Snapshot{Services: s.Services[len(s.Services)-1:]}) })
	}
	marker("x1")
	before := r.kicks.Load()
	for i := range 20 {
		beat := machine("n2", "192.0.2.12")
		beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.NewTime(created.Add(time.Duration(i) * time.Second))}}
		r.api.put(beat)
		rewritten := endpointSlice("web", "shop", "shop-1", endpoint("n2", isReady))
		rewritten.Annotations = map[string]string{"example.org/rewritten": fmt.Sprint(i)}
		r.api.put(rewritten)
		r.api.put(endpointSlice("web", "cluster-ip", "other", endpoint(fmt.Sprint("n", i), isReady)))
		noted := balancer("web", "shop", "192.0.2.100")
		noted.Annotations = map[string]string{"example.org/note": fmt.Sprint(i)}
		r.api.put(noted)
		r.api.put(accepted(documentFor("192.0.2.0/24")))
	}
	marker("x2")
	if got := r.kicks.Load() - before; got != 3 {
		t.Errorf("%d kicks, want the 3 of the markers", got)
	}
}

func TestVirtualLinksAreLeftOutUnlessTheyAreMeant(t *testing.T) {
	api := populated(t)
	r := run(t, api, func(o *Options) {
		o.Links = &Links{table: &linkTable{
			links:   []link{{Link: plan.Link{Name: "cali1", Index: 3}}, {Link: plan.Link{Name: "eth0", Index: 2}}},
			leftOut: map[string]Cause{"lo": Loopback},
		}}
	}).known(t)
	shown := func(s plan.Snapshot) string {
		var names []string
		for _, l := range s.Links {
			names = append(names, l.Name)
		}
		return strings.Join(names, " ")
	}
	r.has(t, "eth0", shown)
	if diff := cmp.Diff(map[string]Cause{"lo": Loopback, "cali1": Virtual}, r.LeftOut()); diff != "" {
		t.Error(diff)
	}
	api.put(accepted(documentFor("192.0.2.0/24") + "advertisements: [{name: lan, layer2: {interfaces: [cali1]}}]\n"))
	r.has(t, "cali1 eth0", shown)
	if diff := cmp.Diff(map[string]Cause{"lo": Loopback}, r.LeftOut()); diff != "" {
		t.Error(diff)
	}
}

func TestPeersAreAllNodesOnWhichAnAnnouncerCanRun(t *testing.T) {
	api := populated(t)
	windows := machine("win", "192.0.2.13")
	windows.Labels[corev1.LabelOSStable] = "windows"
	api.put(windows)
	api.put(machine("new"))
	r := run(t, api, nil).known(t)
	got, err := r.Peers()
	want := map[string]netip.Addr{"n1": netip.MustParseAddr("192.0.2.11"), "n2": netip.MustParseAddr("192.0.2.12")}
	if diff := cmp.Diff(want, got, compareNet); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	own, err := r.GossipAddress()
	if err != nil || own != want["n1"] {
		t.Errorf("own address %v, %v", own, err)
	}
}

// The announcers' own condition is read, and leaves the Services as they are:
// a write of our own must not make the next pass look at everything.
func TestOwnConditionChangesNoSnapshot(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	before, _ := r.With(members{}).Snapshot()
	if got := r.Announced("web/shop"); got != (Announced{}) {
		t.Errorf("there is a condition already: %v", got)
	}
	told := balancer("web", "shop", "192.0.2.100")
	told.Status.Conditions = append(told.Status.Conditions, metav1.Condition{
		Type: "ccm-baremetal.io/Announced", Status: metav1.ConditionTrue, Reason: "Layer2", Message: "from n1",
	})
	r.api.put(told)
	eventually(t, "the condition", func() string {
		if got, want := r.Announced("web/shop"), (Announced{"True", "Layer2", "from n1"}); got != want {
			return fmt.Sprintf("is %v", got)
		}
		return ""
	})
	after, _ := r.With(members{}).Snapshot()
	if &before.Services[0] != &after.Services[0] {
		t.Error("the Services were built again")
	}
}
