package status

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/klog/v2"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go's view of the trouble that tests make
	os.Exit(m.Run())
}

const document = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools: [{name: public, addresses: [192.0.2.100-192.0.2.199]}]
`

// world returns the view of n1 of a cluster with three nodes, of which n3
// drains. n1 ranks first for .101, n2 for .103; .102 is not allocated.
func world(t *testing.T) plan.Snapshot {
	t.Helper()
	c, err := config.Load([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	s := plan.Snapshot{Node: "n1", Config: c, Returns: 2, Reserved: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
	for i, name := range []string{"n1", "n2", "n3"} {
		address := netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + i)})
		s.Nodes = append(s.Nodes, plan.Node{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}, Addresses: []netip.Addr{address}})
		link := plan.Link{Name: "eth0", Index: 2, MAC: "02:00:00:00:00:0" + name[1:], Up: true, NodeIP: true, Default: true,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		s.Members = append(s.Members, plan.Member{Name: name, Rules: 2, Draining: name == "n3", Links: []plan.Link{link}})
	}
	s.Links = s.Members[0].Links
	for _, name := range []string{"101", "102", "103"} {
		s.Services = append(s.Services, plan.Service{
			Namespace: "web", Name: "s" + name, Created: time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC), Labels: map[string]string{"app": name},
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2." + name)}, Allocated: true,
			Endpoints: plan.Endpoints{Ready: []string{"n1", "n2"}},
		})
	}
	s.Services[1].Allocated = false
	return s
}

// pass decides a world as the loop does.
func pass(s plan.Snapshot, before []plan.Verdict) Pass {
	verdicts := plan.Decide(s)
	return Pass{Snapshot: s, Verdicts: verdicts, Changes: plan.Diff(before, verdicts), Started: time.Now(), Took: 3 * time.Millisecond}
}

// rig is a Status whose surroundings a test sets.
type rig struct {
	*Status
	answering []plan.Announcement
	moved     []string
	refused   error
	down      []string
	gossip    Gossip
	warming   time.Duration
	layer2    Layer2
	bgp       []BGPSession
}

func newRig() *rig {
	r := &rig{}
	r.Status = New(Options{
		Node:        "n1",
		Document:    func() string { return document },
		ConfigFault: func() error { return r.refused },
		Unreachable: func() []string { return r.down },
		LeftOut:     func() map[string]string { return map[string]string{"lo": "Loopback"} },
		Answering:   func() []plan.Announcement { return r.answering },
		Gossip:      func() Gossip { return r.gossip },
		Warming:     func() time.Duration { return r.warming },
		Layer2:      func() Layer2 { return r.layer2 },
		BGP:         func() []BGPSession { return r.bgp },
		Host:        func() []HostLink { return []HostLink{{Name: "eth0", MTU: 1500, ReversePath: 2}} },
		Reloads:     func() uint64 { return 5 },
		Moved:       func(n Note) { r.moved = append(r.moved, describe(n)) },
		Log:         slog.New(slog.DiscardHandler),
	})
	return r
}

func describe(n Note) string {
	if n.To != "n1" {
		return fmt.Sprintf("lost %s: %s", n.Address, n.Cause)
	}
	return strings.Join(n.Services, " ") + " " + n.text()
}

// answers makes the speaker answer for what is announced from a pass.
func (r *rig) answers(p Pass) { r.answering = plan.Announcements(p.Verdicts, p.Snapshot) }

func TestGainIsToldWhenASpeakerAnswers(t *testing.T) {
	r := newRig()
	s := world(t)
	p := pass(s, nil)
	r.Observe(p)
	if len(r.moved) != 0 {
		t.Fatalf("told before anything is answered: %v", r.moved)
	}
	r.answers(p)
	r.Observe(pass(s, p.Verdicts)) // nothing new, but answered
	want := []string{"web/s101 announcing 192.0.2.101 from n1, eth0"}
	if diff := cmp.Diff(want, r.moved); diff != "" {
		t.Error(diff)
	}

	// At rest nothing is told, however often the loop passes.
	for range 10 {
		r.Observe(pass(s, p.Verdicts))
	}
	if diff := cmp.Diff(want, r.moved); diff != "" {
		t.Error(diff)
	}
}

func TestMovesAreToldWithTheirCause(t *testing.T) {
	r := newRig()
	s := world(t)
	first := pass(s, nil)
	r.answers(first)
	r.Observe(first)
	r.moved = nil

	s.Members = append([]plan.Member{}, s.Members...)
	s.Members[1].Draining = true
	second := pass(s, first.Verdicts)
	r.answers(second)
	r.Observe(second)

	s.Services = append([]plan.Service{}, s.Services...)
	s.Services[0].Endpoints = plan.Endpoints{}
	third := pass(s, second.Verdicts)
	r.answers(third)
	r.Observe(third)

	s.Services = append([]plan.Service{}, s.Services...)
	s.Services[0].Endpoints = plan.Endpoints{Ready: []string{"n1"}}
	fourth := pass(s, third.Verdicts)
	r.answers(fourth)
	r.Observe(fourth)

	want := []string{
		"web/s103 announcing 192.0.2.103 from n1, eth0 (was n2: Draining)",
		"lost 192.0.2.101: NoEndpoints",
		"web/s101 announcing 192.0.2.101 from n1, eth0 (was nobody: NoEndpoints)",
	}
	if diff := cmp.Diff(want, r.moved); diff != "" {
		t.Error(diff)
	}
}

func TestMovesAreRemembered(t *testing.T) {
	r := newRig()
	s := world(t)
	first := pass(s, nil)
	r.Observe(first)
	if got := r.Plan().Moves; len(got) != 0 {
		t.Errorf("what was there at the start has moved: %v", got)
	}
	s.Members = append([]plan.Member{}, s.Members...)
	s.Members[1].Draining = true
	second := pass(s, first.Verdicts)
	r.Observe(second)
	r.Observe(pass(s, second.Verdicts)) // at rest
	want := []Move{{Time: second.Started, Address: netip.MustParseAddr("192.0.2.103"), From: "n2", To: "n1", Cause: plan.Draining, Services: []string{"web/s103"}}}
	if diff := cmp.Diff(want, r.Plan().Moves, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	before := second.Verdicts
	for i := range 2 * movesAtMost {
		s.Members = append([]plan.Member{}, s.Members...)
		s.Members[1].Draining = i%2 == 1
		p := pass(s, before)
		r.Observe(p)
		before = p.Verdicts
	}
	got := r.Plan().Moves
	if len(got) != movesAtMost || got[0].To != "n1" || got[1].To != "n2" {
		t.Errorf("%d moves, the newest %+v", len(got), got[:2])
	}
}

func TestHealth(t *testing.T) {
	r := newRig()
	if err := r.Healthy(r.born.Add(time.Minute)); err != nil {
		t.Errorf("while it starts: %v", err)
	}
	if err := r.Healthy(r.born.Add(passAtLeast + time.Second)); err == nil {
		t.Error("healthy though no pass has ended since the start")
	}
	p := pass(world(t), nil)
	p.Err = errors.New("a speaker failed") // the loop is alive all the same
	r.Observe(p)
	if err := r.Healthy(p.Started.Add(time.Minute)); err != nil {
		t.Errorf("after a pass: %v", err)
	}
	err := r.Healthy(p.Started.Add(p.Took + 3*time.Minute))
	if want := "no pass of the loop has ended for 3m0s"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReady(t *testing.T) {
	alone := world(t)
	alone.Members = alone.Members[:1]
	single := world(t)
	single.Members, single.Nodes = single.Members[:1], single.Nodes[:1]
	elsewhere := world(t)
	elsewhere.Members = elsewhere.Members[:1]
	elsewhere.Nodes[1].Labels = map[string]string{"kubernetes.io/os": "windows"}
	elsewhere.Nodes[2].Deleting = true
	many := world(t)
	many.Members = many.Members[:1]
	for _, name := range []string{"n4", "n5"} {
		many.Nodes = append(many.Nodes, plan.Node{Name: name})
	}
	failing := pass(world(t), nil)
	failing.Err = errors.New("announce on eth0: permission denied")
	tests := []struct {
		name string
		p    *Pass
		want string
	}{
		{"before the first pass", nil, "NotSynced: the loop has not passed yet"},
		{"nothing known yet", &Pass{Err: errors.New("waiting for Nodes"), Started: time.Now()}, "NotSynced: waiting for Nodes"},
		{"all well", ptr(pass(world(t), nil)), ""},
		{"a speaker fails, which no restart would mend", &failing, ""},
		{"has met nobody", ptr(pass(alone, nil)), "MembershipIncomplete: has met no other announcer, though there should be one on n2, n3"},
		{"has met nobody of many", ptr(pass(many, nil)), "MembershipIncomplete: has met no other announcer, though there should be one on n2, n3, n4 and 1 more"},
		{"there is nobody to meet", ptr(pass(single, nil)), ""},
		{"there is nobody to meet who could announce", ptr(pass(elsewhere, nil)), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig()
			if tt.p != nil {
				r.Observe(*tt.p)
			}
			var got string
			if err := r.Ready(); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

func ptr(p Pass) *Pass { return &p }
