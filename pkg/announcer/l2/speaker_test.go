package l2

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

func TestNewOwnerAnnouncesInRoundsAndThenRefreshes(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(30 * time.Second)
		want := []string{
			"0s request 192.0.2.10", "0s reply 192.0.2.10",
			"100ms request 192.0.2.10", "100ms reply 192.0.2.10",
			"500ms request 192.0.2.10", "500ms reply 192.0.2.10",
			"1s request 192.0.2.10", "1s reply 192.0.2.10",
			"2s request 192.0.2.10", "2s reply 192.0.2.10",
			"5s request 192.0.2.10", "5s reply 192.0.2.10",
		}
		if diff := cmp.Diff(want, b.announced(1)); diff != "" {
			t.Errorf("a new owner (-want +got):\n%s", diff)
		}
		b.after(100 * time.Second)
		want = []string{
			"35s request 192.0.2.10", "35s reply 192.0.2.10", // the link was new as well
			"1m35s request 192.0.2.10", "1m35s probe 192.0.2.10",
		}
		if diff := cmp.Diff(want, b.announced(1)); diff != "" {
			t.Errorf("later (-want +got):\n%s", diff)
		}
	})
}

func TestSameSetAgainSendsNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(40 * time.Second)
		b.net.take(1)
		for range 20 {
			b.set(own(vip, eth(1)))
			b.after(500 * time.Millisecond)
		}
		if got := b.announced(1); len(got) > 0 {
			t.Errorf("sent %v", got)
		}
		if b.net.opens != 1 {
			t.Errorf("opened %d sockets, want 1", b.net.opens)
		}
	})
}

func TestAnswersOnWantedLinksOnly(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)), own(vip2, eth(2)))
		for _, c := range []struct {
			link    int
			address netip.Addr
			want    bool
		}{{1, vip, true}, {1, vip2, false}, {2, vip, false}, {2, vip2, true}} {
			if got := b.answers(c.link, c.address); got != c.want {
				t.Errorf("answers for %s on eth%d: %v, want %v", c.address, c.link, got, c.want)
			}
		}
	})
}

func TestAbsentAddressIsSilentAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)), own(vip2, eth(1)))
		b.set(own(vip2, eth(1)))
		b.net.take(1)
		if b.answers(1, vip) {
			t.Error("answers for what was withdrawn")
		}
		if !b.answers(1, vip2) {
			t.Error("does not answer for what stayed")
		}
		b.after(time.Hour)
		for _, line := range b.announced(1) {
			if strings.HasSuffix(line, " "+vip.String()) {
				t.Errorf("announced what was withdrawn: %s", line)
			}
		}
		b.set()
		if n := b.net.sockets(1); n != 0 {
			t.Errorf("%d sockets are left", n)
		}
	})
}

func TestReturnOfAMemberRepeatsTheAnnouncementOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		b.set(a)
		b.after(40 * time.Second)
		b.net.take(1)
		a.Returns++
		b.set(a)
		b.after(30 * time.Second)
		want := []string{"40s request 192.0.2.10", "40s reply 192.0.2.10"}
		if diff := cmp.Diff(want, b.announced(1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestShorterRefreshCountsFromNow(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		b.set(a)
		b.after(40 * time.Second)
		b.net.take(1)
		a.Layer2.GratuitousRefresh = 5 * time.Second
		a.Layer2.ConflictDetection = "off"
		b.set(a)
		b.after(11 * time.Second)
		want := []string{"45s request 192.0.2.10", "50s request 192.0.2.10"}
		if diff := cmp.Diff(want, b.announced(1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestLinkThatComesUpIsAnnouncedOnAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		down := eth(1)
		down.Up = false
		b.set(own(vip, down))
		b.after(time.Minute)
		if got := b.announced(1); len(got) > 0 || b.net.opens > 0 {
			t.Fatalf("on a link that is down: sent %v, opened %d sockets", got, b.net.opens)
		}
		if got := b.s.Answering(); len(got) != 0 {
			t.Errorf("answers on a link that is down: %v", got)
		}
		for range 3 {
			b.start = time.Now()
			b.set(own(vip, eth(1)))
			b.after(36 * time.Second)
			b.set(own(vip, down))
			b.after(time.Minute)
			got := b.announced(1)
			if len(got) != 14 || got[0] != "0s request 192.0.2.10" || got[11] != "5s reply 192.0.2.10" || got[13] != "35s reply 192.0.2.10" {
				t.Errorf("after the link came up: %q", got)
			}
		}
	})
}

func TestFlapThatNobodySawIsAnnouncedAfter(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(time.Minute)
		b.net.take(1)
		b.start = time.Now()
		// The link goes down: the socket says so, and a new one cannot be opened.
		var old *fakeConn
		b.net.change(1, func(l *fakeLink) {
			l.fail = syscall.ENETDOWN
			old = l.conns[0]
			old.errs <- syscall.ENETDOWN
		})
		b.after(2 * time.Second)
		if !b.answers(1, vip) {
			t.Error("the old socket, which lives again with its link, is not used")
		}
		b.net.change(1, func(l *fakeLink) { l.fail = nil })
		b.after(40 * time.Second)
		if n := b.net.sockets(1); n != 1 {
			t.Fatalf("%d sockets, want 1", n)
		}
		select {
		case <-old.closed:
		default:
			t.Error("the old socket is still open")
		}
		if got := b.announced(1); len(got) != 14 {
			t.Errorf("announced %d times, want 14: %q", len(got), got)
		}
		if b.log.Len() > 0 {
			t.Errorf("a link that goes down is no news: %s", b.log)
		}
	})
}

func TestNewMACIsAnswered(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(time.Minute)
		b.net.take(1)
		b.start = time.Now()
		changed := eth(1)
		changed.MAC = winnerMAC.String()
		b.set(own(vip, changed))
		if replies := b.ask(1, vip); len(replies) != 1 || replies[0] != winnerMAC {
			t.Errorf("answered by %v, want one reply from %s", replies, winnerMAC)
		}
		if got := b.announced(1); len(got) < 2 || got[0] != "0s request 192.0.2.10" {
			t.Errorf("not announced at once: %q", got)
		}
		if n := b.net.sockets(1); n != 1 {
			t.Errorf("%d sockets, want 1", n)
		}
	})
}

func TestEveryAddressIsAnnouncedOnceBeforeAnyTwice(t *testing.T) {
	const addresses = 5000
	inBubble(t, func(b *bench) {
		var want []plan.Announcement
		a := addr("198.18.0.0")
		for range addresses {
			a = a.Next()
			want = append(want, own(a, eth(1)))
		}
		b.set(want...)
		b.after(10 * time.Second)
		sent := b.net.take(1)
		seen := map[netip.Addr]int{}
		for i, f := range sent {
			p := mustARP(t, f.frame)
			seen[p.senderIP]++
			if i < addresses && (seen[p.senderIP] > 1 || form(p) != "request") {
				t.Fatalf("frame %d: %s in form %s for the %d. time", i, p.senderIP, form(p), seen[p.senderIP])
			}
			if i >= framesPerSecond+frameBurst && f.at.Sub(sent[i-framesPerSecond-frameBurst].at) < time.Second {
				t.Fatalf("frame %d: more than %d frames within a second", i, framesPerSecond)
			}
		}
		if took := sent[addresses-1].at.Sub(b.start); took > 5100*time.Millisecond {
			t.Errorf("all were announced after %s, want 5 s", took)
		}
		// An address that is taken over now does not wait for the others' rounds.
		b.start = time.Now()
		b.set(append(want, own(vip, eth(1)))...)
		b.after(50 * time.Millisecond)
		for _, f := range b.net.take(1) {
			if p := mustARP(t, f.frame); p.senderIP == vip {
				return
			}
		}
		t.Error("a new address waits for the later rounds of others")
	})
}

func TestFailingLinkIsReportedOnceAndStopsNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.net.change(1, func(l *fakeLink) { l.fail = errors.New("bad luck") })
		err := b.s.Set(context.Background(), []plan.Announcement{own(vip, eth(1), eth(2))})
		if err == nil || err.Error() != "open ARP socket on eth1: bad luck" {
			t.Errorf("Set: %v", err)
		}
		for range 60 {
			b.set(own(vip, eth(1), eth(2)))
			b.after(time.Second)
		}
		if !b.answers(2, vip) {
			t.Error("the good link does not answer")
		}
		if b.log.Len() > 0 {
			t.Errorf("reported again: %s", b.log)
		}
		if opens := b.net.opens; opens < 10 || opens > 30 {
			t.Errorf("tried %d times in a minute, want about one try in 5 s", opens)
		}
		if got := b.s.Answering(); len(got) != 1 || len(got[0].Links) != 1 || got[0].Links[0].Name != "eth2" {
			t.Errorf("answering %v, want %s on eth2", got, vip)
		}
		want := []LinkStats{{Name: "eth1", Errors: uint64(b.net.opens - 1)}, {Name: "eth2", Open: true, Answers: 1, Broadcasts: 1}}
		if diff := cmp.Diff(want, b.s.Stats().Links); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}

		b.net.change(1, func(l *fakeLink) { l.fail = nil })
		b.start = time.Now()
		b.after(6 * time.Second)
		if !b.answers(1, vip) {
			t.Error("the link that works again does not answer")
		}
		if got := b.announced(1); len(got) < 2 {
			t.Errorf("announced %q", got)
		}
		if got := b.log.String(); got != "level=INFO msg=\"link can be used again\" link=eth1 protocol=ARP\n" {
			t.Errorf("log: %s", got)
		}
	})
}

func TestReaderErrorsAreEndured(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(time.Minute)
		for range 100 {
			b.net.change(1, func(l *fakeLink) {
				select {
				case l.conns[0].errs <- errors.New("bad luck"):
				default:
				}
			})
			b.after(10 * time.Millisecond)
		}
		b.after(10 * time.Second)
		if !b.answers(1, vip) {
			t.Error("does not answer after errors")
		}
		if n := b.net.opens; n > 10 {
			t.Errorf("opened %d sockets within a second", n)
		}
		if n := b.net.sockets(1); n != 1 {
			t.Errorf("%d sockets are open, want 1", n)
		}
	})
}

func TestFramesThatCannotBeSentAreSentLater(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.net.change(1, func(l *fakeLink) { l.jam = syscall.ENOBUFS })
		b.set(own(vip, eth(1)), own(vip2, eth(2)))
		b.after(10 * time.Second)
		if got := b.announced(2); len(got) != 12 {
			t.Errorf("the other link sent %d frames, want 12", len(got))
		}
		if n := b.s.Stats().ARP.Unsent; n < 10 || n > 20 {
			t.Errorf("tried %d times in 10 s, want about once a second", n)
		}
		b.net.change(1, func(l *fakeLink) { l.jam = nil })
		b.after(7 * time.Second)
		if got := b.announced(1); len(got) != 12 {
			t.Errorf("sent %d frames, want 12: %q", len(got), got)
		}
	})
}

func TestBadAnnouncementsAreReportedAndStopNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		odd, infiniband := eth(3), eth(4)
		odd.MAC = "what"
		infiniband.MAC = "00:00:00:00:fe:80:00:00:00:00:00:00:02:00:5e:10:00:00:00:01"
		err := b.s.Set(context.Background(), []plan.Announcement{own(vip2, odd, infiniband, eth(1)), own(vip, eth(1))})
		for _, want := range []string{"announce on eth3: address what: invalid MAC address", "announce on eth4: " + infiniband.MAC + " is no Ethernet unicast address"} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("Set: %v, want %q in it", err, want)
			}
		}
		if !b.answers(1, vip) || !b.answers(1, vip2) {
			t.Error("the good link does not answer")
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)), own(vip2, eth(2)))
		b.s.Close()
		b.s.Close()
		if n := b.net.sockets(1) + b.net.sockets(2); n != 0 {
			t.Errorf("%d sockets are left", n)
		}
		if err := b.s.Set(context.Background(), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Set after Close: %v", err)
		}
		if got := b.s.Answering(); got != nil {
			t.Errorf("answering %v after Close", got)
		}
		b.s.Stats()
		synctest.Wait()
	})
}

func TestCancelledSetChangesNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := b.s.Set(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Set: %v", err)
		}
		if !b.answers(1, vip) {
			t.Error("a cancelled Set withdrew an address")
		}
	})
}
