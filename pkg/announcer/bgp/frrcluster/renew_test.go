package frrcluster_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// FRR would edit the session that is up: break it off, or not use the settings.
func TestOtherSettingsTakeLeaveFirst(t *testing.T) {
	slow := peering(nil, "198.51.100.1/32")
	fast := peering(func(p *config.Peer) { p.HoldTime, p.KeepaliveTime = 9*time.Second, 3*time.Second }, "198.51.100.1/32")
	for name, beside := range map[string][]plan.Peering{
		"alone":          nil,
		"beside another": {peering(func(p *config.Peer) { p.Name, p.Address = "r2", p.Address.Next() }, "198.51.100.2/32")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				s := newSpeaker(t, api)
				s.Set(append(beside[:len(beside):len(beside)], slow))
				time.Sleep(time.Minute)
				s.Set(append(beside[:len(beside):len(beside)], fast))
				time.Sleep(12 * time.Second)
				api.waitText(t, own, "192.0.2.1", `"holdTime":"1m30s"`, shutdown, "!9s")
				time.Sleep(3 * time.Second)
				if text := api.text(own); strings.Contains(text, `"192.0.2.1"`) || (text == "") != (beside == nil) {
					t.Errorf("after the leave there is %q", text)
				}
				time.Sleep(5 * time.Second)
				api.waitText(t, own, "192.0.2.1", `"holdTime":"9s"`, "198.51.100.1/32", "!"+shutdown)
				time.Sleep(time.Hour)
				if w := api.written(); len(w) != 4 {
					t.Errorf("wrote %v", w)
				}
				s.Close()
			})
		})
	}
}

func TestSettingsThatAreTakenBackLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		slow := peering(nil, "198.51.100.1/32")
		s.Set([]plan.Peering{slow})
		time.Sleep(time.Minute)
		s.Set([]plan.Peering{peering(func(p *config.Peer) { p.Port = 1790 }, "198.51.100.1/32")})
		time.Sleep(5 * time.Second)
		api.waitText(t, own, shutdown, `"port":179,`)
		s.Set([]plan.Peering{slow})
		time.Sleep(time.Minute)
		api.waitText(t, own, "!"+shutdown, `"port":179,`)
		if w := api.written(); len(w) != 3 || slices.Contains(w, "delete "+own) {
			t.Errorf("wrote %v", w)
		}
		s.Close()
	})
}

// A node that is drained with other settings ends the session that it has.
func TestDrainedWithOtherSettingsEndsTheSessionThatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(time.Minute)
		other := peering(func(p *config.Peer) { p.Port = 1790 }, "198.51.100.1/32")
		drained := other
		drained.Leaving = plan.Draining
		s.Set([]plan.Peering{drained})
		time.Sleep(5 * time.Second)
		api.waitText(t, own, shutdown, `"port":179,`)
		time.Sleep(time.Minute)
		api.waitGone(t, own)
		s.Set([]plan.Peering{other})
		time.Sleep(time.Minute)
		api.waitText(t, own, "!"+shutdown, `"port":1790`)
		s.Close()
	})
}
