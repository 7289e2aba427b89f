package l2

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

func TestLoserAnswersUntilTheWinnerAnnounces(t *testing.T) {
	for _, k := range []kind{request, reply} {
		inBubble(t, func(b *bench) {
			b.set(own(vip, eth(1)))
			b.after(time.Minute)
			b.net.take(1)
			b.set(yielded(own(vip, eth(1))))
			b.after(time.Second)
			b.set(yielded(own(vip, eth(1)))) // a pass in between
			if !b.answers(1, vip) {
				t.Fatal("the loser is silent before the winner was heard")
			}
			if got := b.s.Answering(); len(got) != 1 || !got[0].Yield {
				t.Errorf("answering %v, want the address in hand-over", got)
			}
			b.net.deliver(1, announcementOf(vip2, winnerMAC, k)) // another address
			b.net.deliver(1, requestFor(vip2))
			if !b.answers(1, vip) {
				t.Fatal("another address ended the hand-over")
			}
			if n := b.kicked(); n != 0 {
				t.Errorf("kicked %d times before the end", n)
			}
			// The very next request after the announcement finds the loser silent.
			b.net.deliver(1, announcementOf(vip, winnerMAC, k))
			if b.answers(1, vip) {
				t.Error("the loser answers after the winner's announcement")
			}
			if n := b.kicked(); n != 1 {
				t.Errorf("kicked %d times, want once", n)
			}
			b.set(yielded(own(vip, eth(1)))) // the next pass still says so
			if b.answers(1, vip) || len(b.s.Answering()) != 0 || b.net.sockets(1) != 0 {
				t.Error("the loser came back")
			}
			if got := b.announced(1); len(got) > 0 {
				t.Errorf("the loser announced %q", got)
			}
		})
	}
}

func TestLoserGivesUpOnASilentWinner(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(time.Minute)
		b.set(yielded(own(vip, eth(1))))
		b.after(1900 * time.Millisecond)
		if !b.answers(1, vip) {
			t.Error("silent before 2 s")
		}
		b.after(200 * time.Millisecond)
		if b.answers(1, vip) {
			t.Error("answers after 2 s")
		}
		if n := b.kicked(); n != 1 {
			t.Errorf("kicked %d times, want once", n)
		}
	})
}

// The winner may hear of its victory, and announce it, before the loser hears
// of its loss.
func TestWinnerThatWasHeardBeforeEndsTheHandOverAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip, eth(1))
		a.Peers = map[string]string{winnerMAC.String(): "n2"}
		b.set(a)
		b.after(time.Minute)
		b.net.deliver(1, announcementOf(vip, winnerMAC, request))
		b.after(300 * time.Millisecond)
		if !b.answers(1, vip) {
			t.Error("the owner gave up before it was told to")
		}
		b.set(yielded(a))
		if b.answers(1, vip) || len(b.s.Answering()) != 0 || b.kicked() != 1 {
			t.Error("the hand-over goes on")
		}
		b.set(a) // and back: what was heard before does not count any more
		b.set(yielded(a))
		if !b.answers(1, vip) {
			t.Error("silent before the next winner was heard")
		}
	})
}

func TestHandOverOfManyLastsAsLongAsTheWinnersPace(t *testing.T) {
	const addresses = 3000
	inBubble(t, func(b *bench) {
		var owned, lost []plan.Announcement
		a := addr("198.18.0.0")
		for range addresses {
			a = a.Next()
			owned = append(owned, own(a, eth(1)))
			lost = append(lost, yielded(own(a, eth(1))))
		}
		b.set(owned...)
		b.after(2 * time.Minute)
		b.set(lost...)
		b.after(4900 * time.Millisecond)
		if !b.answers(1, a) {
			t.Error("silent although the winner may still be announcing the others")
		}
		b.after(200 * time.Millisecond)
		if got := b.s.Answering(); len(got) != 0 {
			t.Errorf("answering %d addresses", len(got))
		}
	})
}

func TestYieldOfWhatIsNotAnsweredDoesNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(yielded(own(vip, eth(1))), own(vip2, eth(1)))
		if b.answers(1, vip) {
			t.Error("answers for what it never had")
		}
		b.set(yielded(own(vip2, eth(2))))
		if b.answers(1, vip2) || b.answers(2, vip2) {
			t.Error("answers on a link that is not wanted any more")
		}
	})
}

func TestReturnToTheOwnerDuringAHandOver(t *testing.T) {
	for _, heard := range []bool{false, true} {
		inBubble(t, func(b *bench) {
			b.set(own(vip, eth(1)))
			b.after(time.Minute)
			b.set(yielded(own(vip, eth(1))))
			b.net.take(1)
			b.start = time.Now()
			if heard {
				b.net.deliver(1, announcementOf(vip, winnerMAC, request))
				synctest.Wait()
			}
			b.set(own(vip, eth(1)))
			b.after(10 * time.Second)
			if !b.answers(1, vip) {
				t.Error("the owner is silent")
			}
			if got := b.announced(1); len(got) != 12 || !strings.HasPrefix(got[0], "0s request") {
				t.Errorf("announced %q, want like a new owner", got)
			}
			if got := b.s.Conflicts(); len(got) != 0 {
				t.Errorf("conflicts %v", got)
			}
		})
	}
}

func TestAbsentAddressEndsItsHandOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.set(yielded(own(vip, eth(1))))
		b.set()
		if b.answers(1, vip) || b.net.sockets(1) != 0 {
			t.Error("answers for an address that is not wanted")
		}
	})
}

func TestHandOverEndsOnEachLinkByItself(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1), eth(2)))
		b.after(time.Second)
		b.set(yielded(own(vip, eth(1), eth(2))))
		b.net.deliver(1, announcementOf(vip, winnerMAC, request))
		if b.answers(1, vip) || !b.answers(2, vip) {
			t.Error("want silence on eth1 only, where the winner was heard")
		}
		got := b.s.Answering()
		if len(got) != 1 || len(got[0].Links) != 1 || got[0].Links[0].Name != "eth2" {
			t.Errorf("answering %v, want it on eth2 only", got)
		}
	})
}

// Two speakers in one network: the winner's first announcement ends the
// loser's answers, whatever the number of addresses, and no request is lost.
func TestNoRequestIsLostWhenAnAddressMoves(t *testing.T) {
	const addresses = 200
	inBubble(t, func(loser *bench) {
		winner := &bench{t: t, net: newNetwork()}
		winner.s = New(Options{sockets: winner.net})
		defer winner.s.Close()

		// The loser is on eth1, the winner on eth2, of networks joined here.
		var owned, lost, won []plan.Announcement
		all := addressesFrom(addr("198.18.0.0"), addresses)
		for _, a := range all {
			owned = append(owned, own(a, eth(1)))
			lost = append(lost, yielded(own(a, eth(1)), ourMAC2))
			won = append(won, own(a, eth(2)))
		}
		loser.set(owned...)
		loser.after(time.Minute)
		loser.set(lost...)
		winner.set(won...)
		for range 1000 {
			for _, f := range winner.net.take(2) {
				loser.net.deliver(1, f.frame)
			}
			synctest.Wait()
			for _, a := range all {
				if !loser.answers(1, a) && !winner.answers(2, a) {
					t.Fatalf("nobody answers for %s", a)
				}
			}
			loser.net.take(1)
			if len(loser.s.Answering()) == 0 {
				return
			}
			loser.after(time.Millisecond)
		}
		t.Errorf("the loser still answers for %d addresses", len(loser.s.Answering()))
	})
}

func addressesFrom(a netip.Addr, n int) []netip.Addr {
	out := make([]netip.Addr, 0, n)
	for range n {
		a = a.Next()
		out = append(out, a)
	}
	return out
}
