package plan

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Whatever happens, in whatever order: a Planner that remembers decides what
// one decides who has forgotten everything.
func TestPlannerDecidesLikeDecide(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := randomSnapshot(t, seed)
		if seed%3 == 0 {
			s = largeCluster(t, 40, 60+r.IntN(60), seed%2 == 0)
		}
		all := s
		var p Planner
		for step := range 25 {
			want := Decide(s)
			for range 1 + r.IntN(2) { // now and then nothing has changed
				if got := p.Decide(s); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d:\n%s", seed, step, difference(want, got))
				}
			}
			s = happen(t, r, s, all, seed)
		}
	}
}

// happen lets one random thing happen. It changes no list in place.
func happen(t *testing.T, r *rand.Rand, s, all Snapshot, seed uint64) Snapshot {
	switch r.IntN(8) {
	case 0, 1:
		if len(s.Members) > 0 {
			s = Lose(s, s.Members[r.IntN(len(s.Members))].Name)
		}
	case 2, 3:
		s.Members = slices.Clone(all.Members)
		for range r.IntN(4) {
			s = Lose(s, nodeName(r.IntN(60)))
		}
	case 4:
		if len(s.Members) > 0 {
			s.Members = slices.Clone(s.Members)
			m := &s.Members[r.IntN(len(s.Members))]
			m.Standing = Standing{Settling: r.IntN(2) == 0, Stale: r.IntN(3) == 0}
			m.Draining = r.IntN(3) == 0
		}
	case 5:
		s.Nodes = slices.Clone(all.Nodes)
		for range r.IntN(len(s.Nodes) + 1) {
			i := r.IntN(len(s.Nodes))
			s.Nodes = slices.Delete(s.Nodes, i, i+1)
		}
	case 6:
		s.Services = slices.Clone(all.Services[r.IntN(len(all.Services)):])
	case 7:
		s.Config = randomSnapshot(t, seed+r.Uint64N(9)).Config
	}
	return s
}

func TestPlannerForgetsWhatIsGone(t *testing.T) {
	var p Planner
	s := largeCluster(t, 100, 10, false)
	p.Decide(s)
	s.Services = s.Services[:3]
	p.Decide(s)
	if len(p.favourites) != 3 {
		t.Errorf("favourites of %d addresses", len(p.favourites))
	}
}

func TestPlannerNoticesEveryPartOfASnapshot(t *testing.T) {
	base := largeCluster(t, 2, 3, false)
	if !sameWorld(base, base) {
		t.Fatal("a snapshot is not like itself")
	}
	for i := range reflect.TypeFor[Snapshot]().NumField() {
		changed := base
		field := reflect.ValueOf(&changed).Elem().Field(i)
		switch name := reflect.TypeFor[Snapshot]().Field(i).Name; {
		case name == "Config":
			changed.Config.Hash += "x"
		case field.Kind() == reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), field.Len()+1, field.Len()+1))
		case field.Kind() == reflect.Struct:
			changed.Self.Stale = !changed.Self.Stale
		case field.Kind() == reflect.String:
			field.SetString("other")
		case field.Kind() == reflect.Bool:
			field.SetBool(!field.Bool())
		default:
			field.SetInt(field.Int() + 1)
		}
		if sameWorld(base, changed) {
			t.Errorf("a change of %s is not noticed", reflect.TypeFor[Snapshot]().Field(i).Name)
		}
	}
}

// The bounds that the product promises for a pass with 10,000 addresses and
// 1,000 nodes; a test accepts twice as much. What counts is the time of the
// processor per worker: machines that run tests have other things to do.
func TestLargeClusterIsDecidedInTime(t *testing.T) {
	s := largeCluster(t, manyAddresses, 1000, false)
	lost := Lose(s, nodeName(500))
	var p Planner
	for _, step := range []struct {
		what  string
		s     Snapshot
		bound time.Duration
	}{
		{"cold", s, time.Second},
		{"nothing changed", s, 50 * time.Millisecond},
		{"one loss", lost, 100 * time.Millisecond},
		{"one join", s, 100 * time.Millisecond},
	} {
		before := processorTime(t)
		p.Decide(step.s)
		took := processorTime(t) - before
		t.Logf("%s: %s", step.what, took)
		if took > 2*step.bound {
			t.Errorf("%s: %s, want %s", step.what, took, step.bound)
		}
	}
	some := s
	some.Services = s.Services[:manyAddresses/100]
	before := processorTime(t)
	naiveRanking(some)
	t.Logf("the rule of others, cold: 100 times %s", processorTime(t)-before)
}

// processorTime returns what this process has used of the processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkPlanner10000AddressesOn1000Nodes(b *testing.B) {
	s := largeCluster(b, 10000, 1000, false)
	lost := Lose(s, nodeName(500))
	fewer := lost
	fewer.Nodes = slices.DeleteFunc(slices.Clone(lost.Nodes), func(n Node) bool { return n.Name == nodeName(500) })
	for _, bench := range []struct {
		name   string
		worlds []Snapshot
	}{
		{"Unchanged", []Snapshot{s}},
		{"LossAndJoin", []Snapshot{lost, s}},
		{"NodeDeletedAndAdded", []Snapshot{fewer, s}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var p Planner
			p.Decide(s)
			for i := 0; b.Loop(); i++ {
				p.Decide(bench.worlds[i%len(bench.worlds)])
			}
		})
	}
	b.Run("Cold", func(b *testing.B) {
		for b.Loop() {
			var p Planner
			p.Decide(s)
		}
	})
	b.Run("Naive100Addresses", func(b *testing.B) {
		some := s
		some.Services = s.Services[:100]
		for b.Loop() {
			naiveRanking(some)
		}
	})
}
