package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
	"github.com/ccm-baremetal/ccm-baremetal/test/events"
)

// patience bounds every wait for something that must come. It is generous: the
// machine may be slow and busy.
const patience = time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// A leader is a running Controller.
type leader struct {
	*Controller
	api    *apiserver
	events *events.Recorder
	stop   func() // like kill -9, as far as the API server can tell
}

// lead starts a Controller; without a document it has no configuration.
func lead(t *testing.T, api *apiserver, document string) *leader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &leader{api: api, events: &events.Recorder{}}
	shared := informers.NewSharedInformerFactory(api, 0)
	l.Controller = New(Options{Client: api, Shared: shared, Events: l.events, Log: slog.New(slog.DiscardHandler), Workers: 8})
	if err := l.Watch(); err != nil {
		t.Fatal(err)
	}
	shared.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	l.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(l.stop)
	if document != "" {
		l.Apply(load(t, document))
	}
	return l
}

// load reads a document that starts after its kind.
func load(t *testing.T, document string) config.Config {
	t.Helper()
	c, err := config.Load([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n" + document))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pool is a document with one pool of that many addresses from 192.0.2.10 on.
func pool(size int) string {
	return fmt.Sprintf("pools:\n- name: public\n  addresses: [192.0.2.10-192.0.2.%d]\n", 9+size)
}

// lb is a Service of type LoadBalancer in namespace web.
func lb(name string, change ...func(*v1.Service)) *v1.Service {
	svc := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		Spec: v1.ServiceSpec{
			Type:       v1.ServiceTypeLoadBalancer,
			IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
			Ports:      []v1.ServicePort{{Protocol: v1.ProtocolTCP, Port: 80}},
		},
	}
	for _, c := range change {
		c(svc)
	}
	return svc
}

// showing gives a Service addresses in its status that we have not given.
func showing(addresses ...string) func(*v1.Service) {
	return func(svc *v1.Service) {
		svc.Status.LoadBalancer.Ingress = nil
		for _, a := range addresses {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: a})
		}
	}
}

// given gives a Service addresses as we would have, some time ago.
func given(age time.Duration, addresses ...string) func(*v1.Service) {
	return func(svc *v1.Service) {
		vip := v1.LoadBalancerIPModeVIP
		for _, a := range addresses {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: a, IPMode: &vip})
		}
		svc.Status.Conditions = []metav1.Condition{{
			Type: ConditionAllocated, Status: metav1.ConditionTrue, Reason: "Allocated",
			Message:            verdict(addresses...),
			LastTransitionTime: metav1.NewTime(time.Now().Add(-age).Truncate(time.Second)),
		}}
	}
}

// verdict is a message that confirms addresses of the pool.
func verdict(addresses ...string) string {
	var confirmed []config.Confirmation
	for _, a := range addresses {
		confirmed = append(confirmed, config.Confirmation{Address: netip.MustParseAddr(a), Pool: "public"})
	}
	return config.Verdict(confirmed)
}

// address returns the addresses in a Service's status, joined by commas.
func (s *apiserver) address(t *testing.T, key string) string {
	t.Helper()
	svc, err := s.get(key)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range held(svc) {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

// reason returns the reason in our condition, "" without one.
func (s *apiserver) reason(t *testing.T, key string) string {
	t.Helper()
	svc, err := s.get(key)
	if err != nil {
		t.Fatal(err)
	}
	if c := allocated(svc); c != nil {
		return c.Reason
	}
	return ""
}

// awaitAddress waits until a Service has an address, and returns it.
func (s *apiserver) awaitAddress(t *testing.T, key string) string {
	t.Helper()
	eventually(t, key+" has an address", func() bool { return s.address(t, key) != "" && s.reason(t, key) == "Allocated" })
	return s.address(t, key)
}

func (s *apiserver) awaitReason(t *testing.T, key, reason string) {
	t.Helper()
	eventually(t, key+": "+reason, func() bool { return s.reason(t, key) == reason })
}

// settle waits until everything that has happened so far has been looked at:
// what is queued is served in its order, so a newcomer is served last.
func (l *leader) settle(t *testing.T) {
	t.Helper()
	marker := fmt.Sprintf("marker-%d", time.Now().UnixNano())
	l.api.create(lb(marker, func(svc *v1.Service) {
		class := "ccm-baremetal.io/announcer" // served whatever the document says of others
		svc.Spec.LoadBalancerClass = &class
		svc.Annotations = map[string]string{wish.AnnotationPool: "no-such-pool"}
	}))
	eventually(t, "the queue is empty", func() bool {
		return l.api.reason(t, "web/"+marker) != "" && l.queue.Len() == 0
	})
	l.api.remove(t, "web/"+marker)
}

// writes returns how many patches were asked for, but for those of markers.
func (s *apiserver) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, key := range s.patches {
		if !strings.HasPrefix(key, "web/marker-") {
			n++
		}
	}
	return n
}
