package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

// aged makes a Service one of that many hours.
func aged(hours int) func(*v1.Service) {
	return func(svc *v1.Service) {
		svc.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Duration(hours) * time.Hour))
	}
}

// refusedWith gives a Service our condition with status False.
func refusedWith(reason, message string) func(*v1.Service) {
	return func(svc *v1.Service) {
		svc.Status.Conditions = []metav1.Condition{{Type: ConditionAllocated, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
}

func fromPool(names string) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationPool: names} }
}

// surveyed is a cluster of these Services, two Nodes and an API server.
func surveyed(t *testing.T, services ...*v1.Service) (Survey, *fake.Clientset) {
	t.Helper()
	n := machine("n1")
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.10"}}
	objects := []runtime.Object{
		n, machine("n2"), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"tier": "web"}}},
		&discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Endpoints: []discovery.Endpoint{{Addresses: []string{"192.0.2.11"}}}},
	}
	for _, svc := range services {
		objects = append(objects, svc)
	}
	client := fake.NewClientset(objects...)
	s, err := NewSurvey(context.Background(), client)
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func TestAllocationsAreWorkedOutWithoutAController(t *testing.T) {
	s, client := surveyed(t,
		lb("b", aged(5), given(time.Hour, "192.0.2.12")),
		lb("a", aged(4), given(time.Hour, "192.0.2.13")),
		lb("kept", aged(9), given(time.Hour, "203.0.113.1")),
		lb("full", aged(3), refusedWith("PoolExhausted", "as the controller said"), fromPool("small")),
		lb("has", aged(6), given(time.Hour, "198.51.100.1"), fromPool("small")),
		lb("news", aged(2)),
		lb("quota", aged(1), refusedWith("QuotaExceeded", "x"), fromPool("limited")),
		lb("clusterip", func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeClusterIP }),
	)
	before := len(client.Actions())
	got := s.Allocations(load(t, `pools:
- {name: public, addresses: [192.0.2.10-192.0.2.19], namespaceSelector: tier=web}
- {name: small, addresses: [198.51.100.1], autoAssign: false}
- {name: limited, addresses: [198.51.100.9], autoAssign: false, state: draining}
`), time.Now())
	var text strings.Builder
	for _, p := range got.Pools {
		fmt.Fprintf(&text, "%s %s %s size %d held %d free %d waiting %d\n", p.Pool, p.State, p.Family, p.Size, p.Held, p.Free, p.Waiting)
	}
	for _, h := range got.Holders {
		fmt.Fprintf(&text, "%s %q %s %s %v\n", h.Address, h.Pool, h.Service, h.Reason, h.Since.IsZero())
	}
	for _, w := range got.Waiting {
		fmt.Fprintf(&text, "%s %s %v\n", w.Service, w.Reason, w.Pools)
	}
	want := `public active IPv4 size 8 held 2 free 6 waiting 0
small active IPv4 size 1 held 1 free 0 waiting 1
limited draining IPv4 size 1 held 0 free 1 waiting 0
192.0.2.12 "public" web/b Allocated false
192.0.2.13 "public" web/a Allocated false
198.51.100.1 "small" web/has Allocated false
203.0.113.1 "" web/kept Allocated false
web/full PoolExhausted [small]
web/news Pending []
web/quota QuotaExceeded []
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got.Waiting[0].Message != "as the controller said" || !strings.Contains(got.Waiting[1].Message, "192.0.2.14") {
		t.Errorf("%+v", got.Waiting)
	}
	if len(client.Actions()) != before {
		t.Errorf("asked of the API server: %v", client.Actions()[before:])
	}
}

func TestSurveyReadsOnlyAndSaysWhatItCannotRead(t *testing.T) {
	_, client := surveyed(t, lb("a"))
	for _, a := range client.Actions() {
		if a.GetVerb() != "list" && a.GetVerb() != "get" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	for _, resource := range []string{"services", "nodes", "namespaces", "endpointslices"} {
		broken := fake.NewClientset()
		broken.PrependReactor("*", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no right")
		})
		if _, err := NewSurvey(context.Background(), broken); err == nil || !strings.Contains(err.Error(), "no right") {
			t.Errorf("%s: %v", resource, err)
		}
	}
}

func TestSurveyedImpactIsThatOfTheController(t *testing.T) {
	holders := []*v1.Service{lb("a", aged(5), given(time.Hour, "192.0.2.12")), lb("b", aged(4), given(time.Hour, "192.0.2.13"))}
	before := load(t, "pools:\n- {name: public, addresses: [192.0.2.12-192.0.2.13]}\n")
	after := load(t, "pools:\n- {name: public, addresses: [192.0.2.12-192.0.2.13], namespaces: [x], onMismatch: reassign}\n- {name: new, addresses: [198.51.100.1]}\n")
	s, _ := surveyed(t, holders...)
	moved := s.Impact(&before, after, time.Now()).Effects
	if len(moved) != 1 || moved[0].Service != "web/a" || moved[0].Fate != Moved || moved[0].To.String() != "198.51.100.1" {
		t.Errorf("%+v", moved)
	}
	// The one address to move to goes to a Service that waits for it.
	s, _ = surveyed(t, append(holders, lb("waits", aged(3), fromPool("new"), refusedWith("NoPool", "x")))...)
	if got := s.Impact(&before, after, time.Now()).Effects; len(got) != 0 {
		t.Errorf("%+v", got)
	}
	// Who has not been given anything yet has nothing to lose.
	s, _ = surveyed(t, append(holders, lb("unseen", aged(1)))...)
	unclassed := load(t, "services: {handleUnclassed: false}\npools:\n- {name: public, addresses: [192.0.2.12-192.0.2.19]}\n")
	wide := load(t, "pools:\n- {name: public, addresses: [192.0.2.12-192.0.2.19]}\n")
	if got := s.Impact(&wide, unclassed, time.Now()); len(got.Effects) != 2 || got.InUse != 2 {
		t.Errorf("%+v", got)
	}
	silent := s.Impact(nil, load(t, "pools:\n- {name: public, addresses: [192.0.2.12-192.0.2.13]}\nadvertisements: [{name: x, nodeSelector: a=b, layer2: {}}]\n"), time.Now())
	if len(silent.Silent) != 2 || len(silent.Effects) != 0 || silent.InUse != 2 {
		t.Errorf("%+v", silent)
	}
}

func TestTracesAreRemovedAndNothingElse(t *testing.T) {
	class, other := "ccm-baremetal.io/announcer", "example.org/other"
	classed := func(name *string) func(*v1.Service) {
		return func(svc *v1.Service) { svc.Spec.LoadBalancerClass = name }
	}
	for name, c := range map[string]struct {
		svc     *v1.Service
		release bool
		want    string // addresses | conditions | finalizers; empty: no traces
	}{
		"all but the address":      {lb("s", given(time.Hour, "192.0.2.10"), announcing, others, finalized), false, "192.0.2.10 | example.com/Ready | example.com/other"},
		"the address as well":      {lb("s", given(time.Hour, "192.0.2.10"), announcing), true, " |  | "},
		"what others wrote stays":  {lb("s", given(time.Hour, "192.0.2.10"), func(svc *v1.Service) { showing("192.0.2.10", "192.0.2.99")(svc) }), true, "192.0.2.99 |  | "},
		"a refusal confirms none":  {lb("s", showing("192.0.2.10"), refusedWith("ForeignAddress", "192.0.2.10 is not ours")), true, "192.0.2.10 |  | "},
		"longer address":           {lb("s", showing("192.0.2.1"), given(time.Hour, "192.0.2.10"), showing("192.0.2.1")), true, "192.0.2.1 |  | "},
		"finalizer, our class":     {lb("s", finalized, classed(&class)), false, " |  | example.com/other"},
		"finalizer, foreign class": {lb("s", finalized, classed(&other)), false, ""},
		"finalizer, no class":      {lb("s", finalized), false, ""},
		"another's address":        {lb("s", showing("192.0.2.10"), others), true, ""},
		"not a load balancer any more": {lb("s", given(time.Hour, "192.0.2.10"), func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeClusterIP }),
			true, " |  | "},
	} {
		t.Run(name, func(t *testing.T) {
			traces := TracesOn(c.svc, load(t, pool(4)).Services)
			if traces.Any() != (c.want != "") {
				t.Fatalf("%+v", traces)
			}
			if c.want == "" {
				return
			}
			patch, err := traces.Removal(c.release)
			if err != nil {
				t.Fatal(err)
			}
			after := apply(t, c.svc, patch)
			var addresses, conditions []string
			for _, entry := range after.Status.LoadBalancer.Ingress {
				addresses = append(addresses, entry.IP)
			}
			for _, condition := range after.Status.Conditions {
				conditions = append(conditions, condition.Type)
			}
			got := strings.Join(addresses, ",") + " | " + strings.Join(conditions, ",") + " | " + strings.Join(after.Finalizers, ",")
			if got != c.want {
				t.Errorf("got %q, want %q, by %s", got, c.want, patch)
			}
			if TracesOn(after, load(t, pool(4)).Services).Any() {
				t.Error("there is still something")
			}
		})
	}
}

func TestRemovalLosesAgainstAChange(t *testing.T) {
	svc := lb("s", given(time.Hour, "192.0.2.10"))
	svc.ResourceVersion = "42"
	patch, err := TracesOn(svc, load(t, pool(4)).Services).Removal(false)
	if err != nil {
		t.Fatal(err)
	}
	var body v1.Service
	if err := json.Unmarshal(patch, &body); err != nil || body.ResourceVersion != "42" {
		t.Errorf("%s: %v", patch, err)
	}
}
