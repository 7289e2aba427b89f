package service

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNamesakeOfADeletedServiceStartsAnew(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(3))
	for _, name := range []string{"a", "b"} {
		api.create(lb(name))
		api.awaitAddress(t, "web/"+name)
	}
	l.stop()
	api.remove(t, "web/a")
	api.create(lb("a", showing("192.0.2.11"))) // of b
	l = lead(t, api, pool(3))
	eventually(t, "a has an address of its own", func() bool { return api.address(t, "web/a") == "192.0.2.10" })
	l.settle(t)
	if got := api.address(t, "web/b"); got != "192.0.2.11" {
		t.Errorf("b has %s", got)
	}
}

func TestDuplicateGoesToWhoHasHeldItLonger(t *testing.T) {
	api := newAPIServer()
	api.create(lb("late", given(time.Minute, "192.0.2.10")))
	api.create(lb("early", given(time.Hour, "192.0.2.10")))
	l := lead(t, api, pool(3))
	eventually(t, "the later one moves", func() bool { return api.address(t, "web/late") == "192.0.2.11" })
	l.settle(t)
	if got := api.address(t, "web/early"); got != "192.0.2.10" || api.patched("web/early") != 0 {
		t.Errorf("the earlier one has %s after %d patches", got, api.patched("web/early"))
	}
	eventually(t, "it is told and counted", func() bool {
		told := l.events.With("Warning DuplicateAddress web/late: 192.0.2.10 is held by web/early")
		return len(told) == 1 && l.counts.duplicates.Load() == 1
	})
}

func TestAddressOfAnotherSystemIsAdopted(t *testing.T) {
	api := newAPIServer()
	api.create(lb("migrated", showing("192.0.2.13")))
	api.create(lb("outside", showing("203.0.113.1")))
	api.create(lb("elsewhere", func(svc *v1.Service) {
		svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
	}))
	lead(t, api, pool(5))
	if got := api.awaitAddress(t, "web/migrated"); got != "192.0.2.13" {
		t.Errorf("moved to %s", got)
	}
	for _, key := range []string{"web/outside", "web/elsewhere"} {
		before, _ := api.get(key)
		api.awaitReason(t, key, "ForeignAddress")
		if after, _ := api.get(key); !sameIngress(before.Status.LoadBalancer.Ingress, after.Status.LoadBalancer.Ingress) {
			t.Errorf("%s: ingress changed to %v", key, after.Status.LoadBalancer.Ingress)
		}
	}
}

func TestServiceThatIsHandedOverIsCleanedUp(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(1))
	api.create(lb("s"))
	api.awaitAddress(t, "web/s")
	api.create(lb("waiting"))
	api.awaitReason(t, "web/waiting", "PoolExhausted")
	l.stop()
	api.edit(t, "web/s", func(svc *v1.Service) {
		svc.Annotations = map[string]string{AnnotationIgnore: "true"}
		svc.Status.Conditions = append(svc.Status.Conditions, metav1.Condition{Type: "example.com/Other", Status: metav1.ConditionTrue, Reason: "X"})
	})
	l = lead(t, api, pool(1))
	api.awaitAddress(t, "web/waiting")
	svc, _ := api.get("web/s")
	if len(svc.Status.LoadBalancer.Ingress) != 0 || len(svc.Status.Conditions) != 1 || svc.Status.Conditions[0].Type != "example.com/Other" {
		t.Errorf("status is %+v", svc.Status)
	}
	if got := l.events.With("Normal Released web/s"); len(got) != 1 {
		t.Errorf("events: %q", got)
	}
}
