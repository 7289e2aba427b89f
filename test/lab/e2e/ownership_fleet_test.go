package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
)

// fleetSize is how many addresses are watched at once.
const fleetSize = 50

// fleetEvery is the interval of the questions for each address of a fleet, and
// so how exactly its times are known. More often would keep the machine, which
// runs all nodes, from running them.
const fleetEvery = 50 * time.Millisecond

// fleet is many addresses of one Service each, all of which are asked for all
// the time.
type fleet struct {
	addresses []netip.Addr
	watcher   *observe.Watcher
}

// launch makes a fleet with pods on all nodes, and returns when all of its
// addresses are answered.
func launch(t *testing.T, namespace string) *fleet {
	t.Helper()
	serve(t, namespace, "web")
	f := &fleet{}
	for i := range fleetSize {
		f.addresses = append(f.addresses, address(t, create(t, lab.LoadBalancer(namespace, fmt.Sprintf("s%02d", i), "web"))))
	}
	var err error
	f.watcher, err = cluster.Watch(lab.Client, fleetEvery, f.addresses...)
	must(t, err)
	t.Cleanup(func() {
		if err := f.watcher.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { tellLogs(t) })
	f.settled(t, time.Now(), patience)
	reachable(t, f.addresses[0])
	return f
}

// tellLogs shows the end of what the announcers have logged if the test has
// failed.
func tellLogs(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, n := range names() {
		lines := strings.Split(installed.Announcer(n).Log(), "\n")
		t.Logf("%s:\n%s", n, strings.Join(lines[max(0, len(lines)-300):], "\n"))
	}
}

// settled waits until each address has one owner alone for a second after a
// time, and returns them. One that took longer than bound fails the test.
func (f *fleet) settled(t *testing.T, from time.Time, bound time.Duration) map[netip.Addr]string {
	t.Helper()
	owners := map[netip.Addr]string{}
	for _, a := range f.addresses {
		owners[a] = single(t, f.watcher.Of(a), from, bound)
	}
	return owners
}

// owned returns the addresses of a node, sorted.
func owned(owners map[netip.Addr]string, by ...string) []netip.Addr {
	var all []netip.Addr
	for a, who := range owners {
		if slices.Contains(by, who) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// shares returns how many addresses each node owns, by name.
func shares(owners map[netip.Addr]string) map[string]int {
	counts := map[string]int{}
	for _, who := range owners {
		counts[who]++
	}
	return counts
}

// busiest returns the nodes that own the most addresses, the most loaded
// first.
func busiest(owners map[netip.Addr]string, n int) []string {
	counts := shares(owners)
	hosts := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(hosts, func(a, b string) int { return counts[b] - counts[a] })
	return hosts[:min(n, len(hosts))]
}

// A loss is what happened when nodes were lost.
type loss struct {
	at      time.Time
	victims []string
	owners  map[netip.Addr]string // before
	gaps    []time.Duration       // from the loss to the next answer, for each of the victims' addresses
}

// lose takes away the nodes with the most addresses by a fault, and waits until
// each of their addresses is answered again.
func (f *fleet) lose(t *testing.T, n int, fault func(hosts ...string)) loss {
	t.Helper()
	l := loss{owners: f.settled(t, time.Now(), healBound)}
	l.victims = busiest(l.owners, n)
	fault(l.victims...)
	l.at = time.Now()
	for _, a := range owned(l.owners, l.victims...) {
		reply, err := f.watcher.Of(a).WaitReply(bounded(t), l.at)
		must(t, err)
		l.gaps = append(l.gaps, reply.Time.Sub(l.at))
	}
	return l
}

// undisturbed fails the test if an address of another node than the victims
// changed hands, or went unanswered.
func (f *fleet) undisturbed(t *testing.T, l loss) {
	t.Helper()
	for a, who := range l.owners {
		if slices.Contains(l.victims, who) {
			continue
		}
		f.answered(t, a, l.at)
		if macs := f.watcher.Of(a).MACs(l.at, time.Now()); !slices.Equal(macs, []string{macOf(who)}) {
			t.Errorf("%v answered for %s, which %s owns and keeps, when %v were lost\n%s", macs, a, who, l.victims, f.watcher.Of(a))
		}
	}
}

// mend brings the victims back and waits until all is whole.
func (f *fleet) mend(t *testing.T, l loss, mend func(hosts ...string)) {
	t.Helper()
	mend(l.victims...)
	mended := time.Now()
	whole(t)
	f.settled(t, mended, healBound)
}

// unmoved fails the test unless the victims, which are back, have their addresses
// again, and all others were undisturbed.
func (f *fleet) unmoved(t *testing.T, l loss) {
	t.Helper()
	f.undisturbed(t, l)
	if owners := f.settled(t, time.Now(), healBound); !maps.Equal(owners, l.owners) {
		t.Errorf("before %v were lost the owners were\n%v\nwith them back they are\n%v", l.victims, l.owners, owners)
	}
}

// answered fails the test if questions for an address had no answer.
func (f *fleet) answered(t *testing.T, a netip.Addr, since time.Time) {
	t.Helper()
	o := f.watcher.Of(a)
	if lost := unanswered(o, since); len(lost) > 0 {
		t.Errorf("%d questions for %s had no answer, the first at %s\n%s", len(lost), a, lost[0].Time.Format(time.TimeOnly), o)
	}
}

// planned makes a planned move and judges it: every question for every address
// is answered, by at most two hosts, of which one is silent after two seconds;
// and no datagram through an address that moves is lost.
func (f *fleet) planned(t *testing.T, node string, move func()) {
	t.Helper()
	f.plannedBy(t, 2, node, move)
}

// plannedBy is planned where so many nodes may answer for one address.
func (f *fleet) plannedBy(t *testing.T, most int, node string, move func()) {
	t.Helper()
	owners := f.settled(t, time.Now(), healBound)
	probe := f.addresses[0]
	if mine := owned(owners, node); len(mine) > 0 {
		probe = mine[0]
	}
	closely, err := cluster.Watch(lab.Router, askEvery, probe)
	must(t, err)
	echo, err := cluster.Echo(t.Context(), lab.Client, netip.AddrPortFrom(probe, lab.PodUDPPort), 1000)
	must(t, err)
	time.Sleep(200 * time.Millisecond)

	mark := time.Now()
	move()
	f.settled(t, mark, 2*handOverBound+healBound) // the move may begin with the start of an announcer
	f.judgeMove(t, mark, most, f.watcher.Of)
	f.judgeMove(t, mark, most, func(a netip.Addr) *observe.Observation { return closely.Of(a) })
	if loss := echo.Stop(2 * time.Second); len(loss.Lost) > 0 || loss.Sent == 0 {
		t.Errorf("through %s: %s, at %v; moved at %s\n%s", probe, loss,
			loss.Lost[:min(1, len(loss.Lost))], mark.Format("15:04:05.000"), closely.Of(probe))
	}
	must(t, closely.Close())
}

// handOverBound is how long two may answer in a planned move.
const handOverBound = 2 * time.Second

func (f *fleet) judgeMove(t *testing.T, mark time.Time, most int, of func(netip.Addr) *observe.Observation) {
	t.Helper()
	end := time.Now().Add(-200 * time.Millisecond)
	for _, a := range f.addresses {
		o := of(a)
		if o == nil {
			continue
		}
		if lost := unanswered(o, mark); len(lost) > 0 {
			t.Errorf("%d questions for %s had no answer\n%s", len(lost), a, o)
		}
		if macs := o.MACs(mark, end); len(macs) > most {
			t.Errorf("%v answered for %s during one move\n%s", macs, a, o)
		}
	}
}

// moves returns how often the addresses changed hands since a time.
func (f *fleet) moves(since time.Time) int {
	n := 0
	for _, a := range f.addresses {
		n += f.watcher.Of(a).Moves(since, 300*time.Millisecond)
	}
	return n
}

// kill ends announcers at once; revive starts them again.
func kill(t *testing.T) func(hosts ...string) {
	return func(hosts ...string) {
		for _, h := range hosts {
			must(t, installed.Announcer(h).Kill())
		}
	}
}

func revive(t *testing.T) func(hosts ...string) {
	return func(hosts ...string) {
		for _, h := range hosts {
			_, err := installed.StartAnnouncer(h)
			must(t, err)
		}
	}
}

func cut(t *testing.T) func(hosts ...string) {
	return func(hosts ...string) { must(t, cluster.Cut(t.Context(), hosts...)) }
}

func plug(t *testing.T) func(hosts ...string) {
	return func(hosts ...string) { must(t, cluster.Heal(context.Background(), hosts...)) }
}

// withMembership is the shared document with other settings of the membership.
func withMembership(settings string) string {
	return strings.Replace(document, "{settle: 0s}", "{"+settings+"}", 1)
}

// enforce puts a document in force.
func enforce(t *testing.T, doc string) {
	t.Helper()
	must(t, installed.Configure(bounded(t), doc))
	inForce(t, doc)
}

// restarted ends all announcers and starts them with another document. They
// read some settings only when they start, and none remembers what it has been
// through.
func restarted(t *testing.T, doc string) {
	t.Helper()
	enforce(t, doc)
	kill(t)(names()...)
	forgetThePast(t)
	revive(t)(names()...)
	whole(t)
}

// forgetThePast removes what the nodes remember of themselves. No announcer
// runs then.
func forgetThePast(t *testing.T) {
	t.Helper()
	for _, n := range names() {
		if err := os.Remove(installed.Record(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// terminate ends an announcer in order and waits for its end.
func terminate(t *testing.T, node string) {
	t.Helper()
	must(t, installed.Announcer(node).Stop(bounded(t)))
}

// podOf returns the app of the pod that answers through an address, nothing
// if there is no answer.
func podOf(ctx context.Context, a netip.Addr) string {
	body, err := cluster.Get(ctx, lab.Client, "http://"+a.String()+"/")
	if err != nil {
		return ""
	}
	app, _, _ := strings.Cut(strings.TrimPrefix(body, "pod "), "-")
	return app
}
