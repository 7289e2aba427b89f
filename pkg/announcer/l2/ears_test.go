package l2

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func (b *bench) deaf() bool {
	b.t.Helper()
	return b.s.Stats().Links[0].Deaf
}

func TestLinkThatHearsNothingSaysSoOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		b.after(29 * time.Minute)
		if b.deaf() || b.log.Len() > 0 {
			t.Errorf("deaf before half an hour is over: %s", b.log)
		}
		b.after(10 * time.Hour)
		if !b.deaf() {
			t.Error("not deaf")
		}
		if n := strings.Count(b.log.String(), "receives no broadcast"); n != 1 || strings.Count(b.log.String(), "\n") != 1 {
			t.Errorf("said %d times: %s", n, b.log)
		}
		// Any broadcast will do, whatever it is about and whoever wakes up for it.
		b.net.deliver(1, requestFor(addr("203.0.113.99")))
		b.after(2 * time.Minute)
		if b.deaf() || !strings.Contains(b.log.String(), "receives broadcasts again") {
			t.Errorf("still deaf: %s", b.log)
		}
	})
}

func TestLinkThatHearsNowAndThenIsNotDeaf(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		for range 20 {
			b.after(28 * time.Minute)
			b.net.deliver(1, requestFor(addr("203.0.113.99")))
		}
		b.after(28 * time.Minute)
		if b.deaf() || b.log.Len() > 0 {
			t.Errorf("deaf: %s", b.log)
		}
		if got := b.s.Stats().Links[0]; got.Broadcasts != 20 || got.Filtered != 20 {
			t.Errorf("stats %+v, want 20 broadcasts, all of them filtered", got)
		}
	})
}

// Nothing is expected on a link that is down, nor where only IPv6 is answered:
// there broadcasts need not exist.
func TestNotEverySilenceIsDeafness(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip6, eth(1)))
		b.after(2 * time.Hour)
		down := eth(1)
		down.Up = false
		b.set(own(vip, eth(1)))
		b.after(20 * time.Minute)
		b.set(own(vip, down))
		b.after(20 * time.Minute)
		b.set(own(vip, eth(1)))
		b.after(20 * time.Minute)
		if b.deaf() || b.log.Len() > 0 {
			t.Errorf("deaf: %s", b.log)
		}
	})
}

func TestFilteredFramesAreCounted(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip, eth(1)))
		for range 30 {
			b.net.deliver(1, requestFor(addr("203.0.113.99")))
		}
		for range 4 {
			b.net.deliver(1, requestFor(vip))
		}
		synctest.Wait()
		if got := b.s.Stats().Links[0]; got.Broadcasts != 34 || got.Filtered != 30 {
			t.Errorf("stats %+v, want 34 broadcasts, 30 of them filtered", got)
		}
	})
}
