package observe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Question is one request for an address.
type Question struct {
	Time    time.Time
	Replies int // how many were heard
}

// A Reply is one answer to a question.
type Reply struct {
	Time  time.Time // when the kernel got it
	Asked time.Time // when the question was sent
	MAC   string
}

// An Announcement is a frame that tells the MAC address of an address without
// a question of the Watcher: gratuitous ARP, an unsolicited advertisement, or
// any other ARP frame whose sender uses the address.
type Announcement struct {
	Time time.Time
	MAC  string
}

// A Gap is a time in which questions were asked and none was answered.
type Gap struct {
	From, To  time.Time // the replies before and after it; To is now when it lasts
	Questions int       // asked and not answered
}

// Length returns how long the gap was.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

// A Run is a row of replies from one MAC address, without one of another in
// between.
type Run struct {
	MAC         string
	First, Last time.Time
	Replies     int
}

// An Observation is all that was heard of one address. Its methods may be
// called while it grows.
type Observation struct {
	addr netip.Addr

	mu            sync.Mutex
	questions     []Question
	open          map[netip.Addr]int // sender -> index of its last question
	replies       []Reply
	announcements []Announcement
}

func (o *Observation) asked(sender netip.Addr, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[netip.Addr]int{}
	}
	o.open[sender] = len(o.questions)
	o.questions = append(o.questions, Question{Time: at})
}

// unasked takes back the last question, which could not be sent.
func (o *Observation) unasked(sender netip.Addr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, sender)
	o.questions = o.questions[:len(o.questions)-1]
}

func (o *Observation) heard(a answer, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, ok := o.open[a.to]
	if !ok {
		o.announcements = append(o.announcements, Announcement{Time: at, MAC: a.mac.String()})
		return
	}
	o.questions[i].Replies++
	o.replies = append(o.replies, Reply{Time: at, Asked: o.questions[i].Time, MAC: a.mac.String()})
}

// Replies returns the replies received in [from, to). A zero to means now.
func (o *Observation) Replies(from, to time.Time) []Reply {
	o.mu.Lock()
	defer o.mu.Unlock()
	return within(o.replies, func(r Reply) time.Time { return r.Time }, from, to)
}

// Announcements returns those received in [from, to). A zero to means now.
func (o *Observation) Announcements(from, to time.Time) []Announcement {
	o.mu.Lock()
	defer o.mu.Unlock()
	return within(o.announcements, func(a Announcement) time.Time { return a.Time }, from, to)
}

// Questions returns those asked in [from, to). A zero to means now. The last
// ones may still be answered.
func (o *Observation) Questions(from, to time.Time) []Question {
	o.mu.Lock()
	defer o.mu.Unlock()
	return within(o.questions, func(q Question) time.Time { return q.Time }, from, to)
}

// Unanswered returns the questions asked in [from, to) that nobody has answered
// yet. Let to be long enough ago for an answer.
func (o *Observation) Unanswered(from, to time.Time) []Question {
	return slices.DeleteFunc(o.Questions(from, to), func(q Question) bool { return q.Replies > 0 })
}

// within copies the part of a list that is in order of time which lies in
// [from, to). A zero to means no end.
func within[T any](all []T, at func(T) time.Time, from, to time.Time) []T {
	byTime := func(x T, t time.Time) int { return at(x).Compare(t) }
	begin, _ := slices.BinarySearchFunc(all, from, byTime)
	end := len(all)
	if !to.IsZero() {
		end, _ = slices.BinarySearchFunc(all, to, byTime)
	}
	return slices.Clone(all[begin:max(begin, end)])
}

// MACs returns who replied in [from, to), sorted. A zero to means now.
func (o *Observation) MACs(from, to time.Time) []string {
	var macs []string
	for _, r := range o.Replies(from, to) {
		macs = append(macs, r.MAC)
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

// Gaps returns the times of at least length, after the first reply, in which
// there was none.
func (o *Observation) Gaps(length time.Duration) []Gap {
	replies := o.Replies(time.Time{}, time.Time{})
	var gaps []Gap
	for i, r := range replies {
		g := Gap{From: r.Time, To: time.Now()}
		if i+1 < len(replies) {
			g.To = replies[i+1].Time
		}
		if g.Length() >= length {
			g.Questions = len(o.Unanswered(g.From, g.To))
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// Runs returns who replied, in turn. Two that reply side by side show as many
// short runs.
func (o *Observation) Runs() []Run {
	var runs []Run
	for _, r := range o.Replies(time.Time{}, time.Time{}) {
		if n := len(runs); n == 0 || runs[n-1].MAC != r.MAC {
			runs = append(runs, Run{MAC: r.MAC, First: r.Time})
		}
		last := &runs[len(runs)-1]
		last.Last = r.Time
		last.Replies++
	}
	return runs
}

// Moves counts how often the address changed hands after from: rows of replies
// from one MAC address that lasted for at least long, after such a row from
// another one. What is shorter is two that reply side by side.
func (o *Observation) Moves(from time.Time, long time.Duration) int {
	moves, holder := 0, ""
	for _, r := range o.Runs() {
		if r.Last.Sub(r.First) < long {
			continue
		}
		if holder != "" && r.MAC != holder && r.First.After(from) {
			moves++
		}
		holder = r.MAC
	}
	return moves
}

// FirstReplyAfter returns the first reply to a question that was asked at or
// after t.
func (o *Observation) FirstReplyAfter(t time.Time) (Reply, bool) {
	for _, r := range o.Replies(t, time.Time{}) {
		if !r.Asked.Before(t) {
			return r, true
		}
	}
	return Reply{}, false
}

// WaitReply waits for the first reply to a question that is asked at or after
// t.
func (o *Observation) WaitReply(ctx context.Context, t time.Time) (Reply, error) {
	return o.wait(ctx, "no reply", func() (Reply, bool) { return o.FirstReplyAfter(t) })
}

// WaitOther waits for the first reply to a question asked at or after t that
// comes from another MAC address than mac.
func (o *Observation) WaitOther(ctx context.Context, t time.Time, mac string) (Reply, error) {
	return o.wait(ctx, "no reply from another than "+mac, func() (Reply, bool) {
		for _, r := range o.Replies(t, time.Time{}) {
			if r.MAC != mac && !r.Asked.Before(t) {
				return r, true
			}
		}
		return Reply{}, false
	})
}

// Alone returns the MAC address that alone has answered in the last quiet, and
// since when it did: the time of the last reply from another one after from,
// or from itself if there was none. ok is false while several answer, or
// nobody, or quiet has not passed since from.
func (o *Observation) Alone(from time.Time, quiet time.Duration) (mac string, since time.Time, ok bool) {
	now := time.Now()
	macs := o.MACs(now.Add(-quiet), now)
	if len(macs) != 1 || now.Sub(from) < quiet {
		return "", from, false
	}
	since = from
	for _, r := range o.Replies(from, now) {
		if r.MAC != macs[0] {
			since = r.Time
		}
	}
	return macs[0], since, true
}

// WaitAlone waits until Alone knows who.
func (o *Observation) WaitAlone(ctx context.Context, from time.Time, quiet time.Duration) (mac string, since time.Time, err error) {
	r, err := o.wait(ctx, fmt.Sprintf("not one MAC address alone for %s", quiet), func() (Reply, bool) {
		mac, since, ok := o.Alone(from, quiet)
		return Reply{MAC: mac, Time: since}, ok
	})
	return r.MAC, r.Time, err
}

func (o *Observation) wait(ctx context.Context, complaint string, find func() (Reply, bool)) (Reply, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, ok := find(); ok {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return Reply{}, fmt.Errorf("%s for %s: %w; %s", complaint, o.addr, ctx.Err(), o)
		case <-tick.C:
		}
	}
}

// String tells the story of the address: who replied, from when to when, and
// how many of the questions nobody answered.
func (o *Observation) String() string {
	var story strings.Builder
	fmt.Fprintf(&story, "%s: %d questions, %d unanswered", o.addr,
		len(o.Questions(time.Time{}, time.Time{})), len(o.Unanswered(time.Time{}, time.Time{})))
	for _, r := range o.Runs() {
		fmt.Fprintf(&story, "\n  %s to %s: %d replies from %s", clock(r.First), clock(r.Last), r.Replies, r.MAC)
	}
	return story.String()
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
