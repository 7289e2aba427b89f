package bgp_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestB128RestartOfAnAnnouncerSaysNothingToRoutersThatKeepRoutes(t *testing.T) {
	r := newRouter(t, func(r *router) { r.keeps = true })
	graceful := func(p *config.Peer) { p.GracefulRestart = 120 * time.Second }
	s := newSpeaker(t, onLoopback)
	s.Set([]plan.Peering{r.to(graceful, "198.51.100.1/32")})
	r.waitTable(1)
	waitState(t, s, bgp.Established, "")
	s.Leave(t.Context())
	eventually(t, func() error {
		if r.endings() != 1 {
			return errors.New("the connection is still there")
		}
		return nil
	})
	if _, _, found := r.lastNotified(); found || len(r.table()) != 1 {
		t.Errorf("notified %t, table %v", found, r.table())
	}

	again := newSpeaker(t, onLoopback)
	again.Set([]plan.Peering{r.to(graceful, "198.51.100.1/32")})
	eventually(t, func() error {
		if _, ends := r.counts(); ends != 2 {
			return fmt.Errorf("%d End-of-RIB", ends)
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.opens {
		if flags := restartFlags(o); flags != 8 { // restarted (RFC 4724, section 3)
			t.Errorf("the flags of graceful restart are %d", flags)
		}
	}
}

// A router that may keep routes is connected to once more when its node leaves,
// also if there is nothing to tell it, and never again.
func TestLeaveWithNothingToTellIsTakenOnce(t *testing.T) {
	r := newRouter(t, func(r *router) { r.keeps = true })
	s := newSpeaker(t, onLoopback)
	w := r.to(func(p *config.Peer) { p.GracefulRestart, p.ConnectTime = 120*time.Second, time.Second })
	w.Leaving = plan.Draining
	s.Set([]plan.Peering{w})
	r.waitNotified(wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN)
	waitState(t, s, bgp.Left, string(plan.Draining))
	time.Sleep(3 * time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.opens) != 1 {
		t.Errorf("%d sessions", len(r.opens))
	}
}

func restartFlags(o *wire.BGPOpen) uint8 {
	for _, parameter := range o.OptParams {
		for _, c := range parameter.(*wire.OptionParameterCapability).Capability {
			if restart, ok := c.(*wire.CapGracefulRestart); ok {
				return restart.Flags
			}
		}
	}
	return 0
}

// Removing a peer, draining and the end of an announcer all ask the router to
// avoid the routes, wait, withdraw, and close with a word.
func TestLeavingAsksToBeAvoidedThenWithdrawsThenCloses(t *testing.T) {
	const pause = 700 * time.Millisecond
	wanted := func(r *router) plan.Peering {
		w := r.to(internal, "198.51.100.1/32", "198.51.100.2/32")
		w.Pause = pause
		return w
	}
	for name, test := range map[string]struct {
		leave   func(s *bgp.Speaker, w plan.Peering)
		subcode uint8
	}{
		"peer removed": {func(s *bgp.Speaker, _ plan.Peering) { s.Set(nil) }, wire.BGP_ERROR_SUB_PEER_DECONFIGURED},
		"end":          {func(s *bgp.Speaker, _ plan.Peering) { s.Leave(context.Background()) }, wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN},
		"drain": {func(s *bgp.Speaker, w plan.Peering) {
			w.Leaving = plan.Draining
			s.Set([]plan.Peering{w})
		}, wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, func(r *router) { r.asn = 64500 })
			s := newSpeaker(t, onLoopback)
			w := wanted(r)
			s.Set([]plan.Peering{w})
			r.waitTable(2)
			began := time.Now()
			done := make(chan struct{})
			go func() { defer close(done); test.leave(s, w) }()
			eventually(t, func() error {
				got := r.table()["198.51.100.1/32"]
				if got.communities != "65535:0 " || *got.localPref != 0 {
					return fmt.Errorf("got %+v", got)
				}
				return nil
			})
			r.waitTable(0)
			if took := time.Since(began); took < pause {
				t.Errorf("withdrawn after %s", took)
			}
			r.waitNotified(wire.BGP_ERROR_CEASE, test.subcode)
			<-done
		})
	}
}

func TestDrainThatIsTakenBackBringsTheRoutesBack(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	w := r.to(nil, "198.51.100.1/32")
	w.Pause = 100 * time.Millisecond
	s.Set([]plan.Peering{w})
	r.waitTable(1)
	leaving := w
	leaving.Leaving = plan.ExcludeLabel
	s.Set([]plan.Peering{leaving})
	r.waitTable(0)
	waitState(t, s, bgp.Left, "ExcludeLabel")
	s.Set([]plan.Peering{w})
	if got := r.waitTable(1)["198.51.100.1/32"]; got.communities != "" {
		t.Errorf("got %+v", got)
	}
}
