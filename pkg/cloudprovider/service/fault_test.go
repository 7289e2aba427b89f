package service

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

func TestB005EachEditOfThePoolCostsAtMostTwoWrites(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, "pools:\n- {name: z1, addresses: [198.51.100.32/28]}\n- {name: z2, addresses: [198.51.100.64/28]}\n")
	api.create(lb("s"))
	api.awaitAddress(t, "web/s") // .32, which is given out last for a while
	for _, edit := range []struct{ pool, address string }{{"z2", "198.51.100.64"}, {"nope", "198.51.100.64"}, {"z1", "198.51.100.33"}} {
		before := api.patched("web/s")
		api.edit(t, "web/s", func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationPool: edit.pool} })
		eventually(t, "it has "+edit.address, func() bool { return api.address(t, "web/s") == edit.address })
		l.settle(t)
		if n := api.patched("web/s") - before; n > 2 {
			t.Errorf("pool %s: %d writes", edit.pool, n)
		}
	}
	eventually(t, "the pool that is not there is told", func() bool { return len(l.events.With("Warning NoPool web/s")) == 1 })
}

func TestB042NamespaceGoesWhoeverRemovesItsFinalizers(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(5))
	finalizer := func(svc *v1.Service) { svc.Finalizers = []string{helpers.LoadBalancerCleanupFinalizer} }
	for i := range 5 {
		api.create(lb(fmt.Sprintf("s%d", i)))
		api.awaitAddress(t, fmt.Sprintf("web/s%d", i))
	}
	l.stop()
	for i := range 5 { // by another controller, before it was uninstalled
		api.edit(t, fmt.Sprintf("web/s%d", i), finalizer)
		api.remove(t, fmt.Sprintf("web/s%d", i))
	}
	lead(t, api, pool(5))
	eventually(t, "all are gone", func() bool { return len(api.list().Items) == 0 })
	// All addresses are free again, also when a finalizer is stripped by hand.
	for round := range 2 {
		for i := range 5 {
			key := fmt.Sprintf("web/r%d-%d", round, i)
			api.create(lb(fmt.Sprintf("r%d-%d", round, i)))
			api.awaitAddress(t, key)
		}
		for i := range 5 {
			key := fmt.Sprintf("web/r%d-%d", round, i)
			api.edit(t, key, finalizer)
			api.remove(t, key)
			eventually(t, key+" is gone", func() bool { _, err := api.get(key); return err != nil })
		}
	}
}

func TestB048WhoseClassIsWhose(t *testing.T) {
	class := func(name string) func(*v1.Service) {
		return func(svc *v1.Service) { svc.Spec.LoadBalancerClass = &name }
	}
	const own, other = "ccm-baremetal.io/announcer", "example.com/other"
	for _, c := range []struct {
		document string
		served   string
	}{{pool(5), "none own"}, {"services: {handleUnclassed: false}\n" + pool(5), "own"}} {
		api := newAPIServer()
		l := lead(t, api, c.document)
		api.create(lb("none"))
		api.create(lb("own", class(own)))
		api.create(lb("foreign", class(other)))
		l.settle(t)
		api.awaitAddress(t, "web/own")
		var served []string
		for _, name := range []string{"none", "own", "foreign"} {
			if api.address(t, "web/"+name) != "" {
				served = append(served, name)
			}
		}
		if got := strings.Join(served, " "); got != c.served {
			t.Errorf("served are %s, want %s", got, c.served)
		}
		// The API server clears the class together with the type.
		api.edit(t, "web/own", func(svc *v1.Service) { svc.Spec.Type, svc.Spec.LoadBalancerClass = v1.ServiceTypeClusterIP, nil })
		api.edit(t, "web/own", func(svc *v1.Service) {
			svc.Spec.Type = v1.ServiceTypeLoadBalancer
			class(other)(svc)
			showing("203.0.113.9")(svc) // which the other controller is quick to give
		})
		api.awaitReason(t, "web/own", "")
		l.settle(t)
		if got := api.address(t, "web/own"); got != "203.0.113.9" {
			t.Errorf("the Service of another class has %q", got)
		}
	}
}

func TestB053AddressOfAnotherControllerIsLeftAlone(t *testing.T) {
	for document, reason := range map[string]string{
		pool(5): "ForeignAddress",
		"services: {handleUnclassed: false}\n" + pool(5): "",
	} {
		api := newAPIServer()
		api.create(lb("ext-api", showing("203.0.113.53")))
		l := lead(t, api, document)
		api.awaitReason(t, "web/ext-api", reason)
		l.settle(t)
		svc, err := api.get("web/ext-api")
		if err != nil || len(svc.Status.LoadBalancer.Ingress) != 1 || svc.Status.LoadBalancer.Ingress[0].String() != (&v1.LoadBalancerIngress{IP: "203.0.113.53"}).String() {
			t.Errorf("the status has become %+v, %v", svc.Status, err)
		}
		if reason == "" && api.patched("web/ext-api") != 0 {
			t.Error("a Service that is none of ours was written")
		}
	}
}

func TestB057KubernetesItselfMayBeALoadBalancer(t *testing.T) {
	api := newAPIServer()
	lead(t, api, pool(5))
	api.create(lb("kubernetes", func(svc *v1.Service) { svc.Namespace, svc.Spec.Selector = "default", nil }))
	api.awaitAddress(t, "default/kubernetes")
	api.edit(t, "default/kubernetes", func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationAddresses: "192.0.2.14"} })
	eventually(t, "it follows its request", func() bool { return api.address(t, "default/kubernetes") == "192.0.2.14" })
}

func TestB164ManyServicesComeAndGo(t *testing.T) {
	api := newAPIServer()
	document := "pools:\n- addresses: [10.1.0.0/22]\n"
	l := lead(t, api, document)
	r := rand.New(rand.NewPCG(164, 164))
	for i := range 600 {
		api.create(lb(fmt.Sprintf("s%d", i)))
		if i%2 == 1 && r.IntN(2) == 0 {
			api.remove(t, fmt.Sprintf("web/s%d", i-1))
		}
	}
	live := api.list().Items
	for _, svc := range live {
		api.awaitAddress(t, string(keyOf(&svc)))
	}
	l.settle(t)
	writes := api.writes()
	l.stop()
	l = lead(t, api, document)
	l.settle(t)
	seen := map[string]bool{}
	for _, svc := range live {
		seen[api.address(t, string(keyOf(&svc)))] = true
	}
	if len(seen) != len(live) || api.writes() != writes {
		t.Errorf("%d addresses for %d Services, and %d writes by the restart", len(seen), len(live), api.writes()-writes)
	}
}

func TestB165ChangesThatMeanNothingCostNothing(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(20))
	for i := range 20 {
		api.create(lb(fmt.Sprintf("s%d", i)))
		api.awaitAddress(t, fmt.Sprintf("web/s%d", i))
	}
	l.settle(t)
	writes, before := api.writes(), len(l.events.With(""))
	for i := range 100 {
		api.edit(t, fmt.Sprintf("web/s%d", i%20), func(svc *v1.Service) {
			svc.Annotations = map[string]string{"example.com/touched": fmt.Sprint(i)}
		})
		if i%10 == 0 {
			l.Apply(load(t, pool(20)))
		}
	}
	l.settle(t)
	told := 0
	for _, e := range l.events.With("") {
		if !strings.Contains(e, "web/marker-") {
			told++
		}
	}
	if n := api.writes() - writes; n != 0 || told > before {
		t.Errorf("%d writes, %d events, %d before", n, told, before)
	}
}
