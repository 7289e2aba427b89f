package bgp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// lose brings a session up, keeps it for longer than what an announcer before
// may have left counts, and loses it.
func lose(t *testing.T, s *bgp.Speaker, ends <-chan *far) plan.Peering {
	t.Helper()
	w := peering("r1", "192.0.2.1", keptFor(2*time.Minute), "198.51.100.1/32")
	w.Peer.ConnectTime = 30 * time.Second
	loseFrom(s, ends, w, graceful())
	return w
}

func loseFrom(s *bgp.Speaker, ends <-chan *far, w plan.Peering, open []byte) {
	s.Set([]plan.Peering{w})
	f := <-ends
	f.answer(open)
	go io.Copy(io.Discard, f)
	for range 60 {
		time.Sleep(3 * time.Second)
		f.write(framed(wire.BGP_MSG_KEEPALIVE))
	}
	f.Close()
	synctest.Wait()
}

// attempts hangs up on each attempt to connect, and returns how long after now
// the last one was.
func attempts(ends <-chan *far) time.Duration {
	began, last := time.Now(), time.Duration(0)
	for {
		select {
		case f := <-ends:
			last = time.Since(began)
			f.Close()
		case <-time.After(time.Hour):
			return last
		}
	}
}

// A router counts from when it notices, and where a link was cut that is up to
// its hold time after us.
func TestLeaveIsTriedForAsLongAsRoutersThatNoticeLastKeepRoutes(t *testing.T) {
	const restart = 30 * time.Second
	patient := func(p *config.Peer) { p.GracefulRestart, p.HoldTime = restart, 90*time.Second }
	judge := func(t *testing.T, last, hold time.Duration) {
		t.Helper()
		if want := hold + restart; last > want || last < want-2*time.Second {
			t.Errorf("the last attempt was after %s, want up to %s", last, want)
		}
	}
	for name, c := range map[string]struct {
		offered uint8
		hold    time.Duration
	}{
		"the router's hold time": {30, 30 * time.Second},
		"ours":                   {180, 90 * time.Second},
		"none":                   {0, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
				loseFrom(s, ends, peering("r1", "192.0.2.1", patient, "198.51.100.1/32"), gracefulWith(c.offered))
				s.Set(nil)
				judge(t, attempts(ends), c.hold)
			})
		})
	}
	t.Run("of an announcer before", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			w := peering("r1", "192.0.2.1", patient, "198.51.100.1/32")
			w.Leaving = plan.Draining
			s.Set([]plan.Peering{w})
			judge(t, attempts(ends), 90*time.Second)
		})
	})
}

// The router keeps routes of a peer that goes while the session is down, as
// long as nobody tells it that they are gone.
func TestPeerThatIsRemovedWhileItsSessionIsDownIsTakenLeaveOf(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		lose(t, s, ends)
		s.Set(nil)
		f := <-ends
		synctest.Wait()
		if all := s.Sessions(); len(all) != 1 || !strings.HasPrefix(all[0].Why, "removed, but the router may keep routes of ours") {
			t.Errorf("meanwhile it is %+v", all)
		}
		f.answer(graceful())
		f.takesLeave(wire.BGP_ERROR_SUB_PEER_DECONFIGURED)
		time.Sleep(time.Hour)
		if all := s.Sessions(); len(all) != 0 || len(ends) != 0 {
			t.Errorf("after it there is %+v, and %d attempts", all, len(ends))
		}
	})
}

func TestRemovedPeerIsForgottenWhenItsRouterKeepsNothingAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		lose(t, s, ends)
		s.Set(nil)
		time.Sleep(4 * time.Minute) // two, the hold time, and an attempt that nobody answers
		before := len(ends)
		time.Sleep(time.Hour)
		if all := s.Sessions(); len(all) != 0 || len(ends) != before || before == 0 {
			t.Errorf("%d attempts, %d later, and %+v", before, len(ends)-before, all)
		}
	})
	t.Run("at once without graceful restart", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
			<-ends
			s.Set(nil)
			time.Sleep(time.Hour)
			if all := s.Sessions(); len(all) != 0 || len(ends) != 0 {
				t.Errorf("%d attempts later, and %+v", len(ends), all)
			}
		})
	})
}

// What the router keeps is replaced by the session with other settings, which
// does not wait for anything.
func TestOtherSettingsOfASessionThatIsDownBeginAtOnce(t *testing.T) {
	for name, edit := range map[string]func(*plan.Peering){
		"settings": func(w *plan.Peering) { w.Peer.HoldTime = 30 * time.Second },
		"name":     func(w *plan.Peering) { w.Peer.Name = "r2" },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
				w := lose(t, s, ends)
				edit(&w)
				began := time.Now()
				s.Set([]plan.Peering{w})
				f := <-ends
				f.answer(graceful())
				known := map[string]bool{}
				f.told(known)
				if all := s.Sessions(); !known["198.51.100.1/32"] || len(all) != 1 || all[0].State != bgp.Established || time.Since(began) != 0 || len(ends) != 0 {
					t.Errorf("after %s there is %+v", time.Since(began), all)
				}
			})
		})
	}
}

// A node that drains has to take leave of what was told by settings of before.
func TestOtherSettingsInheritWhatTheRouterKeeps(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		w := lose(t, s, ends)
		w.Peer.GracefulRestart, w.Leaving = 0, plan.Draining
		s.Set([]plan.Peering{w})
		f := <-ends
		f.answer(usual(90))
		f.takesLeave(wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN)
	})
}

func TestAnAnnouncerThatEndsWhileItsNodeDrainsTakesLeaveOfRoutersThatKeepRoutes(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		w := lose(t, s, ends)
		w.Leaving = plan.Draining
		s.Set([]plan.Peering{w})
		left := make(chan struct{})
		go func() { defer close(left); s.Leave(t.Context()) }()
		synctest.Wait()
		f := <-ends
		f.answer(graceful())
		f.takesLeave(wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN)
		<-left
	})
	t.Run("and of no others", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			lose(t, s, ends)
			began := time.Now()
			s.Leave(t.Context()) // the next announcer confirms them
			if took := time.Since(began); took != 0 || len(ends) != 0 {
				t.Errorf("the end took %s and %d attempts", took, len(ends))
			}
		})
	})
}

// A session of another Speaker with the router would be taken for dead when a
// second one comes.
func TestRoutersOfOtherSpeakersAreYielded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		w := lose(t, s, ends)
		s.Set(nil)
		synctest.Wait()
		before := len(ends)
		s.Yield([]plan.Peering{w})
		time.Sleep(time.Hour)
		if all := s.Sessions(); len(all) != 0 || len(ends) != before || before > 1 {
			t.Errorf("%d attempts later, and %+v", len(ends)-before, all)
		}
	})
}

// A peer that gets another name is one router still: there is one session at a
// time.
func TestPeerThatIsRenamedTakesLeaveFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		w := peering("r1", "192.0.2.1", nil, "198.51.100.1/32")
		s.Set([]plan.Peering{w})
		f := <-ends
		f.answer(usual(90))
		f.expect(wire.BGP_MSG_UPDATE)
		f.expect(wire.BGP_MSG_UPDATE)
		w.Peer.Name = "r2"
		s.Set([]plan.Peering{w})
		f.expect(wire.BGP_MSG_UPDATE) // to be avoided
		synctest.Wait()
		if len(ends) != 0 {
			t.Error("there is another connection while the session takes leave")
		}
		f.expect(wire.BGP_MSG_UPDATE) // withdrawn
		f.expectNotification(wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_OTHER_CONFIGURATION_CHANGE)
		<-ends
	})
}

// FRR keeps the routes of a session that is lost, and loses them by the leave:
// long before the time of their restart is over.
func TestFRRLosesWhatItKeepsOfAPeerThatIsRemoved(t *testing.T) {
	l := newLAN(t, 1)
	router := newFRR(l.router, openRouter)
	var away atomic.Bool
	var via atomic.Pointer[bgp.Transport]
	s := newSpeaker(t, func(ctx context.Context, target bgp.Target) (bgp.Transport, error) {
		if away.Load() {
			return bgp.Transport{}, errors.New("the network is away")
		}
		conn, err := l.nodes[0].dial(ctx, target)
		via.Store(&conn)
		return conn, err
	})
	s.Set([]plan.Peering{peering("r1", "192.0.2.1", keptFor(time.Hour), "198.51.100.1/32")})
	router.waitPrefixes("198.51.100.1/32")
	away.Store(true)
	via.Load().Close()
	eventually(t, func() error {
		if got := router.table("ipv4")["198.51.100.1/32"]; len(got) != 1 || !got[0].Stale {
			return fmt.Errorf("not stale: %+v", got)
		}
		return nil
	})
	s.Set(nil)
	time.Sleep(time.Second)
	if got := router.table("ipv4")["198.51.100.1/32"]; len(got) != 1 || !got[0].Stale {
		t.Errorf("nobody has told it, and it has %+v", got)
	}
	away.Store(false)
	router.waitPrefixes()
}
