package service

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// left returns what a status says of us and of announcers.
func (s *apiserver) left(t *testing.T, key string) []string {
	t.Helper()
	svc, err := s.get(key)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range svc.Status.Conditions {
		out = append(out, c.Type)
	}
	return out
}

func TestAnnouncedConditionGoesWithOurs(t *testing.T) {
	other := "example.com/other"
	for name, leave := range map[string]func(*v1.Service){
		"type":    func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeClusterIP },
		"class":   func(svc *v1.Service) { svc.Spec.LoadBalancerClass = &other },
		"ignored": func(svc *v1.Service) { svc.Annotations = map[string]string{AnnotationIgnore: "true"} },
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer()
			l := lead(t, api, pool(1))
			api.create(lb("s"))
			api.awaitAddress(t, "web/s")
			api.edit(t, "web/s", announcing)
			l.settle(t)
			if got := api.patched("web/s"); got != 1 {
				t.Fatalf("%d patches of a Service that is ours, want the first", got)
			}

			api.edit(t, "web/s", leave)
			eventually(t, "nothing is left", func() bool { return len(api.left(t, "web/s")) == 0 })
			l.settle(t)
			if got := api.patched("web/s"); got != 2 {
				t.Errorf("%d patches, want one more", got)
			}

			api.edit(t, "web/s", announcing) // was under way when ours went
			eventually(t, "nothing is left of what came late", func() bool { return len(api.left(t, "web/s")) == 0 })
			l.settle(t)
			if got := api.patched("web/s"); got != 3 {
				t.Errorf("%d patches, want one for what came late", got)
			}
			if got := l.events.With("Normal Released web/s"); len(got) != 1 {
				t.Errorf("told %q, want it once", got)
			}
		})
	}
}

func TestAnnouncedConditionThatCameWhileNobodyLedIsTakenBack(t *testing.T) {
	api := newAPIServer()
	api.create(lb("s", others, announcing, func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeNodePort }))
	l := lead(t, api, pool(1))
	eventually(t, "only the condition of others is left", func() bool { return len(api.left(t, "web/s")) == 1 })
	l.settle(t)
	if got := api.patched("web/s"); got != 1 {
		t.Errorf("%d patches, want one", got)
	}
}

// The late condition of a Service that somebody else serves must not make its
// address ours, even if it cannot be taken back.
func TestLateConditionThatStaysHoldsNoAddress(t *testing.T) {
	other := "example.com/other"
	api := newAPIServer()
	api.set(func(s *apiserver) {
		s.onPatch = func(key string) error {
			if key == "web/theirs" {
				return apierrors.NewForbidden(servicesResource, key, errors.New("not yours"))
			}
			return nil
		}
	})
	api.create(lb("theirs", showing("192.0.2.10"), announcing, func(svc *v1.Service) { svc.Spec.LoadBalancerClass = &other }))
	l := lead(t, api, pool(1))
	eventually(t, "the refusal is told", func() bool { return len(l.events.With("Warning StatusNotWritten web/theirs")) == 1 })
	eventually(t, "it is tried again", func() bool { return api.patched("web/theirs") > 2 })
	api.create(lb("ours"))
	if got := api.awaitAddress(t, "web/ours"); got != "192.0.2.10" {
		t.Errorf("got %s", got)
	}
}
