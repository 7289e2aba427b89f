package service

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestB025NothingIsDecidedBeforeAllServicesAreRead(t *testing.T) {
	api := newAPIServer()
	api.create(lb("old", given(time.Hour, "192.0.2.10")))
	listed := make(chan struct{})
	api.set(func(s *apiserver) { s.onList = func() { <-listed } })
	l := lead(t, api, pool(5))
	api.create(lb("new"))
	time.Sleep(200 * time.Millisecond)
	if n := api.patched(); n != 0 {
		t.Fatalf("%d writes before the list was complete", n)
	}
	if _, err := l.Balancer().Decide(lb("any"), time.Now()); err != ErrNotReady {
		t.Errorf("a decision before the list was complete: %v", err)
	}
	close(listed)
	if got := api.awaitAddress(t, "web/new"); got != "192.0.2.11" {
		t.Errorf("the new service got %s, want the first free address", got)
	}
	if api.patched("web/old") != 0 {
		t.Error("the old service was written")
	}
}

func TestResumedConfigurationDecidesNothing(t *testing.T) {
	api := newAPIServer()
	api.create(lb("old", given(time.Hour, "192.0.2.10")))
	api.create(lb("new"))
	l := lead(t, api, "")
	l.Resume(load(t, pool(5)))
	if lost, inUse, err := l.Impact(t.Context(), load(t, "services: {handleUnclassed: false}\n"+pool(5))); err != nil || len(lost) != 1 || inUse != 1 {
		t.Errorf("would lose %q of %d, %v", lost, inUse, err)
	}
	time.Sleep(200 * time.Millisecond)
	if n := api.patched(); n != 0 {
		t.Fatalf("%d writes before a configuration was in force", n)
	}
	l.Apply(load(t, "pools:\n- name: public\n  addresses: [198.51.100.10-198.51.100.19]\n"))
	if got := api.awaitAddress(t, "web/new"); got != "198.51.100.10" {
		t.Errorf("the new service got %s, want one of the configuration in force", got)
	}
	api.awaitReason(t, "web/old", "AddressOutsidePools")
	if got := api.address(t, "web/old"); got != "192.0.2.10" {
		t.Errorf("the old service has %s now", got)
	}
}

func TestB023RestartMovesNothingWhateverTheOrder(t *testing.T) {
	for _, size := range []struct{ pool, services, restarts int }{{2, 3, 20}, {40, 50, 5}} {
		t.Run(fmt.Sprintf("%d services, %d addresses", size.services, size.pool), func(t *testing.T) {
			api := newAPIServer()
			l := lead(t, api, pool(size.pool))
			for i := range size.pool {
				api.create(lb(fmt.Sprintf("holder-%02d", i)))
			}
			for i := range size.pool {
				api.awaitAddress(t, fmt.Sprintf("web/holder-%02d", i))
			}
			for i := size.pool; i < size.services; i++ {
				name := fmt.Sprintf("a-%02d", i) // sorts before all others
				api.create(lb(name))
				api.awaitReason(t, "web/"+name, "PoolExhausted")
			}
			l.settle(t)
			before, writes := api.picture(), api.writes()
			for range size.restarts {
				l.stop()
				l = lead(t, api, pool(size.pool))
				l.settle(t)
			}
			if after := api.picture(); after != before {
				t.Errorf("before the restarts:\n%safter:\n%s", before, after)
			}
			if n := api.writes() - writes; n != 0 {
				t.Errorf("%d writes by restarts of an unchanged world", n)
			}
		})
	}
}

// TestStatusThatWasEditedWhileNobodyLedIsPutRight starts with what was given,
// not with what the statuses show.
func TestStatusThatWasEditedWhileNobodyLedIsPutRight(t *testing.T) {
	for name, edited := range map[string][]string{
		"cleared":                        nil,
		"an address in no pool":          {"203.0.113.99"},
		"another Service's":              {"192.0.2.11"},
		"one more":                       {"192.0.2.10", "203.0.113.99"},
		"an address that is free for us": {"192.0.2.12"},
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer()
			api.create(lb("s", given(time.Hour, "192.0.2.10"), showing(edited...)))
			api.create(lb("other", given(time.Minute, "192.0.2.11")))
			l := lead(t, api, pool(3))
			eventually(t, "the status is right again", func() bool { return api.address(t, "web/s") == "192.0.2.10" })
			l.settle(t)
			if got := api.address(t, "web/other"); got != "192.0.2.11" || api.patched("web/other") != 0 {
				t.Errorf("the other one has %s after %d patches", got, api.patched("web/other"))
			}
		})
	}
}

// TestConditionThatConfirmsNothingGivesNothing starts with a condition that
// somebody wrote by hand: only what a message confirms was given.
func TestConditionThatConfirmsNothingGivesNothing(t *testing.T) {
	api := newAPIServer()
	forge := func(message string) func(*v1.Service) {
		return func(svc *v1.Service) {
			given(time.Hour, "203.0.113.99")(svc)
			svc.Status.Conditions[0].Message = message
		}
	}
	api.create(lb("forged", forge("all is well")))
	api.create(lb("quoted", forge(config.Verdict(nil, "203.0.113.99 from pool \"public\""))))
	lead(t, api, pool(3))
	for _, key := range []string{"web/forged", "web/quoted"} {
		api.awaitReason(t, key, "ForeignAddress")
	}
}

func TestTwoHundredServicesGetDifferentAddressesByOnePatchEach(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(240))
	var creators sync.WaitGroup
	for c := range 8 {
		creators.Go(func() {
			for i := range 25 {
				api.create(lb(fmt.Sprintf("s-%d-%d", c, i)))
			}
		})
	}
	creators.Wait()
	holders := map[string]string{}
	for c := range 8 {
		for i := range 25 {
			key := fmt.Sprintf("web/s-%d-%d", c, i)
			address := api.awaitAddress(t, key)
			if other, taken := holders[address]; taken {
				t.Errorf("%s and %s both got %s", key, other, address)
			}
			holders[address] = key
		}
	}
	l.settle(t)
	for _, key := range holders {
		if n := api.patched(key); n != 1 {
			t.Errorf("%s: %d patches, want 1", key, n)
		}
	}
	eventually(t, "one event for each service", func() bool { return len(l.events.With("Normal Allocated web/s-")) == 200 })
}

func TestFrozenLeaderCannotOverwriteItsSuccessor(t *testing.T) {
	api := newAPIServer()
	frozen, thaw := make(chan struct{}), make(chan struct{})
	freeze := sync.OnceFunc(func() {
		close(frozen)
		<-thaw
	})
	api.set(func(s *apiserver) {
		s.onPatch = func(string) error {
			freeze()
			return nil
		}
	})
	lead(t, api, pool(5))
	api.create(lb("a"))
	<-frozen
	api.set(func(s *apiserver) { s.onPatch = nil })
	successor := lead(t, api, "pools:\n- addresses: [198.51.100.0/28]\n")
	api.awaitAddress(t, "web/a")
	successor.settle(t)
	successor.stop() // so that it cannot repair what the old one does
	before := api.picture()
	// Only the late patch counts: what the old one would do next, it would not live to do.
	api.set(func(s *apiserver) { s.onPatch = func(string) error { return errors.New("no lease, no answer") } })
	close(thaw)
	eventually(t, "the late patch is answered", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return api.refused > 0
	})
	if after := api.picture(); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

// picture shows what each Service has.
func (s *apiserver) picture() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return picture(s.services)
}
