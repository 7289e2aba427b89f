package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// TestOwnership looks at 50 addresses over four nodes from a client: who
// answers, and when nobody does, while nodes die, stall, leave and come back.
func TestOwnership(t *testing.T) {
	atRest(t)
	t.Cleanup(func() { startMissing(t) })
	f := launch(t, "ownership")
	t.Run("B072Failures", func(t *testing.T) {
		f.testFailures(t, 4, takeover{medianBound, worstBound}, f.unmoved)
	})
	t.Run("HalfOfTheNodes", f.testHalfOfTheNodes)
	t.Run("Rapid", func(t *testing.T) {
		defer restarted(t, document)
		restarted(t, withMembership("settle: 0s, detection: rapid"))
		// Who is that quick may take a stall of the busy machine for a death, so
		// what happens to other addresses is not judged.
		f.testFailures(t, 2, takeover{2 * 600 * time.Millisecond, 2 * time.Second}, func(*testing.T, loss) {})
	})
	t.Run("ColdStart", f.testColdStart)
	t.Run("Terminations", f.testTerminations)
	t.Run("RollingUpdate", f.testRollingUpdate)
	t.Run("ReleasesSideBySide", f.testReleasesSideBySide)
	t.Run("Drains", f.testDrains)
	t.Run("B077TwoLeaveAtOnce", f.testB077TwoLeaveAtOnce)
	t.Run("BusyMachine", f.testBusyMachine)
	t.Run("Stalls", f.testStalls)
	t.Run("Crashes", f.testCrashes)
	t.Run("StaleNode", f.testStaleNode)
}

// Owners die, and come back. Their addresses are answered by others in time, and
// are theirs again afterwards; those of all other nodes, at which judge looks,
// stay where they are.
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
			f.mend(t, l, fault.mend)
			judge(t, l)
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
		f.mend(t, l, plug(t))
		f.unmoved(t, l)
		gaps = append(gaps, l.gaps...)
	}
	judgeBy(t, "half of the nodes cut at once, to the next answer", gaps, takeover{bound, bound})
}

// settling is what a cluster has by default; the shared installation has nobody
// settle.
const settling = "settle: 30s"

// The announcers of a new cluster start one after the other: none of them ends
// up with more than twice its share.
func (f *fleet) testColdStart(t *testing.T) {
	defer restarted(t, document)
	enforce(t, withMembership(settling))
	kill(t)(names()...)
	forgetThePast(t)
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

// All announcers are replaced by those of the next release, whose election rules
// differ: a node that comes back settles by them, and takes its addresses at once
// by the former ones. As long as one of the former announcers is left, all obey
// its rules. So each address has one owner all the time, and when the last one has
// gone the new rules are in force.
func (f *fleet) testReleasesSideBySide(t *testing.T) {
	const settle = 8 * time.Second
	defer restarted(t, document)
	root, err := product.Root(t.Context())
	must(t, err)
	former, err := product.BuildFormer(t.Context(), root, t.TempDir())
	must(t, err)
	enforce(t, withMembership(fmt.Sprintf("settle: %s", settle)))
	kill(t)(names()...)
	forgetThePast(t)
	for _, n := range names() {
		_, err := installed.StartFormerAnnouncer(former, n)
		must(t, err)
	}
	whole(t)
	time.Sleep(settle + 2*time.Second) // until then whoever comes is a founder

	owners := f.settled(t, time.Now(), healBound)
	replace := func(node string, back func()) {
		mark := time.Now()
		f.planned(t, node, func() { terminate(t, node) })
		f.planned(t, node, func() { revive(t)(node); back() })
		f.undisturbed(t, loss{at: mark, victims: []string{node}, owners: owners})
	}
	last := names()[len(names())-1]
	for _, n := range names()[:len(names())-1] {
		replace(n, func() { f.owns(t, n, owned(owners, n)) })
	}
	whole(t) // they have settled
	var mark time.Time
	replace(last, func() { mark = time.Now() })
	if mine := owned(f.settled(t, mark, healBound), last); len(mine) > 0 {
		t.Errorf("%s, the last one replaced, has taken %v before it had settled", last, mine)
	}
	whole(t)
	f.owns(t, last, owned(owners, last))
	if after := f.settled(t, time.Now(), healBound); !maps.Equal(after, owners) {
		t.Errorf("before the update the owners were\n%v\nafter it they are\n%v", owners, after)
	}
	f.judgeMove(t, mark, 2, f.watcher.Of)
}

// owns waits until a node alone answers for its addresses.
func (f *fleet) owns(t *testing.T, node string, addresses []netip.Addr) {
	t.Helper()
	for _, a := range addresses {
		eventually(t, fmt.Sprintf("%s to answer for %s", node, a), func(context.Context) error {
			now := time.Now()
			if macs := f.watcher.Of(a).MACs(now.Add(-500*time.Millisecond), now); !slices.Equal(macs, []string{macOf(node)}) {
				return fmt.Errorf("%v answer", macs)
			}
			return nil
		})
	}
}

// The label by which the DaemonSet selects its nodes is removed from two of
// them: their pods are deleted at once. An address may go from the one that
// hears of it first to the other, and from there to one that stays.
func (f *fleet) testB077TwoLeaveAtOnce(t *testing.T) {
	leaving := busiest(f.settled(t, time.Now(), healBound), 2)
	f.plannedBy(t, 1+len(leaving), leaving[0], func() {
		for _, n := range leaving {
			must(t, installed.Announcer(n).Signal(syscall.SIGTERM))
		}
		for _, n := range leaving {
			must(t, installed.Announcer(n).Wait(bounded(t)))
		}
	})
	revive(t)(leaving...)
	whole(t)
}

// drainAnnotation asks a node's announcer to give its addresses away.
const drainAnnotation = "ccm-baremetal.io/drain"

func (f *fleet) testDrains(t *testing.T) {
	for range times(1, 5) {
		node := busiest(f.settled(t, time.Now(), healBound), 1)[0]
		f.planned(t, node, func() {
			drain(t, node, "true")
			f.silentNode(t, node)
		})
		f.planned(t, node, func() { drain(t, node, "false") })
	}
}

// drain sets the annotation; false is as good as none.
func drain(t *testing.T, node, value string) {
	t.Helper()
	must(t, cluster.EditNode(bounded(t), node, func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, drainAnnotation, value)
	}))
}

// silentNode waits until a node has not answered for any address for a second.
func (f *fleet) silentNode(t *testing.T, node string) {
	t.Helper()
	eventually(t, node+" to fall silent", func(context.Context) error {
		now := time.Now()
		for _, a := range f.addresses {
			if slices.Contains(f.watcher.Of(a).MACs(now.Add(-time.Second), now), macOf(node)) {
				return fmt.Errorf("it answers for %s", a)
			}
		}
		return nil
	})
}

// Eight programs that want all of both CPUs are no reason for any move. The
// machine may be short of them for reasons of its own, so one attempt of three
// has to show it.
func (f *fleet) testBusyMachine(t *testing.T) {
	const attempts = 3
	for i := range attempts {
		f.settled(t, time.Now(), patience)
		moves := f.movesWhileBusy(t)
		if moves == 0 {
			return
		}
		t.Logf("attempt %d: %d addresses changed hands", i+1, moves)
	}
	t.Errorf("addresses changed hands in each of %d attempts", attempts)
}

// movesWhileBusy keeps the machine busy for some time, and returns how often
// addresses changed hands meanwhile.
func (f *fleet) movesWhileBusy(t *testing.T) int {
	t.Helper()
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
	return f.moves(mark)
}

// A node stalls again and again, for some time that is or is not taken for its
// death: its addresses move away once, and come back once.
func (f *fleet) testStalls(t *testing.T) {
	defer restarted(t, document)
	restarted(t, withMembership(settling))
	owners := f.settled(t, time.Now(), healBound)
	node := busiest(owners, 1)[0]
	share := len(owned(owners, node))
	mark := time.Now()
	n := times(8, 50)
	for i := range n {
		must(t, installed.Announcer(node).Pause())
		time.Sleep(300*time.Millisecond + time.Duration(i)*1700*time.Millisecond/time.Duration(n-1))
		must(t, installed.Announcer(node).Resume())
		time.Sleep(time.Second)
	}
	whole(t)
	f.settled(t, time.Now(), healBound)
	f.damped(t, fmt.Sprintf("%d stalls", n), share, mark)
}

// damped fails the test unless the addresses of a node that was away again and
// again have moved away, and back once at most.
func (f *fleet) damped(t *testing.T, what string, share int, since time.Time) {
	t.Helper()
	moves := f.moves(since)
	t.Logf("%s of a node with %d addresses: %d moves", what, share, moves)
	if moves < share || moves > 2*share {
		t.Errorf("want %d to %d moves", share, 2*share)
	}
}

// An announcer is killed and started again and again, sooner and later than its
// death is noticed: its addresses move away once, and come back once at most.
func (f *fleet) testCrashes(t *testing.T) {
	const settle = 5 * time.Second
	defer restarted(t, document)
	restarted(t, withMembership(fmt.Sprintf("settle: %s", settle)))
	time.Sleep(settle + 2*time.Second) // until then whoever comes is a founder
	owners := f.settled(t, time.Now(), healBound)
	node := busiest(owners, 1)[0]
	share := len(owned(owners, node))
	mark := time.Now()
	n := times(8, 50)
	for i := range n {
		kill(t)(node)
		time.Sleep(100*time.Millisecond + time.Duration(i)*1700*time.Millisecond/time.Duration(n-1))
		revive(t)(node)
		time.Sleep(time.Second)
	}
	whole(t)
	f.settled(t, time.Now(), healBound)
	f.damped(t, fmt.Sprintf("%d crashes", n), share, mark)
}

// wrongTenantBound is for how long a node without the API server may send
// traffic for an address to the Service that has lost it.
const wrongTenantBound = 35 * time.Second

// A node is cut from the API server alone, and meanwhile an address of its gets
// a new owner: the traffic does not go to the old one's pods for longer than
// promised, the address is always answered, and so are all others.
func (f *fleet) testStaleNode(t *testing.T) {
	const namespace = "stale"
	serve(t, namespace, "before")
	serve(t, namespace, "after")
	before := create(t, lab.LoadBalancer(namespace, "before", "before"))
	a := address(t, before)
	o := watch(t, a)
	reachable(t, a)
	node := owner(t, o)

	must(t, cluster.CutAPI(t.Context(), node))
	defer heal(t, node)
	cutAt := time.Now()
	remove(t, before)
	heir := lab.LoadBalancer(namespace, "after", "after")
	heir.Annotations = map[string]string{"ccm-baremetal.io/addresses": a.String()}
	heir = create(t, heir)
	address(t, heir)
	given := time.Now()

	var wrong time.Time // when the old tenant was last reached
	for right := given; time.Since(right) < 3*time.Second; {
		if app := podOf(bounded(t), a); app != "after" {
			right = time.Now()
			if app == "before" {
				wrong = right
			}
		}
		if time.Since(given) > patience {
			t.Fatalf("the new tenant of %s is not reached\n%s", a, o)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%s, which %s owned, led to the old tenant for %s", a, node, max(0, wrong.Sub(given)).Round(10*time.Millisecond))
	if wrong.Sub(given) > 2*wrongTenantBound {
		t.Errorf("want at most %s", wrongTenantBound)
	}
	if lost := unanswered(o, given); len(lost) > 0 {
		t.Errorf("%d questions for %s had no answer\n%s", len(lost), a, o)
	}
	for _, a := range f.addresses {
		f.answered(t, a, cutAt)
	}
}
