package announcer

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// The simulator runs announcers around the plan in a world where every piece
// of news has its own delay to every node: objects from the API, states by
// gossip, announcements on the wire. Nodes die, return, drain, lose their link
// and are cut off from each other. It is deterministic: a seed that fails
// fails again. Speakers are modelled by what their contract says.

const (
	tick       = 20 * time.Millisecond
	settled    = 3 * time.Second // after an event everything must be right again
	apiLag     = 400 * time.Millisecond
	gossipLag  = 200 * time.Millisecond
	wireLag    = 20 * time.Millisecond
	detectMin  = 800 * time.Millisecond
	detectMax  = 1400 * time.Millisecond
	rejoinLag  = 800 * time.Millisecond
	yieldLimit = 2 * time.Second
)

// burst is when a new owner announces, after it has become that.
var burst = []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

func TestSimulatedAnnouncersAgreeWheneverTheWorldRests(t *testing.T) {
	simulate(t, happenings)
}

// Objects and links rest, so that nobody acts on old news but for the gossip.
// Then clients must never be left with a wrong MAC.
func TestSimulatedClientsAreCorrectedByAnnouncements(t *testing.T) {
	simulate(t, happenings-2)
}

func simulate(t *testing.T, kinds int) {
	seeds := uint64(120)
	if os.Getenv("CCM_SOAK") != "" {
		seeds = 5000
	}
	for seed := range seeds {
		s := newSimulation(t, seed)
		s.kinds = kinds
		if fault := s.run(2 * time.Minute); fault != "" {
			t.Fatalf("seed %d: %s at %s after:\n%s", seed, fault, s.now, strings.Join(s.story, "\n"))
		}
	}
}

type simulation struct {
	r     *rand.Rand
	now   time.Duration
	news  []delivery // by time, then in the order of sending
	nodes []*simNode
	story []string
	kinds int // of happenings that may happen

	config    config.Config
	objects   objects // the truth of the API
	groups    int     // how many parts the network is in: 1 or 2
	lastEvent time.Duration
	lastWrite time.Duration // to the API
	healed    bool          // the last event was a heal
	clients   []client
	served    []netip.Addr // what must not go dark for a moment, in a planned move
	moved     bool         // somebody has begun or ceased to answer since the last check
}

type objects struct {
	version  int
	services []plan.Service
	nodes    []plan.Node
}

type delivery struct {
	at   time.Duration
	deed func()
}

type simNode struct {
	plan.Member
	planner plan.Planner
	alive   bool
	leaving bool // it has been told to end
	life    int  // counts starts
	version int  // of what it says of itself
	group   int

	seen     objects
	members  map[string]plan.Member
	versions map[string]int
	lives    map[string]int // of the members, also of those that are gone
	returns  int
	knows    time.Duration // since when it knows all objects
	changed  bool          // its view has changed since its last pass

	answers  map[netip.Addr]answer
	repeated int // returns at the last announcement
}

// client is a host on the LAN that asks nothing as long as it knows a MAC, so
// that only announcements can correct it.
type client struct {
	group int
	macs  map[netip.Addr]string // by name of the node
}

type answer struct {
	yieldUntil time.Duration // zero: as owner
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	c, err := config.Load([]byte(config.Smallest))
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{r: rand.New(rand.NewPCG(seed, 7)), config: c, groups: 1, clients: make([]client, 2)}
	for i := range s.clients {
		s.clients[i].macs = map[netip.Addr]string{}
	}
	for i := range 3 + s.r.IntN(4) {
		n := &simNode{Member: plan.Member{Name: fmt.Sprint("n", i), Rules: 2, Links: link(true)}}
		if seed%3 == 0 {
			n.Rules = 1 // until it starts again: a rolling update
		}
		s.nodes = append(s.nodes, n)
		s.objects.nodes = append(s.objects.nodes, plan.Node{Name: n.Name})
	}
	for i := range 2 + s.r.IntN(5) {
		s.objects.services = append(s.objects.services, plan.Service{
			Namespace: "shop", Name: fmt.Sprint("s", i), Allocated: true, Local: s.r.IntN(3) == 0,
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i - i/4)})}, // the fifth shares
			Endpoints: s.endpoints(),
		})
	}
	for _, n := range s.nodes {
		s.start(n)
	}
	return s
}

func link(up bool) []plan.Link {
	return []plan.Link{{Name: "eth0", Index: 2, Up: up, NodeIP: true, Default: true}}
}

func (s *simulation) endpoints() plan.Endpoints {
	var e plan.Endpoints
	for _, n := range s.nodes {
		switch s.r.IntN(4) {
		case 0:
			e.Ready = append(e.Ready, n.Name)
		case 1:
			e.Terminating = append(e.Terminating, n.Name)
		}
	}
	return e
}

// run returns what was wrong first, empty if nothing.
func (s *simulation) run(long time.Duration) string {
	next := 5 * time.Second
	for ; s.now < long; s.now += tick {
		if s.now >= next {
			s.happen()
			next = s.now + time.Duration(s.r.Int64N(int64(8*time.Second)))
		}
		for len(s.news) > 0 && s.news[0].at <= s.now {
			deed := s.news[0].deed
			s.news = s.news[1:]
			deed()
		}
		for _, n := range s.nodes {
			s.pass(n)
		}
		if !s.moved && s.now-s.lastEvent != settled {
			continue
		}
		s.moved = false
		if fault := s.check(); fault != "" {
			return fault
		}
	}
	return ""
}

// after delivers something at a random time between two delays from now.
func (s *simulation) after(least, most time.Duration, deed func()) {
	at := s.now + least + time.Duration(s.r.Int64N(int64(most-least)+1))
	i, _ := slices.BinarySearchFunc(s.news, at+1, func(d delivery, at time.Duration) int { return cmp.Compare(d.at, at) })
	s.news = slices.Insert(s.news, i, delivery{at, deed})
}

// event notes that the world has changed.
func (s *simulation) event(format string, facts ...any) {
	s.story = append(s.story, fmt.Sprintf("%8s  "+format, append([]any{s.now}, facts...)...))
	s.lastEvent, s.served, s.healed, s.moved = s.now, nil, false, true
}

const happenings = 8

// happen lets one random thing happen, if it can.
func (s *simulation) happen() {
	n := s.nodes[s.r.IntN(len(s.nodes))]
	rests := s.now-s.lastEvent > settled
	switch kind := s.r.IntN(s.kinds); {
	case kind == 0 && n.alive:
		s.kill(n, detectMin, detectMax)
	case kind == 1 && !n.alive && s.groups == 1:
		s.start(n)
	case kind == 2 && s.groups == 1 && s.now-s.lastWrite > 2*apiLag:
		// A node that is cut off from the API before it knows what the others
		// know is another matter: it is stale.
		s.split()
	case kind == 2 && s.groups == 2:
		s.heal()
	case kind == 3 && n.alive && !n.Passive && !n.Draining && rests && s.groups == 1:
		s.drain(n)
	case kind == 4 && n.alive && n.Rules > 1:
		s.stand(n)
	case kind == 5 && n.alive && rests && s.groups == 1:
		s.annotate(n)
	case kind == 6 && s.groups == 1:
		s.write()
	case kind == 7 && n.alive:
		s.flip(n)
	}
}

// stand changes what a node says of its standing: it settles, becomes stale or
// unfit, or all is well again.
func (s *simulation) stand(n *simNode) {
	n.Standing = [...]plan.Standing{{}, {Settling: true}, {Stale: true}, {Unfit: plan.DataPathDown}}[s.r.IntN(4)]
	s.event("%s: %+v", n.Name, n.Standing)
	s.publish(n)
}

// flip changes the carrier of a node's link.
func (s *simulation) flip(n *simNode) {
	up := !n.Links[0].Up
	s.event("link of %s up: %t", n.Name, up)
	n.Links = link(up)
	s.publish(n)
}

func (s *simulation) kill(n *simNode, detectMin, detectMax time.Duration) {
	s.event("%s dies", n.Name)
	n.alive, n.answers, s.moved = false, nil, true
	life := n.life
	for _, o := range s.nodes {
		s.after(detectMin, detectMax, func() {
			if n.life == life {
				o.forget(n.Name)
			}
		})
	}
}

// start begins a life: passive, and without knowledge of objects and others.
// Who joins learns from one peer about all.
func (s *simulation) start(n *simNode) {
	s.event("%s starts", n.Name)
	n.alive, n.life, n.Passive, n.Draining, n.leaving = true, n.life+1, true, false, false
	if n.life > 1 {
		n.Rules = 2
	}
	n.Standing = plan.Standing{Settling: s.r.IntN(2) == 0 && n.Rules > 1}
	n.members, n.answers = map[string]plan.Member{}, map[netip.Addr]answer{}
	n.versions, n.lives = map[string]int{}, map[string]int{}
	n.seen, n.knows = objects{version: -1}, 0
	life := n.life
	s.after(apiLag, 2*apiLag, func() {
		if n.alive && n.life == life {
			n.seen, n.knows = s.objects, s.now
		}
	})
	s.after(0, rejoinLag, func() {
		if !n.alive || n.life != life {
			return
		}
		for _, o := range s.nodes {
			if o.alive && o.group == n.group {
				s.learn(n, o, o.Member, o.version)
			}
		}
		s.publish(n)
	})
}

// activate ends a node's being passive, by the rule of the loop.
func (s *simulation) activate(n *simNode) {
	met := len(n.members) > 0 || s.now-n.knows >= meetWithin
	if n.Passive && n.seen.version >= 0 && met {
		n.Passive = false
		s.publish(n)
	}
}

func (s *simulation) split() {
	s.groups = 2
	for _, n := range s.nodes {
		n.group = s.r.IntN(2)
	}
	s.clients[1].group = 1
	s.event("split: %v", s.parts())
	for _, n := range s.nodes {
		for _, o := range s.nodes {
			if n.group != o.group {
				s.after(detectMin, detectMax, func() {
					if n.group != o.group {
						n.forget(o.Name)
					}
				})
			}
		}
	}
}

func (s *simulation) heal() {
	s.event("heal")
	for _, c := range s.clients {
		if !slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.alive && n.group == c.group }) {
			clear(c.macs) // where nobody answered, it has forgotten
		}
	}
	s.groups, s.clients[1].group, s.healed = 1, 0, true
	for _, n := range s.nodes {
		n.group = 0
	}
	for _, n := range s.nodes {
		for _, o := range s.nodes {
			life := n.life
			s.after(0, rejoinLag, func() {
				if n.life == life && n.group == o.group && o.alive {
					s.learn(n, o, o.Member, o.version)
				}
			})
		}
	}
}

// drain is what SIGTERM does: hand over, leave, and in time come back.
func (s *simulation) drain(n *simNode) {
	s.event("%s drains", n.Name)
	s.served = s.answered()
	n.Draining, n.leaving = true, true
	s.publish(n)
	life := n.life
	s.after(leaveWithin, leaveWithin, func() {
		if n.alive && n.life == life {
			s.kill(n, 0, gossipLag)
		}
	})
}

// write changes an object.
func (s *simulation) write() {
	i, k := s.r.IntN(len(s.objects.services)), s.r.IntN(len(s.objects.nodes))
	if s.r.IntN(2) == 0 {
		endpoints := s.endpoints()
		s.change(func(o *objects) { o.services[i].Endpoints = endpoints })
		s.event("endpoints of %s: %+v", s.objects.services[i].Name, endpoints)
	} else {
		s.change(func(o *objects) { o.nodes[k].NetworkUnavailable = !o.nodes[k].NetworkUnavailable })
		s.event("network of %s unavailable: %t", s.objects.nodes[k].Name, s.objects.nodes[k].NetworkUnavailable)
	}
}

// change makes a new version of the objects, of which each node hears in its
// time.
func (s *simulation) change(edit func(*objects)) {
	o := objects{s.objects.version + 1, slices.Clone(s.objects.services), slices.Clone(s.objects.nodes)}
	edit(&o)
	s.objects, s.lastWrite = o, s.now
	for _, n := range s.nodes {
		s.after(0, apiLag, func() {
			if n.seen.version >= 0 && n.seen.version < o.version {
				n.seen, n.changed = o, true
			}
		})
	}
}
