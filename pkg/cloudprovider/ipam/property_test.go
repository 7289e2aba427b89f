package ipam

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var lives = flag.Int("lives", 60, "how many random lives to live")

// TestRandomLives lets a cluster live at random and holds the Allocator to
// the model after every step:
//   - no two Services have an address that they may not share,
//   - nobody waits while an address that fits is free,
//   - nobody loses an address without a rule that says so,
//   - nobody gets an address that the rules keep from him,
//   - addresses are given out in order, those just freed last,
//   - a new controller that reads the Services in any order writes nothing,
//   - a patch of its predecessor that arrives late costs nobody an address.
func TestRandomLives(t *testing.T) {
	n, steps := *lives, 150
	if testing.Short() {
		n = 15
	}
	arrived := 0
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := &life{model: newModel(newWorld(t)), rand: rand.New(rand.NewPCG(uint64(seed), 1))}
			for range steps {
				l.step()
				if t.Failed() {
					t.Log("the end of this life:\n" + strings.Join(l.story[max(0, len(l.story)-20):], "\n"))
					return
				}
			}
			arrived += l.arrived
		})
	}
	t.Logf("%d late patches arrived that were not in conflict", arrived)
	if n == *lives && arrived == 0 {
		t.Error("no late patch was put to the test")
	}
}

// life is a random sequence of steps in a world.
type life struct {
	*model
	rand   *rand.Rand
	story  []string
	target Key  // the Service that the step is about, if it is about one
	by     bool // whether others wrote to the status of the target
	re     bool // whether the step changed pools, Nodes or namespaces
	rough  bool // whether writes failed before the step or after it

	labelled map[string]map[string]string // the labels of namespaces before the step

	late    []latePatch
	arrived int // of them, not in conflict
	born    int
}

// latePatch is what a leader decided that was frozen before it was written.
type latePatch struct {
	key     Key
	version int // of the Service that it is based on
	answer  Decision
	at      time.Time
}

func (l *life) tell(format string, args ...any) {
	l.story = append(l.story, fmt.Sprintf(format, args...))
}

func (l *life) step() {
	had, shown := l.answers(), l.statuses()
	counts := l.counts()
	rough := l.broken
	l.target, l.by, l.re, l.labelled = "", false, false, maps.Clone(l.namespaces)
	switch n := l.rand.IntN(100); {
	case n < 25 && len(l.order) < 24:
		l.create(l.wish())
	case n < 32:
		l.create(l.wish(), l.anyAddresses()...)
	case n < 45 && len(l.order) > 0:
		l.pick()
		l.tell("delete %s", l.target)
		l.remove(l.target)
	case n < 62 && len(l.order) > 0:
		l.pick()
		l.change(l.target, l.edit)
	case n < 66 && len(l.order) > 0:
		l.again()
	case n < 70 && len(l.order) > 0 && !l.broken:
		l.vandalise()
	case n < 80:
		l.now = l.now.Add(time.Duration(l.rand.IntN(40)) * time.Second)
		l.a.Usage(l.now) // tells the time to the Allocator
		l.tell("later: %s", l.now.Format(time.TimeOnly))
	case n < 84:
		l.breakWrites()
	case n < 90:
		had = nil // what was not written is forgotten, and decided anew
		l.restartAnyhow()
	case n < 94 && len(l.late) > 0 && !l.broken:
		if l.arrive(); l.target != "" {
			l.pass(l.target)
			l.settle()
		}
	default:
		l.re = true
		l.circumstance()
	}
	// What was decided and never written is not free before all is well again.
	l.rough = rough || l.broken
	l.judge(had, shown)
	if !l.re && !l.rough {
		l.judgeCounts(counts)
	}
	l.note()
}

// answers returns what each Service has from us, written or not.
func (l *life) answers() map[Key][]netip.Addr {
	out := map[Key][]netip.Addr{}
	for key, o := range l.objects {
		if !o.answer.Foreign {
			out[key] = o.answer.Addresses
		}
	}
	return out
}

func (l *life) pick() { l.target = l.order[l.rand.IntN(len(l.order))] }

func (l *life) chance(percent int) bool { return l.rand.IntN(100) < percent }

func (l *life) create(r Request, status ...netip.Addr) {
	l.target, l.by = r.Key, len(status) > 0
	l.tell("create %+v, showing %v", r, status)
	l.world.create(r, status...)
}

// wish makes a new Service.
func (l *life) wish() Request {
	l.born++
	r := Request{Namespace: []string{"shop", "web"}[l.rand.IntN(2)], Name: fmt.Sprintf("s%d", l.born),
		Families: []Family{IPv4}, Policy: SingleStack, Ports: []Port{{"TCP", uint16(80 + l.rand.IntN(3))}}}
	if l.chance(30) {
		r.Name = []string{"gw", "db"}[l.rand.IntN(2)] // those that have reservations
	}
	r.Key = Key(r.Namespace + "/" + r.Name)
	if l.objects[r.Key] != nil {
		return l.wish()
	}
	for range l.rand.IntN(4) {
		l.edit(&r)
	}
	return r
}

// edit changes one thing that a Service asks for.
func (l *life) edit(r *Request) {
	switch l.rand.IntN(9) {
	case 0:
		r.Families, r.Policy = []Family{IPv4, IPv6}, []FamilyPolicy{PreferDualStack, RequireDualStack}[l.rand.IntN(2)]
	case 1:
		r.Families, r.Policy = []Family{[]Family{IPv4, IPv6}[l.rand.IntN(2)]}, SingleStack
	case 2:
		r.Addresses = l.anyAddresses()
	case 3:
		r.Pools = [][]string{nil, {"p0"}, {"p1", "p2"}, {"p9"}}[l.rand.IntN(4)]
	case 4:
		r.SharingKey = []string{"", "k", "l"}[l.rand.IntN(3)]
	case 5:
		r.Ports = []Port{{[]string{"TCP", "UDP"}[l.rand.IntN(2)], uint16(80 + l.rand.IntN(4))}}
	case 6:
		r.Local, r.Selector = l.chance(50), []string{"a=b", "c=d"}[l.rand.IntN(2)]
	case 7:
		r.Labels = map[string]string{"expose": []string{"public", "no"}[l.rand.IntN(2)]}
	case 8:
		r.Addresses, r.Pools, r.Invalid = nil, nil, []string{"", "", "nonsense"}[l.rand.IntN(3)]
	}
	l.tell("%s asks for %+v", r.Key, *r)
}

// anyAddresses returns none to two addresses in or near the pools.
func (l *life) anyAddresses() []netip.Addr {
	var out []netip.Addr
	if l.chance(70) {
		out = append(out, offset(netip.MustParseAddr("192.0.2.250"), uint64(l.rand.IntN(24))))
	}
	if l.chance(30) {
		out = append(out, offset(netip.MustParseAddr("2001:db8::"), uint64(l.rand.IntN(12))))
	}
	return out
}

// again asks twice more. Nothing may change, but for the words to somebody
// who waits: these are brought up to date when he asks, not whenever one more
// thing comes in his way.
func (l *life) again() {
	l.pick()
	l.tell("ask again for %s", l.target)
	was := l.objects[l.target].answer
	l.pass(l.target)
	now := l.objects[l.target].answer
	if !slices.Equal(was.Addresses, now.Addresses) || (was.Unmet == "" && now.Reason.OK() && was.Message != now.Message) {
		l.t.Errorf("%s was answered %+v, and now %+v", l.target, was, now)
	}
	writes := l.writes
	l.pass(l.target)
	if again := l.objects[l.target].answer; !reflect.DeepEqual(now, again) || l.writes != writes && !l.broken {
		l.t.Errorf("%s was answered %+v, and now %+v", l.target, now, again)
	}
}

// vandalise writes to a status by hand. Who has an address gets it back.
func (l *life) vandalise() {
	l.pick()
	l.by = true
	o := l.objects[l.target]
	mine := l.a.Assigned(l.target)
	o.status = l.anyAddresses()
	l.tell("the status of %s is now %v", l.target, o.status)
	l.pass(l.target)
	l.settle()
	if len(mine) > 0 && !slices.Equal(o.status, mine) {
		l.t.Errorf("the status of %s was not repaired: %v instead of %v", l.target, o.status, mine)
	}
}

func (l *life) breakWrites() {
	l.broken = !l.broken
	l.tell("writes fail: %t", l.broken)
	for _, key := range slices.Clone(l.order) {
		l.pass(key)
	}
	l.settle()
}

// restartAnyhow starts a new controller. If everything was written, nothing
// may change.
func (l *life) restartAnyhow() {
	order := slices.Clone(l.order)
	l.rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	before, writes := l.statuses(), l.writes
	l.tell("restart in the order %v", order)
	if l.broken && l.chance(70) {
		l.freeze(order)
		return
	}
	l.forget()
	l.restart(order)
	if l.broken {
		return
	}
	if after := l.statuses(); !reflect.DeepEqual(before, after) {
		l.t.Errorf("a restart changed %v\nto %v", before, after)
	}
	if l.writes != writes {
		l.t.Errorf("a restart of an unchanged world writes %d times", l.writes-writes)
	}
}

// freeze leaves the leader frozen with what it could not write. One of its
// patches arrives when its successor, which can write, has read everything and
// decided nothing; the others arrive later.
func (l *life) freeze(order []Key) {
	l.tell("the leader freezes")
	for _, key := range l.order {
		if o := l.objects[key]; !slices.Equal(o.status, o.answer.Addresses) {
			l.late = append(l.late, latePatch{key, o.version, o.answer, l.now})
		}
	}
	l.broken = false
	l.forget()
	l.restore(order)
	if len(l.late) > 0 {
		l.arrive()
	}
	for _, key := range order {
		l.pass(key)
	}
	l.settle()
}

// arrive lets a patch of a frozen leader arrive. It counts only if nothing was
// written to the Service since.
func (l *life) arrive() {
	i := l.rand.IntN(len(l.late))
	p := l.late[i]
	l.late = slices.Delete(l.late, i, i+1)
	o := l.objects[p.key]
	if o == nil || o.version != p.version {
		l.tell("the late patch of %s is in conflict", p.key)
		return
	}
	l.tell("the late patch of %s arrives: %+v", p.key, p.answer)
	l.target, l.by = p.key, true
	l.arrived++
	l.store(o, p.answer, p.at)
}

// circumstance changes pools, Nodes or namespaces.
func (l *life) circumstance() {
	switch l.rand.IntN(4) {
	case 0:
		addr := offset(netip.MustParseAddr("192.0.2.250"), uint64(l.rand.IntN(24)))
		if l.cluster.NodeAddresses[addr] != "" || l.chance(30) {
			clear(l.cluster.NodeAddresses)
		} else {
			l.cluster.NodeAddresses[addr] = "n1"
		}
		l.tell("Nodes: %v", l.cluster.NodeAddresses)
	case 1:
		l.namespaces["web"] = map[string]string{"tier": []string{"web", "db"}[l.rand.IntN(2)]}
		l.tell("namespaces: %v", l.namespaces)
	default:
		l.pools = l.somePools()
		l.tell("pools: %+v", l.pools)
	}
	l.reconfigure()
}

func (l *life) somePools() []config.Pool {
	starts := []string{"192.0.2.252", "192.0.3.4", "192.0.3.9"}
	var out []config.Pool
	for i, start := range starts {
		first := netip.MustParseAddr(start)
		v4 := netipx.IPRangeFrom(offset(first, uint64(l.rand.IntN(3))), offset(first, uint64(2+l.rand.IntN(3))))
		first = offset(netip.MustParseAddr("2001:db8::"), uint64(4*i))
		v6 := netipx.IPRangeFrom(first, offset(first, uint64(l.rand.IntN(3))))
		p := config.Pool{Name: fmt.Sprintf("p%d", i), Ranges: []netipx.IPRange{v4}, Priority: l.rand.IntN(2),
			AutoAssign: l.chance(80), State: config.Active, Order: []config.Order{config.Lowest, config.Highest, config.Hashed}[l.rand.IntN(3)],
			AvoidBuggyIPs: l.chance(20), OnMismatch: []config.OnMismatch{config.Keep, config.Reassign}[l.rand.IntN(2)]}
		if i != 1 {
			p.Ranges = append(p.Ranges, v6)
		}
		l.restrict(&p, v4)
		if l.chance(85) {
			out = append(out, p)
		}
	}
	return out
}

func (l *life) restrict(p *config.Pool, v4 netipx.IPRange) {
	p.EnforceNamespaces = l.chance(30)
	if l.chance(15) {
		p.State = []config.PoolState{config.Draining, config.Disabled}[l.rand.IntN(2)]
	}
	if l.chance(20) {
		p.Namespaces = []string{"shop"}
	}
	if l.chance(20) {
		p.NamespaceSelector = config.Selector{labels.SelectorFromSet(labels.Set{"tier": "web"})}
	}
	if l.chance(20) {
		p.ServiceSelector = config.Selector{labels.SelectorFromSet(labels.Set{"expose": "public"})}
	}
	if l.chance(30) {
		p.MaxPerNamespace = 1 + l.rand.IntN(3)
	}
	if l.chance(40) {
		p.Reservations = []config.Reservation{{Namespace: "shop", Name: "gw", Ranges: []netipx.IPRange{single(v4.From())}}}
	}
	if l.chance(20) && v4.From() != v4.To() {
		p.Reservations = append(p.Reservations, config.Reservation{Namespace: "web", Name: "db", Ranges: []netipx.IPRange{single(v4.To())}})
	}
}
