package l2

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// doubted is an announcement of a node that does not know whether the old
// owner, n2, is alive.
func doubted(a plan.Announcement) plan.Announcement {
	a.Ask = true
	a.Peers = map[string]string{winnerMAC.String(): "n2"}
	return a
}

// answerTo is what whoever has an address answers to a question of ours.
func answerTo(a plan.Announcement, by mac) []byte {
	if a.Address.Is6() {
		q := solicits(a.Address)
		q.src, q.sourceIP, q.option = ourMAC, addr("::"), mac{}
		p := q.answer(by)
		return p.appendTo(nil)
	}
	return arpPacket{
		dst: ourMAC, src: by, operation: arpReply,
		senderMAC: by, senderIP: a.Address, targetMAC: ourMAC, targetIP: addr("0.0.0.0"),
	}.appendTo(nil)
}

func TestDoubtfulTakeOverAsksThreeTimesAndClaimsWhenNobodyAnswers(t *testing.T) {
	for _, detection := range []config.ConflictDetection{"off", "warn", "refuse"} {
		for _, a := range []plan.Announcement{doubted(own(vip, eth(1))), doubted(own(vip6, eth(1)))} {
			inBubble(t, func(b *bench) {
				a.Layer2.ConflictDetection = detection
				b.set(a)
				b.after(100 * time.Millisecond)
				if b.answers(1, a.Address) {
					t.Error("answers before it has asked")
				}
				if diff := cmp.Diff([]Withheld{{Address: a.Address, Link: "eth1", Since: b.start}}, b.s.Withheld(), equateAddr); diff != "" {
					t.Errorf("withheld (-want +got):\n%s", diff)
				}
				b.after(150 * time.Millisecond)
				if !b.answers(1, a.Address) {
					t.Error("does not answer although nobody else does")
				}
				if got := b.s.Withheld(); len(got) != 0 {
					t.Errorf("withheld %+v", got)
				}
				var got []string
				for _, line := range b.announced(1) {
					got = append(got, strings.TrimSuffix(line, " "+a.Address.String()))
				}
				want := "0s probe,50ms probe,100ms probe,200ms request,200ms reply"
				if a.Address.Is6() {
					want = "0s probe,50ms probe,100ms probe,200ms advertisement"
				}
				if s := strings.Join(got, ","); s != want {
					t.Errorf("sent %s, want %s", s, want)
				}
			})
		}
	}
}

// Who waits for an address to be answered for is told when it is, be it one or
// many; and not so often that looking is all that they do.
func TestAddressesThatAreTakenAfterQuestionsAreTold(t *testing.T) {
	for _, n := range []int{1, 2000} {
		inBubble(t, func(b *bench) {
			var all []plan.Announcement
			for _, a := range addressesFrom(vip, n) {
				all = append(all, doubted(own(a, eth(1))))
			}
			b.set(all...)
			if got := b.s.Answering(); len(got) > 0 {
				t.Fatalf("answers for %d addresses before it has asked", len(got))
			}
			if n := b.kicked(); n > 0 {
				t.Errorf("told %d times of nothing", n)
			}
			var told int
			var seen []plan.Announcement
			for range 600 {
				b.after(50 * time.Millisecond)
				if k := b.kicked(); k > 0 {
					told += k
					seen = b.s.Answering()
				}
			}
			if len(seen) != n {
				t.Errorf("whoever looks when told sees %d of %d addresses", len(seen), n)
			}
			if most := 1 + n/50; told > most {
				t.Errorf("told %d times of %d addresses, want %d at most", told, n, most)
			}
			b.after(time.Minute)
			if k := b.kicked(); k > 0 {
				t.Errorf("told %d times at rest", k)
			}
		})
	}
}

func TestDoubtfulTakeOverIsLeftToWhoAnswers(t *testing.T) {
	for _, by := range []holder{{winnerMAC, "n2"}, {foreignMAC, ""}} {
		for _, a := range []plan.Announcement{doubted(own(vip, eth(1))), doubted(own(vip6, eth(1)))} {
			inBubble(t, func(b *bench) {
				b.set(a)
				since := time.Now()
				// The other answers each question, for ten minutes.
				for range 120 {
					b.after(5 * time.Millisecond)
					b.net.deliver(1, answerTo(a, by.mac))
					b.after(5*time.Second - 5*time.Millisecond)
					if b.answers(1, a.Address) {
						t.Fatal("answers for what another has")
					}
				}
				want := []Withheld{{Address: a.Address, Link: "eth1", MAC: by.mac.String(), Node: by.node, Since: since.Add(5 * time.Millisecond)}}
				if diff := cmp.Diff(want, b.s.Withheld(), equateAddr); diff != "" {
					t.Errorf("withheld (-want +got):\n%s", diff)
				}
				questions := b.announced(1)
				for _, line := range questions {
					if !strings.Contains(line, "probe") {
						t.Errorf("announced: %s", line)
					}
				}
				if n := len(questions); n < 115 || n > 125 {
					t.Errorf("asked %d times in ten minutes, want once in 5 s", n)
				}
				if n := b.kicked(); n != 1 {
					t.Errorf("kicked %d times, want once", n)
				}
				if n := strings.Count(b.log.String(), "\n"); n != 1 {
					t.Errorf("%d lines in the log: %s", n, b.log)
				}
				// It answers no longer.
				b.after(6 * time.Second)
				if !b.answers(1, a.Address) {
					t.Error("not claimed although nobody answers any more")
				}
			})
		}
	}
}

// The answers to thousands of questions may be too many at a time.
func TestAnswerThatTheLoopHasMissedPreventsAClaim(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(doubted(own(vip, eth(1))))
		b.after(150 * time.Millisecond)
		room := b.s.sightings
		must(t, b.s.do(context.Background(), func() {
			r := reader{sightings: nil, wake: b.s.wake} // a channel that never has room
			r.saw(verdict{seen: b.s.links[1].arp.claims[vip], by: winnerMAC})
		}))
		if len(room) != 0 {
			t.Fatal("the loop was told")
		}
		b.after(200 * time.Millisecond)
		if b.answers(1, vip) {
			t.Error("answers although somebody else did")
		}
		b.after(200 * time.Millisecond)
		if !b.answers(1, vip) {
			t.Error("does not answer although nobody did when it asked again")
		}
	})
}

// With more than half of the announcers in view again there is no doubt left.
func TestDoubtThatEndsClaimsAtOnce(t *testing.T) {
	for _, answered := range []bool{false, true} {
		inBubble(t, func(b *bench) {
			a := doubted(own(vip, eth(1)))
			b.set(a)
			if answered {
				b.net.deliver(1, answerTo(a, winnerMAC))
			}
			synctest.Wait()
			a.Ask = false
			b.start = time.Now()
			b.net.take(1)
			b.set(a)
			if !b.answers(1, vip) {
				t.Error("does not answer")
			}
			if got := b.announced(1); len(got) != 2 || got[0] != "0s request 192.0.2.10" {
				t.Errorf("sent %q, want an announcement at once", got)
			}
		})
	}
}

// The owner's own doubts change nothing: it goes on.
func TestDoubtOfAnOwnerAsksNobody(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(40 * time.Second)
		b.net.take(1)
		b.set(doubted(own(vip, eth(1))))
		b.after(10 * time.Second)
		if !b.answers(1, vip) || len(b.announced(1)) != 0 {
			t.Error("the owner does not just go on")
		}
		// Not even when it gets back what it was handing over.
		b.set(yielded(own(vip, eth(1))))
		b.set(doubted(own(vip, eth(1))))
		if !b.answers(1, vip) {
			t.Error("silent after a hand-over that did not take place")
		}
	})
}

// Somebody who may be alive is asked first, and refused addresses stay refused
// when the doubt is over.
func TestDoubtAndRefusal(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := doubted(own(vip, eth(1)))
		a.First = true
		a.Layer2.ConflictDetection = config.ConflictRefuse
		b.set(a)
		b.net.deliver(1, answerTo(a, foreignMAC))
		synctest.Wait()
		a.Ask, a.First = false, false
		b.set(a)
		b.after(3 * time.Second)
		if b.answers(1, vip) {
			t.Error("answers for an address that a stranger has")
		}
		if got := b.s.Conflicts(); len(got) != 1 || !got[0].Refused {
			t.Errorf("conflicts %+v, want one that refused", got)
		}
		b.after(5 * time.Minute)
		if !b.answers(1, vip) {
			t.Error("not claimed although nobody answers any more")
		}
	})
}

// What nobody could hear is asked again.
func TestQuestionsBeginAnewWithTheLink(t *testing.T) {
	inBubble(t, func(b *bench) {
		down := eth(1)
		down.Up = false
		b.set(doubted(own(vip, eth(1))))
		b.after(120 * time.Millisecond)
		b.set(doubted(own(vip, down)))
		b.after(time.Minute)
		if got := b.s.Answering(); len(got) != 0 {
			t.Errorf("answering %v", got)
		}
		b.net.take(1)
		b.start = time.Now()
		b.set(doubted(own(vip, eth(1))))
		b.after(210 * time.Millisecond)
		got := b.announced(1)
		if len(got) < 4 || got[2] != "100ms probe 192.0.2.10" || got[3] != "200ms request 192.0.2.10" {
			t.Errorf("sent %q, want three questions and then an announcement", got)
		}
	})
}

func TestWithheldAddressesAreWithdrawnLikeOthers(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(doubted(own(vip, eth(1))), doubted(own(vip2, eth(1))))
		b.net.deliver(1, answerTo(own(vip), winnerMAC))
		synctest.Wait()
		if got := b.s.Stats().Links[0]; got.Withheld != 2 || got.Answers != 0 {
			t.Errorf("stats %+v, want two addresses withheld", got)
		}
		b.set(yielded(own(vip2, eth(1))))
		b.after(time.Minute)
		if got := b.s.Withheld(); len(got) != 0 || b.net.sockets(1) != 0 {
			t.Errorf("withheld %+v, %d sockets", got, b.net.sockets(1))
		}
	})
}

// An owner that hears a member announce its address has the last word, once,
// and two that both take themselves for the owner do not shout at each other.
func TestOwnerRepeatsOnceAfterAMemberHasAnnounced(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.Peers = map[string]string{winnerMAC.String(): "n2"}
		a.Layer2.GratuitousRefresh = time.Hour
		b.set(a)
		b.after(time.Minute)
		b.net.take(1)
		b.start = time.Now()
		for _, at := range rounds[:5] { // of a new owner, who then learns better
			b.after(time.Until(b.start.Add(at)))
			b.net.deliver(1, announcementOf(vip, winnerMAC, request))
			b.net.deliver(1, announcementOf(vip, winnerMAC, reply))
		}
		b.after(time.Minute)
		want := []string{
			"2s request 192.0.2.10", "2s reply 192.0.2.10",
			"12s request 192.0.2.10", "12s reply 192.0.2.10",
		}
		if diff := cmp.Diff(want, b.announced(1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := b.s.Conflicts(); len(got) != 0 {
			t.Errorf("conflicts %+v", got)
		}
		// A stranger is a conflict instead, defended at once.
		b.start = time.Now()
		b.net.deliver(1, announcementOf(vip, foreignMAC, request))
		b.after(5 * time.Second)
		if diff := cmp.Diff([]string{"0s request 192.0.2.10"}, b.announced(1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Two owners, as each other's views have it, on one wire for ten minutes.
func TestTwoOwnersAreNotLoud(t *testing.T) {
	inBubble(t, func(one *bench) {
		two := &bench{t: t, net: newNetwork()}
		two.s = New(Options{sockets: two.net})
		defer two.s.Close()
		a, c := own(vip, eth(1)), own(vip, eth(2))
		a.Peers, c.Peers = map[string]string{ourMAC2.String(): "n2"}, map[string]string{ourMAC.String(): "n1"}
		one.set(a)
		two.set(c)
		sent := 0
		for range 6000 {
			for _, f := range one.net.take(1) {
				two.net.deliver(2, f.frame)
				sent++
			}
			for _, f := range two.net.take(2) {
				one.net.deliver(1, f.frame)
				sent++
			}
			one.after(100 * time.Millisecond)
		}
		if sent > 600 {
			t.Errorf("%d frames in ten minutes, want at most one in a second", sent)
		}
		if got := one.s.Conflicts(); len(got) != 1 || got[0].Cause != MemberAnnounces || got[0].Node != "n2" {
			t.Errorf("conflicts %+v, want the announcer of n2", got)
		}
	})
}

func TestForeignAnnouncementEndsNoHandOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(time.Minute)
		b.set(yielded(own(vip, eth(1))))
		for _, k := range []kind{request, reply} {
			b.net.deliver(1, announcementOf(vip, foreignMAC, k))
		}
		b.after(time.Second)
		if !b.answers(1, vip) {
			t.Error("a stranger has silenced the loser before the winner was heard")
		}
		// A member that was not known for one when it was heard first.
		late := yielded(own(vip, eth(1)), foreignMAC)
		b.set(late)
		b.net.deliver(1, announcementOf(vip, foreignMAC, reply))
		if b.answers(1, vip) {
			t.Error("answers after the winner's announcement")
		}
	})
}

// Kube-proxy in IPVS mode without strictARP has the kernels answer, which never
// announce anything.
func TestB088CauseOfAConflict(t *testing.T) {
	for name, c := range map[string]struct {
		by    mac
		frame func(plan.Announcement, mac) []byte
		want  ConflictCause
	}{
		"a stranger announces": {foreignMAC, announces, ForeignStation},
		"a stranger answers":   {foreignMAC, answerTo, ForeignStation},
		"a member answers":     {winnerMAC, answerTo, KernelAnswers},
		"a member announces":   {winnerMAC, announces, MemberAnnounces},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				a := own(vip, eth(1))
				a.Peers = map[string]string{winnerMAC.String(): "n2"}
				b.set(a)
				for range 3 {
					b.after(time.Minute)
					b.net.deliver(1, c.frame(a, c.by))
				}
				synctest.Wait()
				got := b.s.Conflicts()
				if len(got) != 1 || got[0].Cause != c.want {
					t.Errorf("conflicts %+v, want one by cause %s", got, c.want)
				}
			})
		})
	}
}

func announces(a plan.Announcement, by mac) []byte { return announcementOf(a.Address, by, request) }

// 400 addresses are announced within the promise of a take-over, a doubtful one
// included.
func TestFourHundredAddressesAreTakenOverInTime(t *testing.T) {
	for _, ask := range []bool{false, true} {
		inBubble(t, func(b *bench) {
			var want []plan.Announcement
			for _, a := range addressesFrom(addr("198.18.0.0"), 400) {
				an := own(a, eth(1))
				an.Ask = ask
				want = append(want, an)
			}
			if err := b.s.Set(context.Background(), want); err != nil {
				t.Fatal(err)
			}
			b.after(5 * time.Second)
			first := map[string]time.Duration{}
			for _, f := range b.net.take(1) {
				p := mustARP(t, f.frame)
				if _, known := first[p.targetIP.String()]; !known && form(p) != "probe" {
					first[p.targetIP.String()] = f.at.Sub(b.start)
				}
			}
			limit := 410 * time.Millisecond
			if ask {
				limit = 1700 * time.Millisecond // three questions each at the same pace
			}
			last := time.Duration(0)
			for _, at := range first {
				last = max(last, at)
			}
			if len(first) != 400 || last > limit {
				t.Errorf("ask %v: %d announced, the last after %s, want 400 within %s", ask, len(first), last, limit)
			}
		})
	}
}

var equateAddr = cmp.Comparer(func(a, b fmt.Stringer) bool { return a.String() == b.String() })
