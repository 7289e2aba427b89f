package l2

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// A planned move: every request is answered by somebody, in the end by the winner.
func TestHandOverLosesNoRequestOnTheWire(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		s := newSegment(t, f)
		speakers, nodes := []*Speaker{s.s1, s.s2}, []*host{s.n1, s.n2}
		set(t, s.s1, s.own(s.n1, f.vip))
		if s.station.resolve(f.vip) != s.n1.mac("eth0") {
			t.Fatal("n1 does not answer")
		}
		time.Sleep(1200 * time.Millisecond)
		for move := range 6 {
			loser, winner := move%2, (move+1)%2
			before, heard, asked := len(s.station.answers(f.vip)), len(s.station.all()), 0
			ask := func(n int) {
				for range n {
					s.station.send(s.station.question(f.vip))
					asked++
					time.Sleep(time.Millisecond)
				}
			}
			ask(20)
			set(t, speakers[loser], s.yielded(nodes[loser], f.vip))
			ask(50) // the winner has not noticed yet
			set(t, speakers[winner], s.own(nodes[winner], f.vip))
			ask(50)
			eventually(t, "the loser to end", func() bool { return len(speakers[loser].Answering()) == 0 })
			ask(20)
			eventually(t, "an answer to each request", func() bool { return len(s.station.answers(f.vip))-before >= asked })
			if got := s.station.resolve(f.vip); got != nodes[winner].mac("eth0") {
				t.Errorf("move %d: answered by %s, want the winner", move, got)
			}
			s.checkOrder(f.vip, s.station.all()[heard:], nodes[loser].mac("eth0"), nodes[winner].mac("eth0"))
			// The next winner's entry must not be taken for a rival's.
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// checkOrder looks at a hand-over from the client: the loser's last answer must
// not come before the winner has made itself heard, and no question must have
// been put to nobody between the two.
func (s segment) checkOrder(a netip.Addr, frames []heardFrame, loser, winner mac) {
	s.client.T.Helper()
	lastLoser, announced := -1, -1
	for i, f := range frames {
		for _, v := range (&station{heard: []heardFrame{f}, mac: s.station.mac}).said(a) {
			switch {
			case v.by == winner && v.toAll && announced < 0:
				announced = i
			case v.by == loser:
				lastLoser = i
			}
		}
	}
	if announced < 0 || lastLoser < 0 {
		s.client.T.Errorf("announced at frame %d, last of the loser %d", announced, lastLoser)
		return
	}
	for i := lastLoser + 1; i < announced; i++ {
		if bytes.Equal(frames[i].frame, s.station.question(a)) {
			s.client.T.Errorf("a question at %d got no answer between the loser's last (%d) and the announcement (%d)", i, lastLoser, announced)
		}
	}
}

// The kernel of a member answers for the address: kube-proxy in IPVS mode
// without strictARP. An address on lo with arp_ignore 0 stands in for kube-ipvs0.
func TestB088KernelOfAMemberThatAnswersIsNamed(t *testing.T) {
	t.Parallel()
	s := newSegment(t, families[0])
	s.n2.Address("eth0", "192.0.2.2/24")
	s.n2.Address("lo", vip.String()+"/32")
	a := s.own(s.n1, vip)
	a.Layer2.GratuitousRefresh = time.Second
	set(t, s.s1, a)
	eventually(t, "a conflict", func() bool { return len(s.s1.Conflicts()) == 1 })
	if got := s.s1.Conflicts()[0]; got.Node != "n2" || got.MAC != s.n2.mac("eth0").String() || got.Cause != KernelAnswers {
		t.Errorf("conflict %+v, want the kernel of n2", got)
	}
	s.n2.Sysctl("net/ipv4/conf/all/arp_ignore", "1")
	s.n2.Sysctl("net/ipv4/conf/all/arp_announce", "2")
	eventually(t, "the conflict to end", func() bool { return len(s.s1.Conflicts()) == 0 })
	macs := map[mac]int{}
	before := len(s.station.answers(vip))
	for range 20 {
		s.station.resolve(vip)
	}
	for _, v := range s.station.answers(vip)[before:] {
		macs[v.by]++
	}
	if len(macs) != 1 || macs[s.n1.mac("eth0")] == 0 {
		t.Errorf("answered by %v, want only n1", macs)
	}
}

// Somebody has the address already: with refuse it is not announced.
func TestRefusedOnTheWire(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		s := newSegment(t, f)
		other := newHost(t, "other")
		s.plug(other, "eth0")
		other.Address("eth0", f.vip.String()+f.bits)
		a, b := s.own(s.n1, f.vip), s.own(s.n1, f.vip2)
		for _, x := range []*plan.Announcement{&a, &b} {
			x.First = true
			x.Layer2.ConflictDetection = "refuse"
		}
		set(t, s.s1, a, b)
		if got := s.station.resolve(f.vip2); got != s.n1.mac("eth0") {
			t.Errorf("%s is answered by %s", f.vip2, got)
		}
		eventually(t, "a conflict", func() bool { return len(s.s1.Conflicts()) == 1 })
		got := s.s1.Conflicts()[0]
		if !got.Refused || got.MAC != other.mac("eth0").String() || got.Cause != ForeignStation {
			t.Errorf("conflict %+v", got)
		}
		for range 10 {
			if got := s.station.resolve(f.vip); got != other.mac("eth0") {
				t.Errorf("%s is answered by %s", f.vip, got)
			}
		}
		if n := len(s.station.announcements(f.vip, s.n1.mac("eth0"))); n != 0 {
			t.Errorf("%d announcements of a refused address", n)
		}
	})
}
