package service

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

func TestB043ServiceChangedRightAfterCreationGetsItsAddress(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(230))
	var users sync.WaitGroup
	for u := range 4 {
		users.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("s-%d-%d", u, i)
				api.create(lb(name))
				api.edit(t, "web/"+name, func(svc *v1.Service) { svc.Labels = map[string]string{"a": "b"} })
			}
		})
	}
	users.Wait()
	seen := map[string]bool{}
	for u := range 4 {
		for i := range 50 {
			seen[api.awaitAddress(t, fmt.Sprintf("web/s-%d-%d", u, i))] = true
		}
	}
	l.settle(t)
	state := l.Balancer().State(noon)
	if len(seen) != 200 || state.Usage[0].Held != 200 {
		t.Errorf("%d addresses, %d counted as used; want 200: none twice, none leaked by a first try", len(seen), state.Usage[0].Held)
	}
}

func TestConflictIsTriedAgainWithTheFreshService(t *testing.T) {
	api := newAPIServer()
	var once atomic.Bool
	api.set(func(s *apiserver) {
		s.onPatch = func(key string) error {
			if key == "web/s" && once.CompareAndSwap(false, true) {
				api.edit(t, key, func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationAddresses: "192.0.2.12"} })
			}
			return nil
		}
	})
	l := lead(t, api, pool(5))
	api.create(lb("s"))
	if got := api.awaitAddress(t, "web/s"); got != "192.0.2.12" {
		t.Errorf("got %s, not what the changed service asks for", got)
	}
	l.settle(t)
	if n := api.patched("web/s"); n != 2 {
		t.Errorf("%d patches, want the one in conflict and one more", n)
	}
	if got := l.counts.patched(conflict); got != 1 {
		t.Errorf("%d conflicts counted", got)
	}
}

func TestRefusedWriteGivesTheAddressBack(t *testing.T) {
	api := newAPIServer()
	var allowed atomic.Bool
	api.set(func(s *apiserver) {
		s.onPatch = func(key string) error {
			if key == "web/forbidden" && !allowed.Load() {
				return apierrors.NewForbidden(servicesResource, key, errors.New("a policy says no"))
			}
			return nil
		}
	})
	l := lead(t, api, pool(1))
	api.create(lb("forbidden"))
	eventually(t, "the refusal is told", func() bool {
		told := l.events.With("Warning StatusNotWritten web/forbidden")
		return len(told) > 0 && strings.Contains(told[0], "a policy says no")
	})
	eventually(t, "it is tried again", func() bool { return l.counts.patched(refused) >= 3 })
	// The only address is free again, and goes to whoever can take it.
	api.create(lb("other"))
	address := api.awaitAddress(t, "web/other")
	api.remove(t, "web/other")
	allowed.Store(true)
	if got := api.awaitAddress(t, "web/forbidden"); got != address {
		t.Errorf("got %s", got)
	}
	if told := l.events.With("Warning StatusNotWritten"); len(told) != 1 {
		t.Errorf("told %q", told)
	}
}

func TestLostAnswerKeepsTheAddress(t *testing.T) {
	api := newAPIServer()
	var lost atomic.Int32
	api.set(func(s *apiserver) {
		s.after = func(key string) error {
			if key == "web/s" && lost.Add(1) <= 2 {
				return apierrors.NewTimeoutError("no answer", 0)
			}
			return nil
		}
	})
	l := lead(t, api, pool(5))
	api.create(lb("s"))
	address := api.awaitAddress(t, "web/s")
	api.create(lb("next"))
	if got := api.awaitAddress(t, "web/next"); got == address {
		t.Errorf("both have %s", got)
	}
	l.settle(t)
	if got := api.address(t, "web/s"); got != address {
		t.Errorf("moved from %s to %s", address, got)
	}
}

func TestUnreachableAPIServerIsTriedAgain(t *testing.T) {
	api := newAPIServer()
	var tries atomic.Int32
	api.set(func(s *apiserver) {
		s.onPatch = func(key string) error {
			if key == "web/s" && tries.Add(1) <= 3 {
				return errors.New("dial tcp: connection refused")
			}
			return nil
		}
	})
	l := lead(t, api, pool(1))
	api.create(lb("s"))
	api.create(lb("other")) // must not get what is assumed to be s's
	api.awaitAddress(t, "web/s")
	api.awaitReason(t, "web/other", "PoolExhausted")
	if got := l.counts.patched(unreachable); got != 3 {
		t.Errorf("%d failures counted", got)
	}
}

func TestServiceThatIsGoneGivesItsAddressBack(t *testing.T) {
	api := newAPIServer()
	api.set(func(s *apiserver) {
		s.onPatch = func(key string) error {
			if key == "web/brief" {
				if _, err := api.get(key); err == nil {
					api.remove(t, key)
				}
			}
			return nil
		}
	})
	l := lead(t, api, pool(1))
	api.create(lb("brief"))
	eventually(t, "it is found gone", func() bool { return l.counts.patched(gone) > 0 })
	api.create(lb("next"))
	api.awaitAddress(t, "web/next")
	l.settle(t)
	tries := api.patched("web/brief")
	l.settle(t)
	if n := api.patched("web/brief") - tries; n > 0 || l.counts.patched(refused) > 0 {
		t.Errorf("%d more patches of a service that is gone, %d said to be refused", n, l.counts.patched(refused))
	}
}

// An admission webhook may deny with code 404, and a proxy before the API server
// may say so for reasons of its own.
func TestOneWhoIsSaidToBeGoneKeepsItsAddress(t *testing.T) {
	for name, reads := range map[string]bool{"patches": false, "reads as well": true} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer()
			l := lead(t, api, pool(1))
			api.create(lb("s"))
			address := api.awaitAddress(t, "web/s")
			api.create(lb("waiting"))
			api.awaitReason(t, "web/waiting", "PoolExhausted")
			var denied atomic.Int32
			deny := func(key string) error {
				if key == "web/s" {
					denied.Add(1)
					return apierrors.NewNotFound(servicesResource, "s")
				}
				return nil
			}
			api.set(func(s *apiserver) {
				s.onPatch = deny
				if reads {
					s.onGet = deny
				}
			})
			api.edit(t, "web/s", func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationAddresses: "203.0.113.1"} })
			eventually(t, "it is said to be gone, again and again", func() bool { return denied.Load() > 3 })
			l.settle(t)
			if got := api.address(t, "web/waiting"); got != "" {
				t.Fatalf("%s, which a living Service has, was given to another one", got)
			}
			if told := len(l.events.With("Warning StatusNotWritten web/s")); !reads && told != 1 {
				t.Errorf("told %d times", told)
			}

			api.set(func(s *apiserver) { s.onPatch, s.onGet = nil, nil })
			eventually(t, "what was decided is written", func() bool {
				svc, err := api.get("web/s")
				return err == nil && strings.Contains(allocated(svc).Message, "203.0.113.1")
			})
			if got := api.address(t, "web/s"); got != address {
				t.Errorf("it has %s, and had %s", got, address)
			}
		})
	}
}

func TestWhoOnlyObservesKeepsWhatItDecided(t *testing.T) {
	api := newAPIServer()
	api.set(func(s *apiserver) {
		s.onPatch = func(key string) error {
			if key == "web/first" || key == "web/second" {
				return fmt.Errorf("patch %s: %w", key, rehearse.ErrWithheld)
			}
			return nil
		}
	})
	l := lead(t, api, pool(1))
	api.create(lb("first"))
	eventually(t, "the first is decided about", func() bool { return l.counts.patched(withheld) > 0 })
	api.create(lb("second"))
	eventually(t, "both are decided about", func() bool { return l.counts.patched(withheld) == 2 })
	l.settle(t)
	if n := l.counts.patched(withheld); n != 2 {
		t.Errorf("%d tries: what is withheld is not tried again", n)
	}
	state := l.Balancer().State(noon)
	if state.Usage[0].Held != 1 {
		t.Errorf("%d addresses held: the pool has one, and the first would have it", state.Usage[0].Held)
	}
	if got := l.events.With("Warning " + reasonNotWritten); len(got) != 0 {
		t.Errorf("told as a refusal: %v", got)
	}
}
