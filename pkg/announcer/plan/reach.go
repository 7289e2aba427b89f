package plan

import (
	"encoding/binary"
	"net/netip"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// reach is, for addresses in the same subnets and some advertisements, which
// nodes are selected and have a usable link.
type reach struct {
	id     int
	faults []Reason // by node: NotSelected, NoInterface, LinkDown, or empty
}

// reach works that out, or has it from another address of the same subnets.
func (v *view) reach(address netip.Addr, advertisements []int) *reach {
	var memory keyMemory
	key := appendNumbers(v.subnets.appendKey(memory[:0], address), advertisements)
	if known, ok := v.reaches[string(key)]; ok {
		return known
	}
	r := &reach{id: len(v.reaches), faults: make([]Reason, len(v.nodes))}
	for i := range v.nodes {
		r.faults[i] = v.linkFault(i, address, v.wishes(i, advertisements))
	}
	v.reaches[string(key)] = r
	return r
}

// linkFault says what keeps a node's links from announcing an address as
// wished. Rules before the second make no difference between a link that is
// down and none.
func (v *view) linkFault(node int, address netip.Addr, wishes []config.Layer2) Reason {
	switch {
	case len(wishes) == 0:
		return NotSelected
	case !v.nodes[node].told():
		return ""
	}
	links := chooseLinks(v.nodes[node].member.Links, address, wishes)
	switch {
	case len(links) == 0 || !links[0].Up && v.rules < 2:
		return NoInterface
	case !links[0].Up:
		return LinkDown
	}
	return ""
}

// part is how this node announces addresses of the same subnets.
type part struct {
	links  []Link // all up, or all down
	names  []string
	layer2 config.Layer2
}

// up returns the links that are up.
func (p part) up() []Link {
	if len(p.links) > 0 && !p.links[0].Up {
		return nil
	}
	return p.links
}

// advertisementsOf returns those that any of the demands matches, ascending.
func advertisementsOf(demands []demand) []int {
	var advertisements []int
	for _, d := range demands {
		advertisements = append(advertisements, d.advertisements...)
	}
	return distinctOrdered(advertisements)
}

// servable returns the demands that this node could meet now if packets came
// to it, links apart. What merely makes another node the better choice does not
// count, so that a loser can answer until the winner does.
func (v *view) servable(demands []demand) []demand {
	var out []demand
	if v.self < 0 || v.nodes[v.self].member == nil || v.nodes[v.self].member.Passive {
		return nil
	}
	for _, d := range demands {
		if !d.local || contains(d.serving, v.self) {
			out = append(out, d)
		}
	}
	return out
}

// part returns how a node, by its place, announces an address as some
// advertisements want it, or has it from another address of the same subnets.
func (v *view) part(node int, address netip.Addr, advertisements []int) part {
	var memory keyMemory
	key := binary.AppendVarint(memory[:0], int64(node))
	key = appendNumbers(v.subnets.appendKey(key, address), advertisements)
	if known, ok := v.parts[string(key)]; ok {
		return known
	}
	var p part
	var wishes []config.Layer2
	if node >= 0 {
		wishes = v.wishes(node, advertisements)
	}
	if len(wishes) == 0 {
		wishes = v.allWishes(advertisements)
	}
	p.layer2 = merge(wishes)
	if node >= 0 && v.nodes[node].told() {
		p.links = chooseLinks(v.nodes[node].member.Links, address, wishes)
	}
	p.names = linkNames(p.links)
	v.parts[string(key)] = p
	return p
}

// subnets are the subnets of all links, to tell which addresses are alike.
type subnets struct {
	ids     map[netip.Prefix]int
	lengths []int
}

func newSubnets(nodes []node) subnets {
	s := subnets{ids: map[netip.Prefix]int{}}
	for i := range nodes {
		if !nodes[i].told() {
			continue
		}
		for _, link := range nodes[i].member.Links {
			for _, p := range link.Prefixes {
				s.add(p)
			}
		}
	}
	s.lengths = distinctOrdered(s.lengths)
	return s
}

func (s *subnets) add(p netip.Prefix) {
	if _, known := s.ids[p.Masked()]; !known {
		s.ids[p.Masked()] = len(s.ids)
		s.lengths = append(s.lengths, p.Bits())
	}
}

// appendKey appends what is equal for addresses in the same subnets.
func (s subnets) appendKey(key []byte, address netip.Addr) []byte {
	var memory [16]int
	in := memory[:0]
	for _, length := range s.lengths {
		p, err := address.Prefix(length)
		if err != nil {
			break // longer than the address
		}
		if id, ok := s.ids[p]; ok {
			in = append(in, id)
		}
	}
	return appendNumbers(key, in)
}
