package replay

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

const seeds = 40

var (
	plain    = Rule{Name: "plain hash"}
	settled  = Rule{Name: "settling", Settle: 30 * time.Second}
	addressA = netip.MustParseAddr("192.0.2.10")
)

// random makes equal incidents of equal seeds.
func random(seed int) func(time.Duration) time.Duration {
	r := rand.New(rand.NewPCG(uint64(seed), 3))
	return func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
}

// TestIncident replays the incident over and over, whichever node it befalls,
// and bounds how often addresses move. The plain hash rule stands beside it.
func TestIncident(t *testing.T) {
	for _, c := range []struct {
		what   string
		bursts int
		second bool
		most   int
	}{
		{"one node, spread over the day", 0, false, 30},
		{"one node, in six bursts", 6, false, 60},
		{"two nodes, spread over the day", 0, true, 50},
		{"two nodes, in six bursts", 6, true, 100},
	} {
		for _, kind := range []Kind{Restart, Stall} {
			worst, naive := 0, 0
			for seed := range seeds {
				for bad := range 8 {
					if !thorough && bad != seed%8 {
						continue
					}
					i := Incident{Kind: kind, Bursts: c.bursts, Bad: []int{bad}, Random: random(seed)}
					if c.second {
						i.Bad = append(i.Bad, (bad+1+seed%7)%8)
					}
					trace := i.Trace()
					worst = max(worst, len(Moves(trace, settled)))
					if seed < seeds/10 { // for the eye
						naive = max(naive, len(Moves(trace, plain)))
					}
				}
			}
			t.Logf("360 %ss, %s: at most %d moves, plain hash %d", kind, c.what, worst, naive)
			if worst > c.most {
				t.Errorf("360 %ss, %s: %d moves, want at most %d", kind, c.what, worst, c.most)
			}
			if naive < 10*worst {
				t.Errorf("360 %ss, %s: %d moves by the plain hash: the trace is too tame", kind, c.what, naive)
			}
		}
	}
}

// three is a cluster of three with one address.
func three(events ...Event) Trace {
	return Trace{
		Nodes: []string{"a", "b", "c"}, Addresses: []netip.Addr{addressA},
		Events: events, Detection: time.Second, Sync: time.Second,
	}
}

// owner is who announces the address when all is well.
func owner(t *testing.T) string {
	t.Helper()
	return newCluster(three(), settled).owners()[0]
}

func TestMoves(t *testing.T) {
	o := owner(t)
	for _, c := range []struct {
		what   string
		events []Event
		want   []time.Duration // of the moves
	}{
		{"nothing", nil, nil},
		{"a crash", []Event{{time.Minute, o, Restart, 5 * time.Second}}, []time.Duration{61 * time.Second, 96 * time.Second}},
		{"a restart faster than detection", []Event{{time.Minute, o, Restart, 200 * time.Millisecond}}, []time.Duration{60200 * time.Millisecond, 91200 * time.Millisecond}},
		{"a stall", []Event{{time.Minute, o, Stall, 2 * time.Second}}, []time.Duration{61 * time.Second, 92 * time.Second}},
		{"a stall that nobody notices", []Event{{time.Minute, o, Stall, 900 * time.Millisecond}}, nil},
		{"a crash while it settles", []Event{{time.Minute, o, Restart, 5 * time.Second}, {80 * time.Second, o, Restart, 5 * time.Second}},
			[]time.Duration{61 * time.Second, 206 * time.Second}},
		{"two crashes", []Event{{time.Minute, o, Restart, 5 * time.Second}, {time.Hour, o, Restart, 5 * time.Second}},
			[]time.Duration{61 * time.Second, 96 * time.Second, time.Hour + time.Second, time.Hour + 126*time.Second}},
	} {
		var got []time.Duration
		for _, m := range Moves(three(c.events...), settled) {
			got = append(got, m.At)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: moves at %s, want %s", c.what, got, c.want)
		}
	}
}

func TestNobodyIsLeftWhenAllAreAway(t *testing.T) {
	var all []Event
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, Event{time.Minute, name, Restart, 5 * time.Second})
	}
	got := Moves(three(all...), settled)
	o := owner(t)
	want := []Move{
		{61 * time.Second, addressA, o, ""},
		{66 * time.Second, addressA, "", o}, // all settle, so nobody is preferred
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("moves are %v, want %v", got, want)
	}
}

func TestEqualTracesMoveEqually(t *testing.T) {
	i := Incident{Kind: Restart, Bad: []int{2}, Random: random(1)}
	j := Incident{Kind: Restart, Bad: []int{2}, Random: random(1)}
	if a, b := Moves(i.Trace(), settled), Moves(j.Trace(), settled); !slices.Equal(a, b) {
		t.Error("they differ")
	}
}
