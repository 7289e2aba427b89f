package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	upstream "k8s.io/cloud-provider/controllers/service"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const patience = time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// provider returns a Provider whose own controllers do not run.
func provider(client *fake.Clientset) *Provider {
	shared, events := informers.NewSharedInformerFactory(client, 0), record.NewFakeRecorder(10)
	services := service.New(service.Options{Client: client, Shared: shared, Events: events, Log: slog.New(slog.DiscardHandler)})
	p := forNodes(client, shared, events, services.Balancer())
	p.service = services
	return p
}

// forNodes returns a Provider that can be used for Nodes only.
func forNodes(client *fake.Clientset, shared informers.SharedInformerFactory, events record.EventRecorder, services instances.Holders) *Provider {
	i := instances.New(instances.Options{
		Client: client, Config: &rest.Config{}, Namespace: "kube-system", Shared: shared, Services: services, Events: events, Log: slog.New(slog.DiscardHandler),
	})
	return &Provider{instances: i, labels: instances.NewLabeller(i)}
}

// ready puts a pool of that many addresses in force, with nothing held yet.
func ready(t *testing.T, b *service.Balancer, size int) {
	t.Helper()
	c, err := config.Load(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\npools:\n- addresses: [192.0.2.10-192.0.2.%d]\n",
		config.APIVersion, config.Kind, 9+size))
	if err != nil {
		t.Fatal(err)
	}
	b.Configure(c, ipam.Cluster{})
	b.Restore(nil)
}

func lb(name string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}},
	}
}

// TestUpstreamServiceController drives the provider through the framework's
// own controller, which is what the LoadBalancer interface was made for.
func TestUpstreamServiceController(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset()
	p := provider(client)
	ready(t, p.service.Balancer(), 2)
	shared := informers.NewSharedInformerFactory(client, 0)
	controller, err := upstream.New(p, client, shared.Core().V1().Services(), shared.Core().V1().Nodes(), "test", utilfeature.DefaultFeatureGate)
	if err != nil {
		t.Fatal(err)
	}
	shared.Start(ctx.Done())
	go controller.Run(ctx, 4, controllersmetrics.NewControllerManagerMetrics("test"))

	services := client.CoreV1().Services("web")
	create := func(name string) {
		t.Helper()
		if _, err := services.Create(ctx, lb(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ingress := func(name string) []v1.LoadBalancerIngress {
		svc, err := services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return svc.Status.LoadBalancer.Ingress
	}
	addresses := map[string]string{}
	for _, name := range []string{"a", "b"} {
		create(name)
		eventually(t, name+" has an address", func() bool { return len(ingress(name)) == 1 })
		got := ingress(name)[0]
		if got.IPMode == nil || *got.IPMode != v1.LoadBalancerIPModeVIP {
			t.Errorf("%s: mode %v", name, got.IPMode)
		}
		addresses[got.IP] = name
	}
	if len(addresses) != 2 || addresses["192.0.2.10"] == "" || addresses["192.0.2.11"] == "" {
		t.Errorf("got %v", addresses)
	}

	// Upstream releases when it sees the deletion; the fake does not model it.
	svc, err := services.Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	svc.DeletionTimestamp = &now
	if _, err := services.Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a is cleaned up", func() bool { return len(ingress("a")) == 0 })
	create("c")
	eventually(t, "c has an address", func() bool { return len(ingress("c")) == 1 })
	if got := ingress("c")[0].IP; addresses[got] != "a" {
		t.Errorf("c got %s, want what a had", got)
	}
}

func TestLoadBalancerAnswersInMemory(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset()
	p := provider(client)
	balancer, supported := p.LoadBalancer()
	if !supported {
		t.Fatal("not supported")
	}
	a, b := lb("a"), lb("b")
	ensure := func(svc *v1.Service) (*v1.LoadBalancerStatus, error) {
		return balancer.EnsureLoadBalancer(ctx, "test", svc, nil)
	}

	_, err := ensure(a)
	if !errors.Is(err, service.ErrNotReady) || !retries(err) {
		t.Errorf("before anything is known: %v", err)
	}
	if _, _, err := balancer.GetLoadBalancer(ctx, "test", a); !errors.Is(err, service.ErrNotReady) {
		t.Errorf("before anything is known it must not be said that there is none: %v", err)
	}
	if err := balancer.EnsureLoadBalancerDeleted(ctx, "test", a); !errors.Is(err, service.ErrNotReady) {
		t.Errorf("before anything is known: %v", err)
	}

	ready(t, p.service.Balancer(), 1)
	if _, exists, err := balancer.GetLoadBalancer(ctx, "test", a); exists || err != nil {
		t.Errorf("before a is known: %v, %v", exists, err)
	}
	first, err := ensure(a)
	if err != nil || len(first.Ingress) != 1 {
		t.Fatalf("a gets %v, %v", first, err)
	}
	a.Status.LoadBalancer = *first
	again, err := ensure(a)
	if err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("the same question is answered by %v, then by %v (%v)", first, again, err)
	}
	if got, exists, err := balancer.GetLoadBalancer(ctx, "test", a); !exists || err != nil || got.Ingress[0].IP != first.Ingress[0].IP {
		t.Errorf("a has %v, %v, %v", got, exists, err)
	}

	_, err = ensure(b)
	refusal := (*service.Refusal)(nil)
	if !errors.As(err, &refusal) || refusal.Reason != ipam.PoolExhausted || !retries(err) {
		t.Errorf("b: %v", err)
	}

	namesake := lb("a")
	namesake.UID = "another"
	if _, exists, _ := balancer.GetLoadBalancer(ctx, "test", namesake); exists {
		t.Error("a namesake has what belongs to a")
	}
	if err := balancer.EnsureLoadBalancerDeleted(ctx, "test", namesake); err != nil {
		t.Error(err)
	}
	if _, err = ensure(b); err == nil {
		t.Fatal("deleting a namesake freed a's address")
	}
	for range 2 { // it is idempotent
		if err := balancer.EnsureLoadBalancerDeleted(ctx, "test", a); err != nil {
			t.Error(err)
		}
	}
	if got, err := ensure(b); err != nil || got.Ingress[0].IP != first.Ingress[0].IP {
		t.Errorf("b gets %v, %v", got, err)
	}

	class := "example.com/other"
	foreign := lb("foreign")
	foreign.Spec.LoadBalancerClass = &class
	if _, err := ensure(foreign); err != cloudprovider.ImplementedElsewhere {
		t.Errorf("a foreign class: %v", err)
	}
	if err := balancer.UpdateLoadBalancer(ctx, "test", b, nil); err != cloudprovider.ImplementedElsewhere {
		t.Errorf("update: %v", err)
	}
	if got := balancer.GetLoadBalancerName(ctx, "test", lb("a")); got != "auida" {
		t.Errorf("name is %q", got)
	}
	if n := len(client.Actions()); n != 0 {
		t.Errorf("%d requests to the API server", n)
	}
}

func retries(err error) bool {
	after := (*api.RetryError)(nil)
	return errors.As(err, &after) && after.RetryAfter() > 0
}
