package l2

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

func TestNewOwnerAdvertisesInRoundsAndThenRefreshes(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := own(vip6, eth(1))
		a.First = true
		b.set(a)
		b.after(100 * time.Second)
		want := []string{
			"0s probe", "0s advertisement", "100ms advertisement", "500ms advertisement",
			"1s advertisement", "2s advertisement", "5s advertisement", "35s advertisement",
			"1m35s advertisement", "1m35s probe",
		}
		for i := range want {
			want[i] += " 2001:db8::10"
		}
		if diff := cmp.Diff(want, b.announced(1)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if st := b.s.Stats().NDP; st.Gratuitous != 8 || st.Probes != 2 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestHandOverAndConflictByNDP(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.set(own(vip6, eth(1)))
		b.after(time.Minute)
		b.net.take(1)
		b.start = time.Now()
		b.net.deliver(1, announcementOf(vip6, foreignMAC, request))
		synctest.Wait()
		got := b.s.Conflicts()
		if len(got) != 1 || got[0].MAC != foreignMAC.String() || got[0].Address != vip6 {
			t.Errorf("conflicts %+v", got)
		}
		if diff := cmp.Diff([]string{"0s advertisement 2001:db8::10"}, b.announced(1)); diff != "" {
			t.Errorf("defence (-want +got):\n%s", diff)
		}
		b.set(yielded(own(vip6, eth(1))))
		if !b.answers(1, vip6) {
			t.Error("the loser is silent before the winner was heard")
		}
		b.net.deliver(1, announcementOf(vip6, winnerMAC, request))
		if b.answers(1, vip6) {
			t.Error("the loser answers after the winner's announcement")
		}
		if received, reported := b.net.groups(1); len(received)+len(reported) > 0 {
			t.Errorf("groups %v and %v are left", received, reported)
		}
	})
}

func TestBothFamiliesShareThePaceOfALink(t *testing.T) {
	inBubble(t, func(b *bench) {
		var want []plan.Announcement
		for i := range 500 {
			want = append(want,
				own(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), eth(1)),
				own(addr(fmt.Sprintf("2001:db8::%x:%x", i>>8+1, i)), eth(1)))
		}
		b.set(want...)
		b.after(2 * time.Second)
		sent := b.net.take(1)
		seen := map[string]bool{}
		for i, f := range sent[:1000] {
			what := describe(t, f.frame)
			if seen[what] {
				t.Fatalf("frame %d: %s once more before all were announced", i, what)
			}
			seen[what] = true
		}
		if took := sent[999].at.Sub(b.start); took < 980*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("1000 addresses were announced after %s, want 1 s", took)
		}
	})
}

// The groups of a link are derived from what is wanted, on whatever link, at
// whatever time.
func TestW3GroupsFollowTheWantedSet(t *testing.T) {
	twin := addr("2001:db8:7::10") // in the group of vip6
	const group, all = "33:33:ff:00:00:10", "33:33:00:00:00:01"
	inBubble(t, func(b *bench) {
		check := func(link int, received, reported string) {
			t.Helper()
			gotReceived, gotReported := b.net.groups(link)
			want := [][]string{strings.Fields(received), strings.Fields(reported)}
			if diff := cmp.Diff(want, [][]string{gotReceived, gotReported}, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("groups of eth%d (-want +got):\n%s", link, diff)
			}
		}
		b.set(own(vip6, eth(1)), own(twin, eth(1)))
		check(1, all+" "+group, "ff02::1:ff00:10")
		b.set(own(vip6, eth(1), eth(2))) // a late link; one of two in the group goes
		check(1, all+" "+group, "ff02::1:ff00:10")
		check(2, all+" "+group, "ff02::1:ff00:10")
		moved := eth(1)
		moved.MAC = winnerMAC.String()
		b.set(own(vip6, moved))
		check(1, all+" "+group, "ff02::1:ff00:10")
		check(2, "", "")
		b.set(own(vip, moved)) // IPv4 has no groups
		check(1, "", "")
	})
}

func TestManyGroupsTakeSeveralReporters(t *testing.T) {
	inBubble(t, func(b *bench) {
		var want []plan.Announcement
		for i := range 10 * reporterRoom {
			want = append(want, own(addr(fmt.Sprintf("2001:db8::%x", i)), eth(1)))
		}
		b.set(want...)
		if _, reported := b.net.groups(1); len(reported) != len(want) {
			t.Errorf("%d groups are reported, want %d", len(reported), len(want))
		}
		b.set(want[7:11]...)
		if _, reported := b.net.groups(1); len(reported) != 4 {
			t.Errorf("%d groups are reported, want 4", len(reported))
		}
	})
}

func TestGroupThatCannotBeJoinedIsReportedOnceAndTriedAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.net.change(1, func(l *fakeLink) { l.deaf = errors.New("bad luck") })
		err := b.s.Set(context.Background(), []plan.Announcement{own(vip6, eth(1))})
		if want := "on eth1: join ff02::1:ff00:10: bad luck"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Set: %v, want %q", err, want)
		}
		for range 30 {
			b.set(own(vip6, eth(1)))
			b.after(time.Second)
		}
		if !b.answers(1, vip6) {
			t.Error("a solicitation that arrives nevertheless is not answered")
		}
		if b.log.Len() > 0 {
			t.Errorf("reported again: %s", b.log)
		}
		b.net.change(1, func(l *fakeLink) { l.deaf = nil })
		b.after(10 * time.Second)
		if _, reported := b.net.groups(1); len(reported) != 1 {
			t.Errorf("groups %v, want one", reported)
		}
		if got := b.log.String(); got != "level=INFO msg=\"groups are joined again\" link=eth1\n" {
			t.Errorf("log: %s", got)
		}
	})
}
