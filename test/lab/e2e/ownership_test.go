package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// TestOwnership looks at 50 addresses over four nodes from a client: who
// answers, and when nobody does, while nodes die, stall, leave and come back.
func TestOwnership(t *testing.T) {
	t.Cleanup(func() { startMissing(t) })
	f := launch(t, "ownership")
	t.Run("B072Failures", func(t *testing.T) {
		f.testFailures(t, 4, takeover{medianBound, worstBound}, f.undisturbed)
	})
	t.Run("HalfOfTheNodes", f.testHalfOfTheNodes)
	t.Run("Rapid", func(t *testing.T) {
		defer restarted(t, document)
		restarted(t, document+"membership: {detection: rapid}\n")
		// Who is that quick may take a stall of the busy machine for a death, so
		// what happens to other addresses is not judged.
		f.testFailures(t, 2, takeover{2 * 600 * time.Millisecond, 2 * time.Second}, func(*testing.T, loss) {})
	})
	t.Run("ColdStart", f.testColdStart)
	t.Run("Terminations", f.testTerminations)
	t.Run("RollingUpdate", f.testRollingUpdate)
	t.Run("BusyMachine", f.testBusyMachine)
}

// Owners die. Their addresses are answered by others in time, and those of all
// other nodes, at which judge looks, stay where they are.
func (f *fleet) testFailures(t *testing.T, few int, bound takeover, judge func(*testing.T, loss)) {
	for _, fault := range []struct {
		name       string
		take, mend func(hosts ...string)
	}{
		{"cut", cut(t), plug(t)},
		{"killed", kill(t), revive(t)},
	} {
		var gaps []time.Duration
		for range times(few, 20) {
			l := f.lose(t, 1, fault.take)
			judge(t, l)
			f.mend(t, l, fault.mend)
			gaps = append(gaps, l.gaps...)
		}
		judgeBy(t, fmt.Sprintf("owners %s %d times, to the next answer for each of their addresses", fault.name, times(few, 20)), gaps, bound)
	}
}

// Two of four go at once, and take half of the membership with them.
func (f *fleet) testHalfOfTheNodes(t *testing.T) {
	const bound = 2 * 2 * time.Second
	var gaps []time.Duration
	for range times(1, 5) {
		l := f.lose(t, 2, cut(t))
		f.undisturbed(t, l)
		f.mend(t, l, plug(t))
		gaps = append(gaps, l.gaps...)
	}
	judgeBy(t, "half of the nodes cut at once, to the next answer", gaps, takeover{bound, bound})
}

// The announcers of a cluster start one after the other: none of them ends up
// with more than twice its share.
func (f *fleet) testColdStart(t *testing.T) {
	kill(t)(names()...)
	apart := time.Duration(times(5, 20)) * time.Second
	for i, n := range names() {
		if i > 0 {
			time.Sleep(apart)
		}
		revive(t)(n)
	}
	whole(t)
	owners := f.settled(t, time.Now(), healBound)
	counts := shares(owners)
	t.Logf("started %s apart; addresses by node: %v", apart, counts)
	for n, share := range counts {
		if most := 2 * fleetSize / len(names()); share > most {
			t.Errorf("%s owns %d addresses, want at most %d", n, share, most)
		}
	}
}

func (f *fleet) testTerminations(t *testing.T) {
	for range times(4, 20) {
		node := busiest(f.settled(t, time.Now(), healBound), 1)[0]
		f.planned(t, node, func() { terminate(t, node) })
		f.planned(t, node, func() { revive(t)(node); whole(t) })
	}
}

// All announcers are replaced one after the other, as a DaemonSet does it.
func (f *fleet) testRollingUpdate(t *testing.T) {
	for range times(1, 5) {
		for _, n := range names() {
			f.planned(t, n, func() { terminate(t, n) })
			f.planned(t, n, func() { revive(t)(n); whole(t) })
		}
	}
}

// Eight programs that want all of both CPUs are no reason for any move.
func (f *fleet) testBusyMachine(t *testing.T) {
	f.settled(t, time.Now(), healBound)
	mark := time.Now()
	var loops []*lab.Process
	for i := range 8 {
		p, err := cluster.Start(lab.Client, fmt.Sprintf("busy-%d", i), []string{"sh", "-c", "while :; do :; done"}, nil)
		must(t, err)
		loops = append(loops, p)
	}
	time.Sleep(time.Duration(times(20, 300)) * time.Second)
	for _, p := range loops {
		must(t, p.Kill())
	}
	if n := f.moves(mark); n > 0 {
		t.Errorf("%d addresses changed hands", n)
	}
}
