package decide

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// Whatever is known, the addresses that the kubelet was given come first and
// in their order, each address comes once, and no address of a pool comes that
// the kubelet was not given, unless the Node has it and no Service does.
func TestB158AddressesKeepWhatTheKubeletWasGiven(t *testing.T) {
	c, err := config.Load([]byte(config.Smallest + "nodes: {excludeAddresses: [198.51.100.5], internalCIDRs: [198.51.100.0/24], externalCIDRs: [203.0.113.0/24]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	open := c
	open.Nodes.InternalCIDRs, open.Nodes.ExternalCIDRs = nil, nil
	all := addrs("198.51.100.11", "2001:db8:51::11", "198.51.100.5", "203.0.113.7", "192.0.2.100", "192.0.2.1", "169.254.1.1", "fe80::1")
	r := rand.New(rand.NewPCG(1, 2))
	some := func() []netip.Addr {
		picked := slices.Clone(all)
		r.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
		return picked[:r.IntN(4)]
	}
	for range 2000 {
		f := AddressFacts{Provided: some(), Known: some()}
		for _, a := range some() {
			f.Current = append(f.Current, Address{ExternalIP, a})
		}
		f.Held = some()
		for _, c := range []config.Config{c, open} {
			checkAddresses(t, f, c)
		}
	}
}

func checkAddresses(t *testing.T, f AddressFacts, c config.Config) {
	t.Helper()
	got := Addresses(f, c)
	seen := map[netip.Addr]bool{}
	for i, a := range got {
		if i < len(f.Provided) && (a.Addr != f.Provided[i] || a.Type != InternalIP) {
			t.Errorf("%+v: %v does not begin with what the kubelet was given", f, got)
		}
		if i >= len(f.Provided) && Excluded(a.Addr, c) {
			t.Errorf("%+v: %s is excluded", f, a.Addr)
		}
		_, pooled := c.PoolOf(a.Addr)
		own := slices.ContainsFunc(f.Current, func(b Address) bool { return b.Addr == a.Addr }) && !slices.Contains(f.Held, a.Addr)
		if i >= len(f.Provided) && pooled && !own {
			t.Errorf("%+v: %s is of a pool", f, a.Addr)
		}
		if seen[a.Addr] {
			t.Errorf("%+v: %s twice", f, a.Addr)
		}
		seen[a.Addr] = true
	}
	if len(got) < len(f.Provided) {
		t.Errorf("%+v: only %v", f, got)
	}
}

// A pool that contains a Node's own address takes it away from nobody: off the
// Node, it would be given out.
func TestPoolTakesNoAddressFromItsNode(t *testing.T) {
	c, err := config.Load([]byte(config.Smallest))
	if err != nil {
		t.Fatal(err)
	}
	pooled, other := netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("198.51.100.11")
	for _, test := range []struct {
		what  string
		facts AddressFacts
		want  []netip.Addr
	}{
		{"it has no other", AddressFacts{Current: []Address{{InternalIP, pooled}}}, []netip.Addr{pooled}},
		{"it has another", AddressFacts{Current: []Address{{InternalIP, pooled}, {InternalIP, other}}}, []netip.Addr{pooled, other}},
		{"a Service holds it", AddressFacts{Current: []Address{{InternalIP, pooled}, {InternalIP, other}}, Held: []netip.Addr{pooled}}, []netip.Addr{other}},
		{"the inventory has both", AddressFacts{Known: []netip.Addr{pooled, other}, Current: []Address{{InternalIP, pooled}}}, []netip.Addr{pooled, other}},
		{"only the inventory has it", AddressFacts{Known: []netip.Addr{pooled, other}}, []netip.Addr{other}},
		{"a Service holds an address of no pool", AddressFacts{Current: []Address{{InternalIP, other}}, Held: []netip.Addr{other}}, []netip.Addr{other}},
	} {
		var got []netip.Addr
		for _, a := range Addresses(test.facts, c) {
			got = append(got, a.Addr)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.what, got, test.want)
		}
	}
}

func TestLabelValueIsAlwaysOne(t *testing.T) {
	for text, want := range map[string]string{
		"PowerEdge R650 (SKU=NotProvided)": "PowerEdge-R650-SKU-NotProvided",
		"":                                 "",
		" ?! ":                             "",
		"ProLiant DL360_Gen10.":            "ProLiant-DL360_Gen10",
		strings.Repeat("x", 62) + " y":     strings.Repeat("x", 62),
		"Маšina 7":                         "ina-7",
	} {
		got := LabelValue(text)
		if got != want || len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzLabelValue(f *testing.F) {
	f.Add("PowerEdge R650 (SKU=NotProvided;ModelName=PowerEdge R650)")
	f.Add(strings.Repeat("-a", 70))
	f.Fuzz(func(t *testing.T, text string) {
		if got := LabelValue(text); len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

func TestLabelsChangeNothingTwice(t *testing.T) {
	d := Description{Zone: "z", Region: "r", InstanceType: "t", Labels: map[string]string{"rack": "a7", "disk": "nvme"}}
	now := map[string]string{"rack": "old", "gone": "x", "theirs": "x", zoneKeys[1]: "old"}
	change := Labels(now, []string{"gone", "missing", "rack"}, d)
	want := LabelChange{
		Set: map[string]string{
			zoneKeys[0]: "z", zoneKeys[1]: "z", regionKeys[0]: "r", regionKeys[1]: "r", typeKeys[0]: "t", typeKeys[1]: "t", "rack": "a7", "disk": "nvme",
		},
		Remove: []string{"gone"},
		Owned:  []string{"disk", "rack"},
	}
	if !reflect.DeepEqual(change, want) {
		t.Errorf("got %+v", change)
	}
	for key, value := range change.Set {
		now[key] = value
	}
	for _, key := range change.Remove {
		delete(now, key)
	}
	if again := Labels(now, change.Owned, d); again.Set != nil || again.Remove != nil || !slices.Equal(again.Owned, change.Owned) {
		t.Errorf("a second time: %+v", again)
	}
	if silent := Labels(now, nil, Description{}); !reflect.DeepEqual(silent, LabelChange{}) {
		t.Errorf("nobody says anything: %+v", silent)
	}
}

func TestOwnedLabelsOfKubernetesAreNotRemoved(t *testing.T) {
	c := Labels(map[string]string{"kubernetes.io/hostname": "n1"}, []string{"kubernetes.io/hostname"}, Description{})
	if c.Remove != nil {
		t.Errorf("an annotation that somebody has written removes %v", c.Remove)
	}
}

func TestSuspicionStartsAgainWithTheSource(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	old := NodeFacts{UID: "u", Created: now.Add(-time.Hour), Initialized: true}
	s := Suspicion{}
	for range 20 {
		now = now.Add(30 * time.Second)
		s = s.Again(now, 1)
	}
	if ok, why := s.Confirmed(old, now, 5*time.Minute, 3); !ok {
		t.Fatalf("not confirmed: %s", why)
	}
	if s = s.Again(now, 2); s.Times != 1 || !s.Since.Equal(now) {
		t.Errorf("after the source was out of reach: %+v", s)
	}
	if ok, _ := s.Confirmed(old, now, 5*time.Minute, 3); ok {
		t.Error("confirmed by what was seen before")
	}
}

func TestSuspicionTakesAsManySightingsAsConfigured(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	old := NodeFacts{UID: "u", Created: now.Add(-time.Hour), Initialized: true}
	for _, enough := range []int{2, 3, 7} {
		s := Suspicion{}.Again(now, 1)
		for seen := 1; seen < enough; seen++ {
			if ok, _ := s.Confirmed(old, now.Add(time.Hour), time.Minute, enough); ok {
				t.Errorf("%d of %d are enough", seen, enough)
			}
			s = s.Again(now.Add(time.Hour), 1)
		}
		if ok, why := s.Confirmed(old, now.Add(time.Hour), time.Minute, enough); !ok {
			t.Errorf("%d are not enough: %s", enough, why)
		}
	}
}

// Of n Nodes that all go at once, in any ten minutes at most a tenth does.
func TestBreakerBoundsMassDeletions(t *testing.T) {
	for _, n := range []int{1, 9, 19, 20, 100} {
		var all []NodeFacts
		for i := range n {
			all = append(all, NodeFacts{UID: fmt.Sprint(i)})
		}
		var b Breaker
		now := time.Unix(1_000_000, 0)
		var gone []time.Time
		for range 25 * 60 / 5 {
			now = now.Add(5 * time.Second)
			for _, node := range slices.Clone(all) {
				if ok, _ := b.Allow(node, all, now); ok {
					gone = append(gone, now)
					all = slices.DeleteFunc(all, func(o NodeFacts) bool { return o.UID == node.UID })
				}
			}
		}
		for i, first := range gone {
			in := 0
			for _, at := range gone[i:] {
				if at.Sub(first) < window {
					in++
				}
			}
			if in > max(1, n/fraction) {
				t.Errorf("%d of %d within %s", in, n, window)
			}
		}
		if len(gone) == 0 {
			t.Errorf("none of %d", n)
		}
	}
}

func TestBreakerCountsANodeOnce(t *testing.T) {
	all := []NodeFacts{{UID: "a"}, {UID: "b"}}
	var b Breaker
	now := time.Unix(1_000_000, 0)
	for range 5 { // its deletion fails, and is tried again
		if ok, why := b.Allow(all[0], all, now); !ok {
			t.Fatalf("not allowed again: %s", why)
		}
	}
	if ok, _ := b.Allow(all[1], all, now); ok {
		t.Error("and another one")
	}
	if ok, _ := b.Allow(all[1], all, now.Add(window)); !ok {
		t.Error("not even ten minutes later")
	}
}

func TestQuorumOfTheControlPlane(t *testing.T) {
	for _, test := range []struct {
		members, ready int // others than the one in question
		want           bool
	}{{0, 0, false}, {1, 1, false}, {2, 1, false}, {2, 2, true}, {4, 2, false}, {4, 3, true}} {
		n := NodeFacts{UID: "n", ControlPlane: true}
		all := []NodeFacts{n, {UID: "worker", Ready: true}}
		for i := range test.members {
			all = append(all, NodeFacts{UID: fmt.Sprint(i), ControlPlane: true, Ready: i < test.ready})
		}
		var b Breaker
		if ok, _ := b.Allow(n, all, time.Unix(1_000_000, 0)); ok != test.want {
			t.Errorf("with %d others, %d of them Ready: %v", test.members, test.ready, ok)
		}
	}
}
