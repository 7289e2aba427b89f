package plan

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
)

// outcome is what the nodes are for addresses with equal demands in the same
// subnets. Most addresses of a cluster share one.
type outcome struct {
	ground   *ground
	local    [][]int // for each demand with policy Local, the nodes whose endpoints count
	field    field   // the candidates
	behind   map[string]Reason
	excluded []Exclusion // the first of them
	leftOut  map[Reason]int
	decisive int // the demand whose candidates they are, -1: of all demands

	advertisements []int               // that the demands match whose candidates they are
	candidate      bool                // this node is one
	own            part                // how this node announces as a candidate
	links          []Link              // of this node on which it could serve them now
	ownerLinks     map[string][]string // of nodes that own such an address, by name
}

// ground is what the nodes are for demands of equal reach, before it matters
// where endpoints are. Thousands of Services with policy Local share one.
type ground struct {
	names   []string
	faults  []Reason // by node: the first filter that it fails, empty if none
	tiers   []tier   // by node
	passing []int    // the nodes without a fault, ascending
	leftOut map[Reason]int
}

// poll sorts the nodes into candidates and others. A node must pass for every
// demand. If none does, the oldest demand that any node passes for decides
// alone: some of the Services announced is better than none. A node that
// drains or takes itself for unfit is a candidate only where no other could
// serve: it serves better than nobody. The last to be asked are those whose
// link is down.
func (v *view) poll(address netip.Addr, demands []demand) *outcome {
	var memory keyMemory
	key := v.appendOutcomeKey(memory[:0], demands)
	if known, ok := v.outcomes[string(key)]; ok {
		return known
	}
	o := v.pollAnew(demands)
	v.fillOwn(o, address, demands)
	v.outcomes[string(key)] = o
	return o
}

func (v *view) pollAnew(demands []demand) *outcome {
	for _, try := range []struct {
		lastResort bool
		worst      tier
	}{{false, stale}, {true, draining}, {true, pathDown}, {false, linkDown}, {true, linkDown}} {
		accept := func(demands []demand) *outcome {
			o := v.filter(demands, try.lastResort)
			if best, any := o.field.best(); !any || best > try.worst {
				return nil
			}
			return o
		}
		if o := accept(demands); o != nil {
			return v.describe(o)
		}
		for i := range demands {
			if len(demands) == 1 {
				break
			}
			if o := accept(demands[i : i+1]); o != nil {
				o.decisive = i
				return v.describe(o)
			}
		}
	}
	return v.describe(v.filter(demands, false))
}

// fillOwn fills in what the outcome means for this node.
func (v *view) fillOwn(o *outcome, address netip.Addr, demands []demand) {
	deciding := demands
	if o.decisive >= 0 {
		deciding = demands[o.decisive : o.decisive+1]
	}
	o.advertisements = advertisementsOf(deciding)
	o.own = v.part(v.self, address, o.advertisements)
	o.candidate = o.field.has(v.node)
	o.links = o.own.up()
	if !o.candidate {
		o.links = v.part(v.self, address, advertisementsOf(v.servable(demands))).up()
	}
}

// linksOf names the links of the owner of an address.
func (v *view) linksOf(owner string, address netip.Addr, o *outcome) []string {
	names, known := o.ownerLinks[owner]
	if known {
		return names
	}
	if o.ownerLinks == nil {
		o.ownerLinks = map[string][]string{}
	}
	names = v.part(v.index(owner), address, o.advertisements).names
	o.ownerLinks[owner] = names
	return names
}

// filter finds the candidates for some demands, the nodes among them or not
// that are only for when nobody better is left.
func (v *view) filter(demands []demand, lastResort bool) *outcome {
	o := &outcome{decisive: -1, ground: v.ground(demands, lastResort)}
	passing := o.ground.passing
	for _, d := range demands {
		if d.local {
			o.local = append(o.local, d.eligible)
			passing = intersect(passing, d.eligible)
		}
	}
	for _, i := range passing {
		o.field.add(o.ground.tiers[i], o.ground.names[i])
	}
	return o
}

// describe fills in what is to be told of the candidates and of the others.
func (v *view) describe(o *outcome) *outcome {
	o.behind = o.field.behind()
	o.leftOut = o.ground.leftOut
	if away := len(o.ground.passing) - o.field.size; away > 0 {
		o.leftOut = maps.Clone(o.leftOut)
		o.leftOut[NoLocalEndpoint] += away
	}
	for i, name := range o.ground.names {
		if len(o.excluded) >= v.shown {
			break
		}
		if reason := o.fault(i); reason != "" {
			o.excluded = append(o.excluded, Exclusion{name, reason})
		}
	}
	return o
}

// fault returns the first filter that a node fails, empty if none.
func (o *outcome) fault(node int) Reason {
	if fault := o.ground.faults[node]; fault != "" {
		return fault
	}
	for _, eligible := range o.local {
		if !contains(eligible, node) {
			return NoLocalEndpoint
		}
	}
	return ""
}

// ground works out what the nodes are for demands, or has it from others of
// the same reach.
func (v *view) ground(demands []demand, lastResort bool) *ground {
	var key []byte
	for _, d := range demands {
		key = binary.AppendUvarint(key, uint64(d.reach.id))
	}
	if lastResort {
		key = append(key, "last resort"...)
	}
	if known, ok := v.grounds[string(key)]; ok {
		return known
	}
	g := v.newGround(demands, lastResort)
	v.grounds[string(key)] = g
	return g
}

func (v *view) newGround(demands []demand, lastResort bool) *ground {
	g := &ground{
		names: v.names, faults: make([]Reason, len(v.nodes)), tiers: make([]tier, len(v.nodes)),
		leftOut: map[Reason]int{},
	}
	for i := range v.nodes {
		n := &v.nodes[i]
		fault, down := n.fault, false
		g.tiers[i] = n.tier
		if lastResort {
			fault, g.tiers[i] = n.stayFault, n.lastTier
		}
		if fault == "" {
			fault, down = reachFault(i, demands)
		}
		if down {
			g.tiers[i] = linkDown
		}
		if fault == "" {
			g.passing = append(g.passing, i)
		} else {
			g.faults[i] = fault
			g.leftOut[fault]++
		}
	}
	return g
}

// reachFault returns the first filter, of advertisements and links, that a
// node fails for any demand, and whether it passes with a link that is down.
func reachFault(node int, demands []demand) (first Reason, down bool) {
	for _, d := range demands {
		switch d.reach.faults[node] {
		case NotSelected:
			return NotSelected, false
		case NoInterface:
			first = NoInterface
		case LinkDown:
			down = true
		}
	}
	return first, down && first == ""
}

func contains(ascending []int, number int) bool {
	_, found := slices.BinarySearch(ascending, number)
	return found
}

// intersect returns the numbers that both ascending lists have.
func intersect(a, b []int) []int {
	if len(a) > len(b) {
		a, b = b, a
	}
	var out []int
	for _, number := range a {
		if contains(b, number) {
			out = append(out, number)
		}
	}
	return out
}

// keyMemory is room for the key of a map, so that looking up one of ordinary
// length costs no memory: it is done for each of thousands of addresses.
type keyMemory [64]byte

// appendOutcomeKey appends what is equal for demands that get the same outcome:
// how far they reach and, with policy Local, where endpoints are, and whether
// one that serves is here.
func (v *view) appendOutcomeKey(key []byte, demands []demand) []byte {
	for _, d := range demands {
		key = binary.AppendUvarint(key, uint64(d.reach.id))
		switch {
		case !d.local:
			key = append(key, 0)
			continue
		case contains(d.serving, v.self):
			key = append(key, 1)
		default:
			key = append(key, 2)
		}
		key = appendNumbers(key, d.eligible)
	}
	return key
}

func appendNumbers(key []byte, numbers []int) []byte {
	key = binary.AppendUvarint(key, uint64(len(numbers)))
	for _, n := range numbers {
		key = binary.AppendUvarint(key, uint64(n))
	}
	return key
}
