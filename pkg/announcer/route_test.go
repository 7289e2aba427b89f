package announcer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const routed = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools: [{addresses: [192.0.2.0/24]}]
advertisements: [{bgp: {}}]
bgp: {localASN: 64500, peers: [{name: r1, address: 203.0.113.1, asn: 64501}]}
`

// newRoutedRig is a rig whose addresses are advertised to the router r1.
func newRoutedRig(t *testing.T, addresses ...string) *rig {
	r := newRig(t, addresses...)
	c, err := config.Load([]byte(routed))
	if err != nil {
		t.Fatal(err)
	}
	r.world.change(func(s *plan.Snapshot) { s.Config = c })
	return r
}

func TestRoutersAreToldWhatThisNodeServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoutedRig(t, "192.0.2.10", "192.0.2.11")
		r.start(t)
		if got := r.route.told(); got != "r1 192.0.2.10/32, r1 192.0.2.11/32" {
			t.Errorf("told %q", got)
		}
		r.world.change(func(s *plan.Snapshot) { s.Services = s.Services[:1] })
		r.kickAndWait()
		if got := r.route.told(); got != "r1 192.0.2.10/32" {
			t.Errorf("told %q", got)
		}
		r.end()
		<-r.done
	})
}

// Routers keep what a restarting announcer has told them. Hearing from it
// that it has nothing, before it knows anything, would take that away.
func TestRoutersHearNothingBeforeEverythingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoutedRig(t, "192.0.2.10")
		r.world.fail(errors.New("unknown"))
		r.start(t)
		time.Sleep(time.Minute)
		if r.route.sets != 0 {
			t.Errorf("set %d times", r.route.sets)
		}
		r.world.fail(nil)
		r.kickAndWait()
		if got := r.route.told(); got != "r1 192.0.2.10/32" {
			t.Errorf("told %q", got)
		}

		// Nor when something gets unknown again.
		r.world.fail(errors.New("unknown"))
		r.kickAndWait()
		if got := r.route.told(); got != "r1 192.0.2.10/32" {
			t.Errorf("told %q", got)
		}
		r.end()
		<-r.done
	})
}

func TestLeavingWaitsForTheRoutersAndTellsThemNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoutedRig(t, "192.0.2.10")
		r.route.takes = 15 * time.Second
		r.start(t)
		told := r.route.sets
		began := time.Now()
		r.end()
		<-r.done
		if !r.route.left || time.Since(began) != r.route.takes {
			t.Errorf("left %t after %s", r.route.left, time.Since(began))
		}
		if r.route.sets != told {
			t.Error("told something while leaving")
		}
	})
}

func TestRoutersThatHangDoNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoutedRig(t, "192.0.2.10")
		r.route.takes = time.Hour
		r.start(t)
		began := time.Now()
		r.end()
		<-r.done
		if took := time.Since(began); took != routersWithin {
			t.Errorf("took %s", took)
		}
	})
}
