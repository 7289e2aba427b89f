// Package replay follows how addresses wander in a cluster whose announcers
// come and go, by the rules that real announcers use: who announces what, and
// for how long a node that has come back leaves addresses to others. It is
// pure: a day is replayed in milliseconds.
package replay

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/settling"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Kind says how an announcer departs.
type Kind string

// The kinds.
const (
	Restart Kind = "restart" // it crashes and is started again
	Stall   Kind = "stall"   // it says nothing for a while, and is the same as before
)

// Event is one departure.
type Event struct {
	At   time.Duration // since the beginning
	Node string
	Kind Kind
	For  time.Duration // until it is back, above zero
}

// Trace is what happens to a cluster.
type Trace struct {
	Nodes     []string
	Addresses []netip.Addr
	Events    []Event // in any order

	// Detection is after what silence a node is taken for dead, and Sync how
	// long a new announcer takes to know the world.
	Detection, Sync time.Duration
}

// Sync is how long a new announcer takes to know the world, as measured.
const Sync = 500 * time.Millisecond

// Silence returns after what silence a node is taken for dead, as measured in
// clusters of a few nodes.
func Silence(d config.Detection) time.Duration {
	switch d {
	case config.Rapid:
		return 450 * time.Millisecond
	case config.LAN:
		return 5 * time.Second
	case config.WAN:
		return 30 * time.Second
	}
	return 800 * time.Millisecond
}

// Rule says for how long a node settles that has come back.
type Rule struct {
	Name   string
	Settle time.Duration // of the configuration; zero: whoever ranks first has it at once
}

// Move is a change of who announces an address.
type Move struct {
	At       time.Duration
	Address  netip.Addr
	From, To string // empty: nobody
}

// Moves replays a trace under a rule, and returns the moves in their order. All
// nodes are there from the beginning, as founders.
func Moves(t Trace, r Rule) []Move {
	c := newCluster(t, r)
	var moves []Move
	owners := c.owners()
	for {
		at, ok := c.next()
		if !ok {
			return moves
		}
		after := c.owners()
		for i, address := range t.Addresses {
			if owners[i] != after[i] {
				moves = append(moves, Move{at, address, owners[i], after[i]})
			}
		}
		owners = after
	}
}

// next does all that happens at the next moment at which something does.
func (c *cluster) next() (at time.Duration, ok bool) {
	at = math.MaxInt64
	if len(c.events) > 0 {
		at, ok = c.events[0].At, true
	}
	if len(c.due) > 0 {
		at, ok = min(at, c.due[0].at), true
	}
	for len(c.events) > 0 && c.events[0].At == at {
		e := c.events[0]
		c.events = c.events[1:]
		c.depart(e)
	}
	for len(c.due) > 0 && c.due[0].at == at {
		d := c.due[0]
		c.due = c.due[1:]
		d.do()
	}
	return at, ok
}

// cluster is the state of a replay.
type cluster struct {
	trace  Trace
	rule   Rule
	nodes  map[string]*node
	events []Event // still to come, by time
	due    []deed  // by time, and then in the order of planning

	snapshot plan.Snapshot
	known    map[string][]string // owners of each state that there has been
	ordered  []*node             // as in the trace
	state    []byte              // of the last look, for its memory
}

// node is one announcer.
type node struct {
	silent  time.Duration // until when it says nothing; it may depart again meanwhile
	life    int
	gone    bool
	until   time.Duration // settles until then
	history settling.History
}

// deed is something that will happen.
type deed struct {
	at time.Duration
	do func()
}

// epoch is when a trace begins.
var epoch = time.Unix(0, 0)

func newCluster(t Trace, r Rule) *cluster {
	c := &cluster{trace: t, rule: r, nodes: map[string]*node{}, known: map[string][]string{}, snapshot: world(t)}
	for _, name := range t.Nodes {
		n := &node{history: settling.History{{At: epoch, Kind: settling.Start}}}
		c.nodes[name], c.ordered = n, append(c.ordered, n)
	}
	c.events = slices.Clone(t.Events)
	slices.SortStableFunc(c.events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return c
}

// world is a cluster in which every node may announce everything.
func world(t Trace) plan.Snapshot {
	link := []plan.Link{{Name: "eth0", Index: 2, Up: true, NodeIP: true, Default: true}}
	s := plan.Snapshot{Config: config.Config{Advertisements: []config.Advertisement{{Name: "all", Layer2: &config.Layer2{}}}}}
	for _, name := range t.Nodes {
		s.Nodes = append(s.Nodes, plan.Node{Name: name, Ready: true})
		s.Members = append(s.Members, plan.Member{Name: name, Rules: election.Rules, Links: link})
	}
	for _, address := range t.Addresses {
		s.Services = append(s.Services, plan.Service{
			Namespace: "replay", Name: address.String(), Allocated: true, Addresses: []netip.Addr{address},
			Endpoints: plan.Endpoints{Nodeless: true},
		})
	}
	return s
}

// at plans a deed.
func (c *cluster) at(when time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(c.due, when+1, func(d deed, at time.Duration) int { return cmp.Compare(d.at, at) })
	c.due = slices.Insert(c.due, i, deed{when, do})
}

// depart is the beginning of a departure. Who is away already goes on being so.
func (c *cluster) depart(e Event) {
	n := c.nodes[e.Node]
	if e.At < n.silent {
		return
	}
	n.silent = e.At + e.For
	n.life++
	life := n.life
	noticed := e.At + c.trace.Detection
	if e.Kind == Restart {
		n.silent += c.trace.Sync
		noticed = min(noticed, e.At+e.For) // the new process says that it is passive
	}
	if noticed > n.silent {
		return // nobody has noticed
	}
	c.at(noticed, func() { n.gone = true })
	c.at(n.silent, func() { c.comeBack(n, e.Kind, life) })
}

// comeBack is the end of a departure that was noticed.
func (c *cluster) comeBack(n *node, kind Kind, life int) {
	now := epoch.Add(n.silent)
	event := settling.Event{At: now, Kind: settling.Start}
	if kind == Stall {
		event.Kind = settling.Death
	}
	n.history = n.history.With(event)
	n.gone = false
	n.until = n.silent + n.history.Wait(now, c.rule.Settle)
	c.at(n.until, func() {
		if n.life == life {
			n.until = 0
		}
	})
}

// owners returns who announces each address as things are now.
func (c *cluster) owners() []string {
	c.state = c.appendState(c.state[:0])
	if owners, ok := c.known[string(c.state)]; ok {
		return owners
	}
	s := c.snapshot
	s.Members = nil
	for _, m := range c.snapshot.Members {
		if n := c.nodes[m.Name]; !n.gone {
			m.Settling = n.until > 0
			s.Members = append(s.Members, m)
		}
	}
	by := map[netip.Addr]string{}
	for _, v := range plan.Decide(s) {
		by[v.Address] = v.Owner
	}
	owners := make([]string, len(c.trace.Addresses))
	for i, address := range c.trace.Addresses {
		owners[i] = by[address]
	}
	c.known[string(c.state)] = owners
	return owners
}

// appendState appends all that a decision depends on.
func (c *cluster) appendState(b []byte) []byte {
	for _, n := range c.ordered {
		switch {
		case n.gone:
			b = append(b, '-')
		case n.until > 0:
			b = append(b, 's')
		default:
			b = append(b, '+')
		}
	}
	return b
}
