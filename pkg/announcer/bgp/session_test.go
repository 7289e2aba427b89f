package bgp_test

import (
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func prefixesIn(t *testing.T, body []byte) (announced, withdrawn []string) {
	t.Helper()
	m, err := wire.ParseBGPMessage(framed(wire.BGP_MSG_UPDATE, body...))
	if err != nil {
		t.Fatal(err)
	}
	u := m.Body.(*wire.BGPUpdate)
	for _, n := range u.NLRI {
		announced = append(announced, n.NLRI.String())
	}
	for _, n := range u.WithdrawnRoutes {
		withdrawn = append(withdrawn, n.NLRI.String())
	}
	return announced, withdrawn
}

// told reads UPDATEs until the session rests, and returns what they come to.
func (f *far) told(known map[string]bool) {
	f.t.Helper()
	read := make(chan []byte, 1)
	for {
		go func() {
			if b, err := readWhole(f); err == nil {
				read <- b
			}
		}()
		synctest.Wait()
		select {
		case b := <-read:
			if b[18] != wire.BGP_MSG_UPDATE {
				continue
			}
			announced, withdrawn := prefixesIn(f.t, b[19:])
			for _, p := range withdrawn {
				delete(known, p)
			}
			for _, p := range announced {
				known[p] = true
			}
		default:
			return // and one reader waits, for nothing
		}
	}
}

func keys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

var (
	refreshIPv4 = framed(wire.BGP_MSG_ROUTE_REFRESH, 0, wire.AFI_IP, 0, wire.SAFI_UNICAST)
	refreshIPv6 = framed(wire.BGP_MSG_ROUTE_REFRESH, 0, wire.AFI_IP6, 0, wire.SAFI_UNICAST)
)

// A router that asks for everything in the moment in which a route goes must
// hear of that all the same: it would keep the route until the session ends.
func TestRouteRefreshHidesNoWithdrawal(t *testing.T) {
	for range 20 { // what comes first is chance
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			two := peering("r1", "192.0.2.1", nil, "198.51.100.1/32", "198.51.100.2/32")
			s.Set([]plan.Peering{two})
			f := <-ends
			f.answer(usual(90))
			f.expect(wire.BGP_MSG_UPDATE) // and now End-of-RIB waits to be read
			synctest.Wait()
			f.write(refreshIPv4)
			one := two
			one.Routes = one.Routes[:1]
			s.Set([]plan.Peering{one})
			known := map[string]bool{"198.51.100.1/32": true, "198.51.100.2/32": true}
			f.told(known)
			if got := keys(known); !slices.Equal(got, []string{"198.51.100.1/32"}) {
				t.Errorf("the router has %v", got)
			}
		})
	}
}

func TestRouteRefreshForAFamilyThatIsNotSpokenMeansNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
		f := <-ends
		f.answer(usual(90))
		f.told(map[string]bool{})
		before := s.Sessions()[0].UpdatesSent
		f.write(refreshIPv6)
		synctest.Wait()
		if got := s.Sessions()[0]; got.UpdatesSent != before || got.State != bgp.Established {
			t.Errorf("%d UPDATEs more, state %s", got.UpdatesSent-before, got.State)
		}
	})
}

// A router that does not read must hold up neither the end of a session that
// it closes with a word, nor what that word says.
func TestWordOfARouterThatReadsNothingIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", func(p *config.Peer) { p.HoldTime, p.KeepaliveTime = time.Hour, time.Minute }, "198.51.100.1/32")})
		f := <-ends
		f.answer(usual(0))
		synctest.Wait() // the first UPDATE is being sent
		began := time.Now()
		f.write(framed(wire.BGP_MSG_NOTIFICATION, wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_ADMINISTRATIVE_RESET))
		synctest.Wait()
		if got := s.Sessions()[0]; got.State != bgp.Idle || !strings.Contains(got.Why, "told to reset it") || time.Since(began) != 0 {
			t.Errorf("got %s because of %q after %s", got.State, got.Why, time.Since(began))
		}
	})
}

// With many UPDATEs to send, a router that reads slowly is silent for longer
// than the hold time before the last one.
func TestHoldTimeEndsASessionInTheMiddleOfManyUpdates(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		w := peering("r1", "192.0.2.1", nil)
		for i := range 100 {
			w.Routes = append(w.Routes, plan.Route{
				Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32), Communities: []config.Community{{Global: 65000, Local1: uint32(i)}},
			})
		}
		s.Set([]plan.Peering{w})
		f := <-ends
		f.answer(usual(3))
		read := 0
		for {
			time.Sleep(500 * time.Millisecond)
			b, err := readWhole(f)
			if err != nil || b[18] != wire.BGP_MSG_UPDATE {
				break
			}
			read++
		}
		if read < 4 || read > 6 {
			t.Errorf("%d UPDATEs within a hold time of 3 s, at two a second", read)
		}
	})
}

// What follows a message that has been cut off would be taken for its rest.
func TestNothingFollowsAMessageThatWasCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
		f := <-ends
		f.answer(usual(90))
		if _, err := io.ReadFull(f, make([]byte, 5)); err != nil { // of an UPDATE
			t.Fatal(err)
		}
		f.write(make([]byte, 19)) // no BGP
		synctest.Wait()
		if rest, err := io.ReadAll(f); len(rest) != 0 || err != nil {
			t.Errorf("got %x, %v", rest, err)
		}
	})
}

func TestCloseDoesNotWaitForARouterThatReadsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
		f := <-ends
		f.answer(usual(90))
		synctest.Wait()
		began := time.Now()
		s.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}

// The hold time is that of whole messages: one that comes byte by byte must be
// there within it, and is no sign of life before.
func TestMessagesThatComeByteByByte(t *testing.T) {
	update := framed(wire.BGP_MSG_UPDATE, 0, 0, 0, 0)
	for pause, up := range map[time.Duration]bool{100 * time.Millisecond: true, time.Second: false} {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
			f := <-ends
			f.answer(usual(9))
			go io.Copy(io.Discard, f)
			for _, b := range slices.Repeat(update, 20) {
				time.Sleep(pause)
				if _, err := f.Write([]byte{b}); err != nil {
					break
				}
			}
			synctest.Wait()
			got := s.Sessions()[0]
			if up && (got.State != bgp.Established || got.UpdatesReceived != 20) || !up && !strings.Contains(got.Why, "silent for the hold time of 9s") {
				t.Errorf("a byte each %s: %s because of %q, %d UPDATEs", pause, got.State, got.Why, got.UpdatesReceived)
			}
		})
	}
}

// RFC 4271, section 6.1, and RFC 6608.
func TestFaultsOfMessagesAreNotifiedAsTheStandardSays(t *testing.T) {
	length := func(b []byte, n uint16) []byte {
		binary.BigEndian.PutUint16(b[16:], n)
		return b
	}
	for name, test := range map[string]struct {
		message       []byte
		code, subcode uint8
		data          []byte
	}{
		"no marker":          {make([]byte, 19), wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, nil},
		"too short":          {length(framed(wire.BGP_MSG_KEEPALIVE), 18), wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, []byte{0, 18}},
		"too long":           {length(framed(wire.BGP_MSG_UPDATE), 4097), wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, []byte{16, 1}},
		"a longer KEEPALIVE": {length(framed(wire.BGP_MSG_KEEPALIVE), 20), wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, []byte{0, 20}},
		"a short UPDATE":     {length(framed(wire.BGP_MSG_UPDATE), 22), wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, []byte{0, 22}},
		"a short refresh":    {length(framed(wire.BGP_MSG_ROUTE_REFRESH), 22), wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, []byte{0, 22}},
		"an unknown type":    {framed(77), wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_BAD_MESSAGE_TYPE, []byte{77}},
		"a second OPEN":      {opening(90), wire.BGP_ERROR_FSM_ERROR, wire.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_ESTABLISHED_STATE, []byte{wire.BGP_MSG_OPEN}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
				s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil)})
				f := <-ends
				f.answer(usual(90))
				f.expect(wire.BGP_MSG_UPDATE) // End-of-RIB
				f.write(test.message)
				f.expectNotification(test.code, test.subcode, test.data...)
			})
		})
	}
}

func TestMessagesBeforeTheirTimeAreNotifiedAsTheStandardSays(t *testing.T) {
	t.Run("instead of OPEN", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil)})
			f := <-ends
			f.expect(wire.BGP_MSG_OPEN)
			f.write(framed(wire.BGP_MSG_KEEPALIVE))
			f.expectNotification(wire.BGP_ERROR_FSM_ERROR, wire.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENSENT_STATE, wire.BGP_MSG_KEEPALIVE)
		})
	})
	t.Run("instead of KEEPALIVE", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil)})
			f := <-ends
			f.expect(wire.BGP_MSG_OPEN)
			f.write(opening(90))
			f.expect(wire.BGP_MSG_KEEPALIVE)
			f.write(framed(wire.BGP_MSG_UPDATE, 0, 0, 0, 0))
			f.expectNotification(wire.BGP_ERROR_FSM_ERROR, wire.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENCONFIRM_STATE, wire.BGP_MSG_UPDATE)
		})
	})
}

// RFC 4271, section 10: the nodes of a cluster are not to speak all at once.
func TestSignsOfLifeComeAtUnequalTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", func(p *config.Peer) { p.HoldTime, p.KeepaliveTime = time.Hour, 20*time.Minute })})
		f := <-ends
		f.answer(usual(90)) // so they come every 30 s at most
		f.expect(wire.BGP_MSG_UPDATE)
		seen := map[time.Duration]bool{}
		for last := time.Now(); len(seen) < 20; last = time.Now() {
			f.write(framed(wire.BGP_MSG_KEEPALIVE))
			f.expect(wire.BGP_MSG_KEEPALIVE)
			pause := time.Since(last)
			if pause < 22*time.Second || pause > 30*time.Second || seen[pause] {
				t.Fatalf("a pause of %s after those of %v", pause, seen)
			}
			seen[pause] = true
		}
	})
}

func TestRouterThatReadsNothingIsGivenUpAfterTheHoldTimeThoughItSpeaks(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
		f := <-ends
		f.answer(usual(90)) // ours is 9 s
		began := time.Now()
		for {
			time.Sleep(time.Second)
			if _, err := f.Write(framed(wire.BGP_MSG_KEEPALIVE)); err != nil {
				break
			}
		}
		synctest.Wait()
		if why, took := s.Sessions()[0].Why, time.Since(began); !strings.Contains(why, "takes nothing") || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("given up after %s because of %q", took, why)
		}
	})
}

// RFC 9003. What a router says goes to logs and terminals.
func TestWordsOfThePeopleOfARouterAreShown(t *testing.T) {
	for said, want := range map[string]string{
		"\x05until":       `told to shut it down, with the words "until"`,
		"\x06five\n\x1b":  `told to shut it down, with the words "five\n\x1b"`,
		"\x00":            "told to shut it down",
		"\x09cut off":     "told to shut it down",
		"":                "told to shut it down",
		"\x05until later": `told to shut it down, with the words "until"`,
	} {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil)})
			f := <-ends
			f.answer(usual(90))
			f.write(framed(wire.BGP_MSG_NOTIFICATION, append([]byte{wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN}, said...)...))
			synctest.Wait()
			if why := s.Sessions()[0].Why; !strings.HasSuffix(why, want) {
				t.Errorf("%q became %q", said, why)
			}
		})
	}
}

// A router that has just started has many nodes to answer, and would never come
// to an end if they hung up and began anew.
func TestRouterThatIsSlowToOpenIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil)})
		f := <-ends
		f.expect(wire.BGP_MSG_OPEN)
		time.Sleep(9 * time.Second)
		if why := s.Sessions()[0].Why; why != "" {
			t.Errorf("why: %q", why)
		}
		time.Sleep(2 * time.Second)
		if got := s.Sessions()[0]; got.State != bgp.Opening || !strings.Contains(got.Why, "says nothing") {
			t.Errorf("got %s because of %q", got.State, got.Why)
		}
		time.Sleep(45 * time.Second)
		f.write(usual(90))
		f.expect(wire.BGP_MSG_KEEPALIVE)
		f.write(framed(wire.BGP_MSG_KEEPALIVE))
		f.expect(wire.BGP_MSG_UPDATE)
		if got := s.Sessions()[0]; got.State != bgp.Established || got.Why != "" || len(ends) != 0 {
			t.Errorf("got %s because of %q, and %d more attempts", got.State, got.Why, len(ends))
		}
	})
}

// Attempts become rarer as long as none brings a session that lasts, however
// long each takes.
func TestPausesGrowUntilASessionLasts(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
		s.Set([]plan.Peering{peering("r1", "192.0.2.1", func(p *config.Peer) { p.ConnectTime = 30 * time.Second })})
		attempt := func(least, most time.Duration) *far {
			began := time.Now()
			f := <-ends
			if took := time.Since(began); took < least || took > most {
				t.Errorf("the next attempt came after %s, want %s to %s", took, least, most)
			}
			return f
		}
		mute := func(f *far) {
			f.expect(wire.BGP_MSG_OPEN)
			f.expectNotification(wire.BGP_ERROR_HOLD_TIMER_EXPIRED, 0)
		}
		mute(attempt(0, 0))
		mute(attempt(750*time.Millisecond, time.Second))
		mute(attempt(1500*time.Millisecond, 2*time.Second))
		for range 3 {
			(<-ends).Close() // 4, 8 and 16 s
		}
		f := attempt(22*time.Second, 30*time.Second)
		f.answer(usual(90))
		f.Close() // it came up, and did not last
		f = attempt(22*time.Second, 30*time.Second)
		f.answer(usual(90))
		go io.Copy(io.Discard, f)
		for range 11 {
			time.Sleep(3 * time.Second)
			f.write(framed(wire.BGP_MSG_KEEPALIVE))
		}
		f.Close()
		attempt(750*time.Millisecond, time.Second)
	})
}

// Whatever comes first, the end of an announcer or the session: both sides come
// to an end, and nothing goes on (which a bubble would not forgive).
func TestEndInTheMomentInWhichASessionComesUp(t *testing.T) {
	for i := range 60 {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, "198.51.100.1/32")})
			f := <-ends
			f.expect(wire.BGP_MSG_OPEN)
			f.write(usual(90))
			f.expect(wire.BGP_MSG_KEEPALIVE)
			end := []func(){func() { s.Leave(t.Context()) }, func() { s.Set(nil) }, s.Close}[i%3]
			go end()
			f.Write(framed(wire.BGP_MSG_KEEPALIVE)) // which may find the end
			io.Copy(io.Discard, f)
			s.Leave(t.Context())
			if len(ends) != 0 {
				t.Error("it has connected again")
			}
		})
	}
}
