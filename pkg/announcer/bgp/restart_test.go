package bgp_test

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// What a router keeps for the next announcer is what this one would have told
// it, had there been time.
func TestRouterThatKeepsRoutesLosesThoseThatGoLast(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		two := peering("r1", "192.0.2.1", keptFor(2*time.Minute), "198.51.100.1/32", "198.51.100.2/32")
		s.Set([]plan.Peering{two})
		f := <-ends
		f.answer(graceful())
		f.expect(wire.BGP_MSG_UPDATE) // and now End-of-RIB waits to be read
		one := two
		one.Routes = one.Routes[:1]
		s.Set([]plan.Peering{one})
		go s.Leave(t.Context())
		synctest.Wait()
		known := map[string]bool{"198.51.100.1/32": true, "198.51.100.2/32": true}
		f.told(known)
		if got := keys(known); !slices.Equal(got, []string{"198.51.100.1/32"}) {
			t.Errorf("the router keeps %v", got)
		}
		if _, err := f.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the end is not without a word: %v", err)
		}
	})
}

var avoid = []byte{0xc0, byte(wire.BGP_ATTR_TYPE_COMMUNITIES), 4, 0xff, 0xff, 0, 0} // graceful-shutdown

// takesLeave reads what a router hears of a node that leaves it.
func (f *far) takesLeave(subcode uint8) {
	f.t.Helper()
	if body := f.expect(wire.BGP_MSG_UPDATE); !bytes.Contains(body, avoid) {
		f.t.Errorf("got %x, want routes to be avoided", body)
	}
	if body := f.expect(wire.BGP_MSG_UPDATE); len(body) != 4 {
		f.t.Errorf("got %x, want End-of-RIB", body)
	}
	if _, withdrawn := prefixesIn(f.t, f.expect(wire.BGP_MSG_UPDATE)); !slices.Equal(withdrawn, []string{"198.51.100.1/32"}) {
		f.t.Errorf("withdrawn: %v", withdrawn)
	}
	f.expectNotification(wire.BGP_ERROR_CEASE, subcode)
}

func draining(kept time.Duration) plan.Peering {
	w := peering("r1", "192.0.2.1", keptFor(kept), "198.51.100.1/32")
	w.Leaving = plan.Draining
	return w
}

// An announcer that starts on a node that drains must take leave of routers
// that keep what the one before has told them.
func TestDrainReachesRoutersThatKeepRoutesOverARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{draining(2 * time.Minute)})
		f := <-ends
		f.answer(graceful())
		f.takesLeave(wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN)
		synctest.Wait()
		if got := s.Sessions()[0]; got.State != bgp.Left || got.Why != string(plan.Draining) {
			t.Errorf("got %s because of %q", got.State, got.Why)
		}
	})
}

func TestDrainReachesRoutersThatKeepRoutesOfALostSession(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		w := lose(t, s, ends)
		w.Leaving = plan.Draining
		s.Set([]plan.Peering{w})
		f := <-ends
		f.answer(graceful())
		f.takesLeave(wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN)
	})
}

func TestDrainLeavesRoutersAloneThatKeepNothing(t *testing.T) {
	t.Run("no graceful restart", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{draining(0)})
			synctest.Wait()
			if got := s.Sessions()[0]; got.State != bgp.Left || len(ends) != 0 {
				t.Errorf("got %s, %d attempts", got.State, len(ends))
			}
		})
	})
	t.Run("not any more", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			w := draining(2 * time.Minute)
			w.Peer.ConnectTime = 30 * time.Second
			s.Set([]plan.Peering{w})
			time.Sleep(4 * time.Minute) // two, the hold time, and an attempt that nobody answers
			if got := s.Sessions()[0]; got.State != bgp.Left {
				t.Errorf("got %s because of %q", got.State, got.Why)
			}
			before := len(ends)
			s.Set([]plan.Peering{w})
			time.Sleep(time.Hour)
			if len(ends) != before || before == 0 {
				t.Errorf("%d attempts, and %d later", before, len(ends)-before)
			}
		})
	})
}
