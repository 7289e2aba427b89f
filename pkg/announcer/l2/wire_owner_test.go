package l2

import (
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// A planned move: every request is answered by somebody, in the end by the winner.
func TestHandOverLosesNoRequestOnTheWire(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	n1, n2, client := newHost(t, "n1"), newHost(t, "n2"), newHost(t, "client")
	for _, h := range []*host{n1, n2, client} {
		sw.plug(h, "eth0")
	}
	st := newStation(client, "eth0", clientIP, etherTypeARP)
	s1, s2 := n1.speaker(), n2.speaker()
	speakers, links := []*Speaker{s1, s2}, []plan.Link{n1.link("eth0"), n2.link("eth0")}
	set(t, s1, own(vip, links[0]))
	if st.arping(vip) != n1.mac("eth0") {
		t.Fatal("n1 does not answer")
	}
	time.Sleep(1200 * time.Millisecond)
	for move := range 6 {
		loser, winner := move%2, (move+1)%2
		before := len(st.replies(vip))
		heard := len(st.all())
		asked := 0
		ask := func(n int) {
			for range n {
				st.send(st.request(vip).appendTo(nil))
				asked++
				time.Sleep(time.Millisecond)
			}
		}
		ask(20)
		set(t, speakers[loser], yielded(own(vip, links[loser]), n1.mac("eth0"), n2.mac("eth0")))
		ask(50) // the winner has not noticed yet
		set(t, speakers[winner], own(vip, links[winner]))
		ask(50)
		eventually(t, "the loser to end", func() bool { return len(speakers[loser].Answering()) == 0 })
		end := len(st.replies(vip))
		ask(20)
		eventually(t, "an answer to each request", func() bool { return len(st.replies(vip))-before >= asked })
		if got := st.replies(vip)[end+1:]; len(got) == 0 || got[len(got)-1].senderMAC.String() != links[winner].MAC {
			t.Errorf("move %d: the winner does not answer", move)
		}
		checkOrder(t, st.all()[heard:], links[loser].MAC, links[winner].MAC)
		// The next winner's entry must not be taken for a rival's.
		time.Sleep(50 * time.Millisecond)
	}
}

// checkOrder looks at a hand-over from the client: the loser's last answer must
// not come before the winner has made itself heard.
func checkOrder(t *testing.T, frames []heardFrame, loser, winner string) {
	t.Helper()
	lastLoser, firstAnswer, announced := -1, -1, -1
	for i, f := range frames {
		p, ok := parseARP(f.frame)
		switch {
		case !ok || p.senderIP != vip:
		case p.senderMAC.String() == winner && p.dst == broadcast && announced < 0:
			announced = i
		case p.senderMAC.String() == winner && p.dst != broadcast && firstAnswer < 0:
			firstAnswer = i
		case p.senderMAC.String() == loser:
			lastLoser = i
		}
	}
	if announced < 0 || firstAnswer < 0 || lastLoser < 0 {
		t.Errorf("announced at frame %d, first answer %d, last of the loser %d", announced, firstAnswer, lastLoser)
		return
	}
	for i := lastLoser + 1; i < announced; i++ {
		if p, ok := parseARP(frames[i].frame); ok && p.operation == arpRequest && p.senderMAC.String() != winner {
			t.Errorf("a request at %d got no answer between the loser's last (%d) and the announcement (%d)", i, lastLoser, announced)
		}
	}
}

// The kernel of a member answers for the address: kube-proxy in IPVS mode
// without strictARP. An address on lo with arp_ignore 0 stands in for kube-ipvs0.
func TestB088KernelOfAMemberThatAnswersIsNamed(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	n1, n2 := newHost(t, "n1"), newHost(t, "n2")
	sw.plug(n1, "eth0")
	sw.plug(n2, "eth0")
	n2.address("eth0", "192.0.2.2/24")
	n2.address("lo", vip.String()+"/32")
	s := n1.speaker()
	a := own(vip, n1.link("eth0"))
	a.Layer2.GratuitousRefresh = time.Second
	a.Peers = map[string]string{n2.mac("eth0").String(): "n2"}
	set(t, s, a)
	eventually(t, "a conflict", func() bool { return len(s.Conflicts()) == 1 })
	if got := s.Conflicts()[0]; got.Node != "n2" || got.MAC != n2.mac("eth0").String() {
		t.Errorf("conflict %+v, want the kernel of n2", got)
	}
	n2.sysctl("net/ipv4/conf/all/arp_ignore", "1")
	eventually(t, "the conflict to end", func() bool { return len(s.Conflicts()) == 0 })
}

// Somebody has the address already: with refuse it is not announced.
func TestRefusedOnTheWire(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	node, other, client := newHost(t, "node"), newHost(t, "other"), newHost(t, "client")
	for _, h := range []*host{node, other, client} {
		sw.plug(h, "eth0")
	}
	other.address("eth0", vip.String()+"/24")
	st := newStation(client, "eth0", clientIP, etherTypeARP)
	s := node.speaker()
	a, b := own(vip, node.link("eth0")), own(vip2, node.link("eth0"))
	for _, x := range []*plan.Announcement{&a, &b} {
		x.First = true
		x.Layer2.ConflictDetection = "refuse"
	}
	set(t, s, a, b)
	if got := st.arping(vip2); got != node.mac("eth0") {
		t.Errorf("%s is answered by %s", vip2, got)
	}
	eventually(t, "a conflict", func() bool { return len(s.Conflicts()) == 1 })
	if got := s.Conflicts()[0]; !got.Refused || got.MAC != other.mac("eth0").String() {
		t.Errorf("conflict %+v", got)
	}
	for range 10 {
		if got := st.arping(vip); got != other.mac("eth0") {
			t.Errorf("%s is answered by %s", vip, got)
		}
	}
	if n := len(st.announcements(vip, node.mac("eth0"))); n != 0 {
		t.Errorf("%d announcements of a refused address", n)
	}
}
