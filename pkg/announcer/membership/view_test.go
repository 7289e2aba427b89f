package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/memberlist"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// node is what memberlist tells of a member.
func node(name string, d metadata) *memberlist.Node {
	return &memberlist.Node{Name: name, Addr: []byte{192, 0, 2, 1}, Port: 7956, Meta: d.encode()}
}

func names(members []plan.Member) string {
	var out []string
	for _, m := range members {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

func member(t *testing.T, v *view, name string) plan.Member {
	t.Helper()
	for _, m := range v.members() {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("%s is no member", name)
	return plan.Member{}
}

func TestNewViewIsAloneAndPassive(t *testing.T) {
	v := newView("b")
	want := []plan.Member{{Name: "b", Rules: election.Rules, Passive: true}}
	if d := cmp.Diff(want, v.members()); d != "" {
		t.Error(d)
	}
}

func TestMembersAreSortedByName(t *testing.T) {
	v := newView("m")
	for _, n := range []string{"z", "a", "q"} {
		v.join(node(n, metadata{life: 1}))
	}
	if got := names(v.members()); got != "a m q z" {
		t.Errorf("members are %s", got)
	}
}

func TestPublishCountsOnlyChanges(t *testing.T) {
	v := newView("a")
	steps := []struct {
		what  string
		state State
		want  bool
		links int // of the table's seq afterwards
	}{
		{"still passive", State{Passive: true}, false, 0},
		{"passive with links", State{Passive: true, Links: exampleLinks()}, true, 1},
		{"the same again", State{Passive: true, Links: exampleLinks()}, false, 1},
		{"active, links not told", State{}, true, 1},
		{"no links any more", State{Links: []plan.Link{}}, true, 2},
		{"draining", State{Draining: true, Links: []plan.Link{}}, true, 2},
	}
	for _, s := range steps {
		before := v.metadata().seq
		if got := v.publish(s.state); got != s.want {
			t.Errorf("%s: changed is %v, want %v", s.what, got, s.want)
		}
		if raised := v.metadata().seq > before; raised != s.want {
			t.Errorf("%s: seq raised is %v, want %v", s.what, raised, s.want)
		}
		if got := v.metadata().linksSeq; got != uint64(s.links) {
			t.Errorf("%s: links have seq %d, want %d", s.what, got, s.links)
		}
	}
}

func TestReturns(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what   string
		events func(v *view)
		want   int
	}{
		{"a newcomer", func(v *view) { v.join(node("b", metadata{life: 1})) }, 0},
		{"taken for dead and back, the same process", func(v *view) {
			v.join(node("b", metadata{life: 1}))
			v.leftOrLost("b", now, false)
			v.join(node("b", metadata{life: 1}))
		}, 1},
		{"killed and started again", func(v *view) {
			v.join(node("b", metadata{life: 1}))
			v.leftOrLost("b", now, false)
			v.join(node("b", metadata{life: 2}))
		}, 0},
		{"said good-bye", func(v *view) {
			v.join(node("b", metadata{life: 1}))
			v.hear("b", metadata{life: 1, seq: 9, leaving: true})
			v.leftOrLost("b", now, false)
			v.join(node("b", metadata{life: 1}))
		}, 0},
		{"said good-bye, which was overtaken", func(v *view) {
			v.join(node("b", metadata{life: 1}))
			v.leftOrLost("b", now, false)
			v.hear("b", metadata{life: 1, seq: 9, leaving: true})
			v.join(node("b", metadata{life: 1}))
		}, 0},
		{"everybody, after this announcer was cut off", func(v *view) {
			for _, n := range []string{"b", "c", "d"} {
				v.join(node(n, metadata{life: 1}))
			}
			for _, n := range []string{"b", "c", "d"} {
				v.leftOrLost(n, now, false)
				v.join(node(n, metadata{life: 1}))
			}
		}, 3},
		{"this announcer, told by two within a second", func(v *view) {
			v.wasGone(message{life: v.self.life}, now)
			v.wasGone(message{life: v.self.life}, now.Add(ownReturnEvery/2))
		}, 1},
		{"this announcer, twice", func(v *view) {
			v.wasGone(message{life: v.self.life}, now)
			v.wasGone(message{life: v.self.life}, now.Add(ownReturnEvery))
		}, 2},
		{"a former process of this announcer", func(v *view) { v.wasGone(message{life: v.self.life + 1}, now) }, 0},
	} {
		v := newView("a")
		c.events(v)
		if got := v.returned(); got != c.want {
			t.Errorf("%s: %d returns, want %d", c.what, got, c.want)
		}
	}
}

func TestWhoReturnedWithoutAnotherLifeIsToldSo(t *testing.T) {
	v := newView("a")
	v.join(node("b", metadata{life: 8}))
	v.leftOrLost("b", time.Now(), false)
	v.join(node("b", metadata{life: 8}))
	got := v.letters(time.Now())
	if len(got) != 1 || got[0].to.Name != "b" || got[0].message.kind != kindReturned || got[0].message.life != 8 {
		t.Errorf("letters are %+v", got)
	}
	if again := v.letters(time.Now()); len(again) != 0 {
		t.Errorf("told again: %+v", again)
	}
}

func TestOldGossipDoesNotBringBackWhoLeft(t *testing.T) {
	v := newView("a")
	v.join(node("b", metadata{life: 1}))
	v.hear("b", metadata{life: 1, seq: 9, leaving: true})
	v.leftOrLost("b", time.Now(), false)
	if v.refuse(node("b", metadata{life: 1}), time.Now()) == nil {
		t.Error("the process that left is let in")
	}
	if err := v.refuse(node("b", metadata{life: 2}), time.Now()); err != nil {
		t.Errorf("the next process is refused: %v", err)
	}
}

func TestNewestMetadataOfAProcessWins(t *testing.T) {
	v := newView("a")
	v.join(node("b", metadata{life: 1, seq: 4, passive: true}))
	if !v.hear("b", metadata{life: 1, seq: 6, draining: true}) {
		t.Error("a direct message is no change")
	}
	if v.update(node("b", metadata{life: 1, seq: 5})) {
		t.Error("gossip that was overtaken is a change")
	}
	if v.hear("b", metadata{life: 2, seq: 9}) {
		t.Error("a message of another process is a change")
	}
	if m := member(t, v, "b"); !m.Draining || m.Passive {
		t.Errorf("b is %+v, want draining", m)
	}
	if !v.update(node("b", metadata{life: 2, seq: 1, passive: true})) {
		t.Error("a new process is no change")
	}
	if m := member(t, v, "b"); m.Draining || !m.Passive {
		t.Errorf("b is %+v, want passive", m)
	}
}

func TestWhoSaysGoodByeIsGoneAtOnce(t *testing.T) {
	v := newView("a")
	v.join(node("b", metadata{life: 1, seq: 4}))
	v.hear("b", metadata{life: 1, seq: 5, leaving: true})
	if got := names(v.members()); got != "a" {
		t.Errorf("members are %s", got)
	}
	now := time.Now()
	peers := map[string]netip.Addr{"b": netip.MustParseAddr("192.0.2.1")}
	v.leftOrLost("b", now, false)
	if absent := v.absent(peers, now.Add(leftFor-1)); len(absent) != 0 {
		t.Errorf("it would be joined again: %v", absent)
	}
	if absent := v.absent(peers, now.Add(leftFor)); len(absent) != 1 {
		t.Error("it would never be joined again")
	}
}

func TestLinksBelongToAProcess(t *testing.T) {
	now := time.Now()
	v := newView("a")
	v.join(node("b", metadata{life: 1, linksSeq: 2}))
	if got := member(t, v, "b").Links; got != nil {
		t.Errorf("links are %v before any were told", got)
	}
	if w := v.wanting(5); len(w) != 1 || w[0].Name != "b" {
		t.Errorf("links are wanted of %v", w)
	}
	links := exampleLinks()
	if !v.put(newTable("b", 1, 2, links), now) || v.put(newTable("b", 1, 1, nil), now) {
		t.Error("the older table won")
	}
	if d := cmp.Diff(links, member(t, v, "b").Links, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
		t.Error(d)
	}
	if w := v.wanting(5); len(w) != 0 {
		t.Errorf("links are still wanted of %v", w)
	}
	if v.put(newTable("b", 7, 9, nil), now) {
		t.Error("a former process replaced the table")
	}
	v.update(node("b", metadata{life: 2, linksSeq: 1}))
	if got := member(t, v, "b").Links; got != nil {
		t.Errorf("the new process shows the links of the old: %v", got)
	}
	if !v.put(newTable("b", 2, 1, links), now) {
		t.Error("the new process cannot tell its links")
	}
}

func TestTablesOfOthersThanMembersAreForgotten(t *testing.T) {
	now := time.Now()
	v := newView("a")
	v.put(newTable("early", 1, 1, exampleLinks()), now)
	v.join(node("b", metadata{life: 1, linksSeq: 1}))
	v.put(newTable("b", 1, 1, exampleLinks()), now)
	v.sweep(now.Add(forgetAfter + 1))
	if len(v.shelf.tables) != 1 {
		t.Errorf("%d tables are left, want that of b", len(v.shelf.tables))
	}
	v.leftOrLost("b", now, false)
	if len(v.shelf.tables) != 0 || v.shelf.bytes != 0 {
		t.Errorf("%d tables with %d bytes are left", len(v.shelf.tables), v.shelf.bytes)
	}
}

func TestBoundsOfWhatPeersMakeUsStore(t *testing.T) {
	now := time.Now()
	v := newView("a")
	for i := range maxMembers {
		n := node(fmt.Sprintf("n%d", i), metadata{life: 1})
		if err := v.refuse(n, time.Now()); err != nil {
			t.Fatalf("member %d is refused: %v", i, err)
		}
		v.join(n)
	}
	if err := v.refuse(node("more", metadata{life: 1}), time.Now()); !errors.Is(err, errGarbled) {
		t.Errorf("one member too many: %v", err)
	}
	if err := v.refuse(node("n7", metadata{life: 1}), time.Now()); err != nil {
		t.Errorf("a known member is refused: %v", err)
	}
	if err := v.refuse(node(strings.Repeat("n", maxName+1), metadata{}), time.Now()); !errors.Is(err, errGarbled) {
		t.Errorf("a name too long: %v", err)
	}
	if err := v.refuse(&memberlist.Node{Name: "n8", Meta: []byte("garbage")}, time.Now()); !errors.Is(err, errGarbled) {
		t.Errorf("metadata that cannot be read: %v", err)
	}
	for i := range maxMembers {
		v.leftOrLost(fmt.Sprintf("n%d", i), now.Add(time.Duration(i)), false)
	}
	v.join(node("late", metadata{life: 1}))
	v.leftOrLost("late", now.Add(time.Hour), false)
	if _, ok := v.gone["n0"]; len(v.gone) != maxMembers || ok {
		t.Errorf("%d departures are remembered, the oldest: %v", len(v.gone), ok)
	}
}

func TestTablesAreBoundedTogether(t *testing.T) {
	v := newView("a")
	big := table{links: []plan.Link{}, life: 1, seq: 1, encoded: make([]byte, maxTable)}
	for i := range 2 * maxState / maxTable {
		big.name = fmt.Sprintf("n%d", i)
		v.put(big, time.Now())
	}
	if v.shelf.bytes > maxState || v.shelf.bytes < maxState-maxTable {
		t.Errorf("%d bytes are stored, want up to %d", v.shelf.bytes, maxState)
	}
}

func TestAbsentPeers(t *testing.T) {
	v := newView("a")
	v.join(node("b", metadata{life: 1}))
	got := v.absent(map[string]netip.Addr{
		"a": netip.MustParseAddr("192.0.2.1"),
		"b": netip.MustParseAddr("192.0.2.2"),
		"d": netip.MustParseAddr("::ffff:192.0.2.4"),
		"c": netip.MustParseAddr("192.0.2.3"),
		"x": {},
		"y": netip.MustParseAddr("fe80::1%eth0"),
	}, time.Now())
	want := []absentee{{"c", netip.MustParseAddr("192.0.2.3")}, {"d", netip.MustParseAddr("192.0.2.4")}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(absentee{}), cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Error(d)
	}
}
