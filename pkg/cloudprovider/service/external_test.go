package service

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

func external(addresses ...string) func(*v1.Service) {
	return func(svc *v1.Service) {
		svc.Spec.Type, svc.Spec.ExternalIPs = v1.ServiceTypeClusterIP, addresses
	}
}

func TestExternalIPsInConflictAreTold(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(3))
	told := func(message string) {
		t.Helper()
		eventually(t, "it is told: "+message, func() bool { return len(l.events.With("Warning ExternalIPConflict "+message)) == 1 })
	}
	api.create(lb("balanced"))
	api.awaitAddress(t, "web/balanced") // .10
	l.settle(t)
	api.create(lb("thief", external("192.0.2.10", "203.0.113.1", "nonsense")))
	told("web/thief: external IP 192.0.2.10 is the address of web/balanced")
	api.create(lb("early", external("192.0.2.11")))
	told(`web/early: external IP 192.0.2.11 lies in pool "public" and may be given to another Service`)
	api.edit(t, "web/early", func(svc *v1.Service) { svc.Labels = map[string]string{"a": "b"} })

	api.create(lb("late", func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationAddresses: "192.0.2.11"} }))
	told("web/late: 192.0.2.11 is an external IP of web/early, which gets what arrives for it on ports of its own")
	// To name one's own address is no conflict.
	api.edit(t, "web/balanced", func(svc *v1.Service) { svc.Spec.ExternalIPs = []string{"192.0.2.10"} })
	l.settle(t)
	if got := l.events.With("Warning ExternalIPConflict"); len(got) != 3 {
		t.Errorf("events: %q", got)
	}
}
