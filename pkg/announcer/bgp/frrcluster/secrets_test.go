package frrcluster_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrcluster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// guarded is a peering whose session has a password.
func guarded() plan.Peering {
	return peering(func(p *config.Peer) { p.PasswordSecret = "tor" }, "198.51.100.1/32")
}

func TestASecretThatCannotBeReadEndsNoSession(t *testing.T) {
	for name, refusal := range map[string]error{"away": errors.New("connection refused"), "forbidden": frrcluster.ErrForbidden} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				api.put(secrets+"tor", secret("kubernetes.io/basic-auth"))
				s := newSpeaker(t, api)
				s.Set([]plan.Peering{guarded()})
				time.Sleep(time.Minute)
				deny := func(err error) { api.set(func() { api.deny = map[string]error{secrets + "tor": err} }) }
				deny(refusal)
				time.Sleep(time.Hour)
				api.waitText(t, own, "192.0.2.1", "198.51.100.1/32")
				s.Close()

				next := newSpeaker(t, api)
				next.Set([]plan.Peering{guarded()})
				time.Sleep(time.Hour)
				if w := api.written(); len(w) != 1 {
					t.Errorf("an announcer that knows nothing of the Secret wrote %v", w)
				}
				api.set(func() { api.deny = nil })
				time.Sleep(time.Minute)
				deny(refusal)
				api.remove(own)
				time.Sleep(time.Hour)
				api.waitText(t, own, "192.0.2.1", "198.51.100.1/32")

				deny(nil)
				api.remove(secrets + "tor")
				time.Sleep(10 * time.Minute)
				api.waitGone(t, own)
				deny(refusal)
				time.Sleep(time.Minute)
				waitSession(t, next, bgp.Idle, "there is no Secret")
				next.Close()
			})
		})
	}
}

// Where nothing has the session yet, a peer with an unknown Secret would be a
// danger to the others.
func TestASecretThatCouldNeverBeReadIsNotReferredTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		api.set(func() { api.deny = map[string]error{secrets + "tor": frrcluster.ErrForbidden} })
		s := newSpeaker(t, api)
		open := peering(func(p *config.Peer) { p.Name, p.Address = "r2", p.Address.Next() }, "198.51.100.2/32")
		s.Set([]plan.Peering{guarded(), open})
		time.Sleep(time.Minute)
		api.waitText(t, own, "192.0.2.2", "!192.0.2.1\"")
		if all := s.Sessions(); len(all) != 2 || !strings.Contains(all[0].Why, "name it in the Role announcer-frr-k8s") {
			t.Errorf("got %+v", all)
		}
		s.Close()
	})
}
