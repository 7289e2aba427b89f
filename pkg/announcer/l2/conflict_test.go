package l2

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestConflictIsReportedDefendedAndForgotten(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(40 * time.Second)
		b.net.take(1)
		b.start = time.Now()
		since := time.Now()
		for range 21 { // for 20 s
			b.net.deliver(1, announcementOf(vip, foreignMAC, request))
			b.after(time.Second)
		}
		var defences []string
		for _, line := range b.announced(1) {
			if !strings.HasPrefix(line, "25s") && !strings.HasPrefix(line, "20.9") {
				defences = append(defences, line)
			}
		}
		want := []string{"0s request 192.0.2.10", "10s request 192.0.2.10", "20s request 192.0.2.10"}
		if fmt.Sprint(defences) != fmt.Sprint(want) {
			t.Errorf("defended %q, want %q", defences, want)
		}
		conflicts := b.s.Conflicts()
		if len(conflicts) != 1 || conflicts[0] != (Conflict{Address: vip, Link: "eth1", MAC: foreignMAC.String(), Cause: ForeignStation, Since: since}) {
			t.Errorf("conflicts %+v", conflicts)
		}
		if !b.answers(1, vip) {
			t.Error("the owner gave up")
		}
		if n := b.kicked(); n != 1 {
			t.Errorf("kicked %d times, want once", n)
		}
		wantLog := "level=WARN msg=\"address conflict\" address=192.0.2.10 link=eth1 mac=02:00:00:00:00:ff node=\"\" cause=ForeignStation refused=false\n"
		if b.log.String() != wantLog {
			t.Errorf("log: %s", b.log)
		}
		b.log.Reset()
		if n := b.s.Stats().ARP.Foreign; n != 21 {
			t.Errorf("counted %d foreign frames, want 21", n)
		}
		b.after(3 * time.Minute)
		if got := b.s.Conflicts(); len(got) != 0 {
			t.Errorf("not forgotten: %+v", got)
		}
		if n := b.kicked(); n != 1 {
			t.Errorf("kicked %d times at the end, want once", n)
		}
		if !strings.Contains(b.log.String(), "address conflict is over") {
			t.Errorf("log: %s", b.log)
		}
	})
}

// Whoever answers our probe says nothing to all, but has the address as well.
func TestStationThatOnlyAnswersIsAConflict(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(time.Minute)
		b.net.deliver(1, arpPacket{
			dst: ourMAC, src: foreignMAC, operation: arpReply,
			senderMAC: foreignMAC, senderIP: vip, targetMAC: ourMAC, targetIP: netip.IPv4Unspecified(),
		}.appendTo(nil))
		synctest.Wait()
		if got := b.s.Conflicts(); len(got) != 1 {
			t.Errorf("conflicts %+v, want one", got)
		}
	})
}

func TestMemberIsExcusedAroundAChangeOfOwner(t *testing.T) {
	peers := map[string]string{winnerMAC.String(): "n2"}
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.Peers = peers
		hear := func() {
			b.net.deliver(1, announcementOf(vip, winnerMAC, request))
			synctest.Wait()
		}
		b.set(a)
		hear()
		b.after(4 * time.Second)
		hear() // the old owner, which has not heard yet
		b.after(3 * time.Minute)
		hear() // the next owner, of which we have not heard yet
		b.after(time.Second)
		hear()
		b.set(yielded(a))
		hear()
		b.after(time.Minute)
		if got := b.s.Conflicts(); len(got) != 0 {
			t.Errorf("a hand-over is no conflict: %+v", got)
		}
		if n := b.kicked(); n != 1 {
			t.Errorf("kicked %d times, want once at the end of the hand-over", n)
		}
		b.set(a)
		b.after(time.Minute)
		b.net.take(1)
		hear()
		b.after(time.Minute)
		hear() // it answers for good: kube-proxy in IPVS mode
		got := b.s.Conflicts()
		if len(got) != 1 || got[0].MAC != winnerMAC.String() || got[0].Node != "n2" {
			t.Errorf("conflicts %+v, want the kernel of n2", got)
		}
	})
}

func TestConflictDetectionOffSaysNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.First = true
		a.Layer2.ConflictDetection = "off"
		b.set(a)
		b.net.deliver(1, announcementOf(vip, foreignMAC, request))
		b.after(10 * time.Minute)
		for _, line := range b.announced(1) {
			if strings.Contains(line, "probe") {
				t.Errorf("probed: %s", line)
			}
		}
		if got := b.s.Conflicts(); len(got) != 0 || b.kicked() != 0 || b.log.Len() > 0 {
			t.Errorf("conflicts %+v, log %s", got, b.log)
		}
	})
}

func TestFirstClaimProbesAndWaitsOnlyIfItMayRefuse(t *testing.T) {
	for detection, want := range map[string][]string{
		"off":    {"0s request", "0s reply", "100ms request", "100ms reply"},
		"warn":   {"0s probe", "0s request", "0s reply", "100ms request", "100ms reply"},
		"refuse": {"0s probe", "200ms request", "200ms reply", "300ms request", "300ms reply"},
	} {
		inBubble(t, func(b *bench) {
			a := own(vip, eth(1))
			a.First = true
			a.Layer2.ConflictDetection = config.ConflictDetection(detection)
			b.set(a)
			if got := b.answers(1, vip); got != (detection != "refuse") {
				t.Errorf("%s: answers at once: %v", detection, got)
			}
			b.after(400 * time.Millisecond)
			if !b.answers(1, vip) {
				t.Errorf("%s: does not answer", detection)
			}
			for i, line := range b.announced(1) {
				if line != want[i]+" 192.0.2.10" {
					t.Errorf("%s: frame %d is %q, want %q", detection, i, line, want[i])
				}
			}
		})
	}
}

func TestRefusedAddressIsTakenWhenTheOtherIsGone(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.First = true
		a.Layer2.ConflictDetection = "refuse"
		a.Peers = map[string]string{winnerMAC.String(): "n2"}
		b.set(a)
		b.after(100 * time.Millisecond)
		b.net.deliver(1, announcementOf(vip, foreignMAC, reply))
		b.after(time.Minute)
		if b.answers(1, vip) || len(b.s.Answering()) != 0 {
			t.Error("answers for an address that another has")
		}
		got := b.s.Conflicts()
		if len(got) != 1 || !got[0].Refused || got[0].MAC != foreignMAC.String() {
			t.Errorf("conflicts %+v, want one that refused", got)
		}
		b.set(a) // nothing changes by passes, nor by a member that comes back
		a.Returns++
		b.set(a)
		b.after(time.Second)
		for _, line := range b.announced(1) {
			if !strings.Contains(line, "probe") {
				t.Errorf("announced: %s", line)
			}
		}
		b.after(5 * time.Minute)
		if !b.answers(1, vip) {
			t.Error("not taken although the other is gone")
		}
		if got := b.s.Conflicts(); len(got) != 0 {
			t.Errorf("conflicts %+v", got)
		}
	})
}

func TestRefusedAddressIsTakenWhenTheRuleChanges(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.First = true
		a.Layer2.ConflictDetection = "refuse"
		b.set(a)
		b.net.deliver(1, announcementOf(vip, foreignMAC, reply))
		b.after(time.Second)
		a.Layer2.ConflictDetection = "warn"
		b.set(a)
		if !b.answers(1, vip) {
			t.Error("not taken")
		}
		if got := b.s.Conflicts(); len(got) != 1 || got[0].Refused {
			t.Errorf("conflicts %+v, want one that does not refuse", got)
		}
	})
}

func TestMemberCausesNoRefusal(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.First = true
		a.Layer2.ConflictDetection = "refuse"
		a.Peers = map[string]string{winnerMAC.String(): "n2"}
		b.set(a)
		b.after(50 * time.Millisecond)
		b.net.deliver(1, announcementOf(vip, winnerMAC, reply))
		b.after(time.Second)
		if !b.answers(1, vip) {
			t.Error("refused because of a member")
		}
	})
}

func TestTakeOverProbesNobody(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.Layer2.ConflictDetection = "refuse"
		b.set(a)
		if !b.answers(1, vip) {
			t.Error("a take-over waits")
		}
		b.after(10 * time.Second)
		for _, line := range b.announced(1) {
			if strings.Contains(line, "probe") {
				t.Errorf("probed: %s", line)
			}
		}
	})
}

func TestForgedFramesAreBounded(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		for i := range 3000 {
			b.net.deliver(1, announcementOf(vip, mac{0x06, 0, 0, 0, byte(i >> 8), byte(i)}, request))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if n := len(b.s.Conflicts()); n != maxRivals {
			t.Errorf("%d conflicts are remembered, want %d", n, maxRivals)
		}
		if !b.answers(1, vip) {
			t.Error("does not answer")
		}
	})
}

// The link comes up only after the address has been ours for a while.
func TestFirstClaimOnALateLinkProbes(t *testing.T) {
	inBubble(t, func(b *bench) {
		down := eth(1)
		down.Up = false
		a := own(vip, down)
		a.First = true
		b.set(a)
		b.after(time.Second)
		b.set(own(vip, down))
		b.start = time.Now()
		b.set(own(vip, eth(1)))
		if got := b.announced(1); len(got) < 2 || got[0] != "0s probe 192.0.2.10" {
			t.Errorf("sent %q, want a probe first", got)
		}
	})
}
