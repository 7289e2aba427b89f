package observe

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// tape writes an observation whose times are milliseconds.
type tape struct {
	*Observation
	zero    time.Time
	senders [3]netip.Addr
}

func newTape() tape {
	return tape{&Observation{addr: addr("198.51.100.100")}, time.Now().Add(-time.Minute),
		[3]netip.Addr{addr("198.51.100.201"), addr("198.51.100.202"), addr("198.51.100.203")}}
}

func (x tape) at(ms int) time.Time { return x.zero.Add(time.Duration(ms) * time.Millisecond) }

func (x tape) ask(sender, ms int) { x.asked(x.senders[sender], x.at(ms)) }

func (x tape) hear(mac net.HardwareAddr, to netip.Addr, ms int) {
	x.heard(answer{addr: x.addr, mac: mac, to: to}, x.at(ms))
}

// TestObservation plays a take-over: the first owner answers, dies, a second
// announces itself and answers, and both answer once.
func TestObservation(t *testing.T) {
	x := newTape()
	x.ask(0, 0)
	x.hear(ourMAC, x.senders[0], 1)
	x.ask(1, 20) // never answered
	x.ask(2, 40) // never answered
	x.hear(theirMAC, x.addr, 50)
	x.ask(0, 60)
	x.hear(theirMAC, x.senders[0], 61)
	x.ask(1, 80)
	x.hear(theirMAC, x.senders[1], 82)
	x.hear(ourMAC, x.senders[1], 83)

	us, them := ourMAC.String(), theirMAC.String()
	replies := x.Replies(time.Time{}, time.Time{})
	want := []Reply{{x.at(1), x.at(0), us}, {x.at(61), x.at(60), them}, {x.at(82), x.at(80), them}, {x.at(83), x.at(80), us}}
	if !slices.Equal(replies, want) {
		t.Errorf("replies\ngot  %v\nwant %v", replies, want)
	}
	if got := x.Unanswered(x.at(0), x.at(60)); len(got) != 2 || !got[0].Time.Equal(x.at(20)) || !got[1].Time.Equal(x.at(40)) {
		t.Errorf("unanswered %v", got)
	}
	if got := x.Announcements(x.at(0), time.Time{}); !slices.Equal(got, []Announcement{{x.at(50), them}}) {
		t.Errorf("announcements %v", got)
	}
	if got := x.MACs(x.at(60), x.at(83)); !slices.Equal(got, []string{them}) {
		t.Errorf("answered in [60, 83): %v", got)
	}
	if got := x.MACs(x.at(60), x.at(84)); !slices.Equal(got, []string{us, them}) {
		t.Errorf("answered in [60, 84): %v", got)
	}
	if got := x.Runs(); len(got) != 3 || got[1] != (Run{them, x.at(61), x.at(82), 2}) {
		t.Errorf("runs %v", got)
	}
	gaps := x.Gaps(50 * time.Millisecond)
	if len(gaps) != 2 || gaps[0] != (Gap{x.at(1), x.at(61), 2}) || gaps[1].From != x.at(83) {
		t.Errorf("gaps %v, want one of 60 ms with two questions, and the one since the last reply", gaps)
	}
	if r, ok := x.FirstReplyAfter(x.at(1)); !ok || r != want[1] {
		t.Errorf("first reply to a question after 1 ms: %v", r)
	}
	if r, err := x.WaitOther(t.Context(), x.at(0), us); err != nil || r != want[1] {
		t.Errorf("first reply of another: %v, %v", r, err)
	}
}

// Two answer side by side after a heal; then the first alone.
func TestAlone(t *testing.T) {
	x := newTape()
	x.zero = time.Now().Add(-10 * time.Second)
	for ms := 0; ms < 30000; ms += 20 { // until long after the test
		sender := ms / 20 % 3
		x.ask(sender, ms)
		x.hear(ourMAC, x.senders[sender], ms+1)
		if ms == 4000 || ms == 7000 {
			x.hear(theirMAC, x.senders[sender], ms+2)
		}
	}
	us := ourMAC.String()
	for _, c := range []struct {
		from  int
		quiet time.Duration
		since int
		ok    bool
	}{
		{from: 3000, quiet: time.Second, since: 7002, ok: true},
		{from: 8000, quiet: time.Second, since: 8000, ok: true},
		{from: 3000, quiet: 7 * time.Second, since: 3000}, // two in that time
		{from: 19500, quiet: time.Second, since: 19500},   // too early to say
	} {
		mac, since, ok := x.Alone(x.at(c.from), c.quiet)
		if ok != c.ok || ok && mac != us || !since.Equal(x.at(c.since)) {
			t.Errorf("from %d ms, %s: %q since %s, %v; want since %d ms, %v", c.from, c.quiet, mac, since.Sub(x.zero), ok, c.since, c.ok)
		}
	}
	mac, since, err := x.WaitAlone(t.Context(), x.at(3000), time.Second)
	if mac != us || !since.Equal(x.at(7002)) || err != nil {
		t.Errorf("waited for: %q since %s, %v", mac, since.Sub(x.zero), err)
	}
}

// One answers for a second, both do for a while, the other alone does, and the
// first one again. A move is counted by when it is over, also if nobody has
// answered between from and then.
func TestMoves(t *testing.T) {
	x := newTape()
	for ms := 0; ms < 4000; ms += 20 {
		sender := ms / 20 % 3
		x.ask(sender, ms)
		if ms < 1200 || ms > 3000 {
			x.hear(ourMAC, x.senders[sender], ms+1)
		}
		if ms > 1000 && ms < 3000 {
			x.hear(theirMAC, x.senders[sender], ms+2)
		}
	}
	for from, want := range map[int]int{0: 2, 1100: 2, 1500: 1, 2999: 1, 3500: 0} {
		if got := x.Moves(x.at(from), 500*time.Millisecond); got != want {
			t.Errorf("%d moves from %d ms on, want %d", got, from, want)
		}
	}
}

func TestLateReplyToAnEarlierQuestionIsNoTakeover(t *testing.T) {
	x := newTape()
	x.ask(0, 0)
	x.hear(ourMAC, x.senders[0], 30) // the fault was at 10 ms
	if r, ok := x.FirstReplyAfter(x.at(10)); ok {
		t.Errorf("%v answers a question from before", r)
	}
}

func TestQuestionThatCouldNotBeSentDoesNotCount(t *testing.T) {
	x := newTape()
	x.ask(0, 0)
	x.unasked(x.senders[0])
	if n := len(x.Questions(time.Time{}, time.Time{})); n != 0 {
		t.Errorf("%d questions", n)
	}
}

func TestWaitTellsTheStory(t *testing.T) {
	x := newTape()
	x.ask(0, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := x.WaitReply(ctx, x.at(0))
	const want = "no reply for 198.51.100.100: context deadline exceeded; 198.51.100.100: 1 questions, 1 unanswered"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
