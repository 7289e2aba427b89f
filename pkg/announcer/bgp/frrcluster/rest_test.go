package frrcluster_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrcluster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// mostInAnHour is how many attempts there are in an hour at most: one each 45
// seconds, and those before.
const mostInAnHour = 90

func TestPasswordsDoNotHurryAttempts(t *testing.T) {
	drained := guarded()
	drained.Leaving = plan.Draining
	for name, c := range map[string]struct {
		want  plan.Peering
		begin func(*fakeAPI)
		count func(*fakeAPI) int
	}{
		"frr-k8s is not installed": {guarded(), func(a *fakeAPI) { a.installed = false }, (*fakeAPI).requests},
		"the API server is away":   {guarded(), func(a *fakeAPI) { a.deny = map[string]error{groupPath: errors.New("refused")} }, (*fakeAPI).requests},
		"and the node is drained":  {drained, func(a *fakeAPI) { a.deny = map[string]error{groupPath: errors.New("refused")} }, (*fakeAPI).requests},
		"writes are refused": {guarded(), func(a *fakeAPI) { a.refuse = errors.New("different asns") }, func(a *fakeAPI) int {
			return len(a.written())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				api.set(func() { c.begin(api) })
				s := newSpeaker(t, api)
				// The Secret of another peer is missed, and looked for every five seconds.
				missed := peering(func(p *config.Peer) { p.Name, p.Address, p.PasswordSecret = "r2", p.Address.Next(), "none" })
				want := []plan.Peering{c.want}
				if c.want.Leaving == "" {
					open := peering(func(p *config.Peer) { p.Name, p.Address = "r3", p.Address.Next().Next() }, "198.51.100.3/32")
					want = append(want, missed, open)
				}
				s.Set(want)
				time.Sleep(time.Hour)
				if n := c.count(api); n < 50 || n > mostInAnHour {
					t.Errorf("%d attempts in an hour", n)
				}
				s.Close()
			})
		})
	}
}

func TestADrainedNodeAsksNothingForAPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		drained := guarded()
		drained.Leaving = plan.Draining
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{drained})
		time.Sleep(time.Minute)
		before := api.requests()
		time.Sleep(time.Hour)
		if n := api.requests() - before; n != 0 {
			t.Errorf("%d requests at rest", n)
		}
		s.Close()
	})
}

// What is not ours to see is left alone: manifests/base gives no right to
// anything of frr-k8s.
func TestWhatMustNotBeSeenIsLookedForRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		api.put(own, map[string]any{"metadata": map[string]any{"name": "ccm-baremetal-n1"}})
		api.set(func() { api.deny = map[string]error{own: frrcluster.ErrForbidden} })
		s := newSpeaker(t, api)
		for range 24 * 60 {
			s.Set(nil)
			time.Sleep(time.Minute)
		}
		if n := api.requests(); n < 2*24*6 || n > 2*24*9 {
			t.Errorf("%d requests in a day", n)
		}
		api.set(func() { api.deny = nil })
		time.Sleep(11 * time.Minute)
		if api.text(own) != "" {
			t.Error("what was left before is there, though it may be deleted now")
		}
		s.Close()
	})
}
