package plan

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// demand is what one Service on an address asks of a node that is to
// announce it.
type demand struct {
	holder         int   // its place among the holders of the address
	advertisements []int // that match it
	reach          *reach
	local          bool
	eligible       []int // policy Local: the nodes whose endpoints count
	serving        []int // policy Local: the nodes with any endpoint that serves
}

// demands returns what the Services on an address ask for, oldest first, and
// fills in the reason for each of them.
func (v *view) demands(address netip.Addr, holders []holder, reasons []Holder) []demand {
	var out []demand
	pool, _ := v.config.PoolOf(address)
	ban := v.ban(address)
	for i, h := range holders {
		matching := v.matching(h.selected, pool.Name)
		reason := ban
		if reason == "" {
			reason = h.objection(matching)
		}
		reasons[i] = Holder{Service: h.key, Reason: reason}
		if reason == Honoured {
			out = append(out, demand{i, matching, v.reach(address, matching), h.Local, h.eligible, h.serving})
		}
	}
	return out
}

// ban says why an address is announced for nobody, whatever a status says.
func (v *view) ban(address netip.Addr) Reason {
	switch {
	case !address.IsValid() || address.Zone() != "" || config.SpecialPurpose(address) != "":
		return SpecialPurpose
	case v.taken[address]:
		return NodeAddress
	}
	return ""
}

// objection says why the Service has no say in the election, Honoured if it has.
func (h holder) objection(matching []int) Reason {
	switch {
	case h.Deleting:
		return Deleting
	case !h.Allocated:
		return NotAllocated
	case !h.usable:
		return NoEndpoints
	case len(matching) == 0:
		return NoAdvertisement
	}
	return Honoured
}

// outcome is what the nodes are for addresses with equal demands.
type outcome struct {
	candidates []string // by name
	excluded   []Exclusion
	decisive   int // the demand whose candidates they are, -1: of all demands
}

// poll sorts the nodes into candidates and others. A node must pass for every
// demand. If none does, the oldest demand that any node passes for decides
// alone: some of the Services announced is better than none. A draining node
// is a candidate only where no other is: until it has left, it serves better
// than nobody.
func (v *view) poll(demands []demand) *outcome {
	key := outcomeKey(demands)
	if known, ok := v.outcomes[key]; ok {
		return known
	}
	o := v.pollAnew(demands)
	v.outcomes[key] = o
	return o
}

func (v *view) pollAnew(demands []demand) *outcome {
	for _, lastResort := range []bool{false, true} {
		if o := v.filter(demands, lastResort); len(o.candidates) > 0 {
			return o
		}
		for i := range demands {
			if o := v.filter(demands[i:i+1], lastResort); len(o.candidates) > 0 && len(demands) > 1 {
				o.decisive = i
				return o
			}
		}
	}
	return v.filter(demands, false)
}

func (v *view) filter(demands []demand, lastResort bool) *outcome {
	o := &outcome{decisive: -1}
	for i := range v.nodes {
		reason := v.nodes[i].fault
		if lastResort {
			reason = v.nodes[i].stayFault
		}
		if reason == "" {
			reason = firstFault(i, demands)
		}
		if reason == "" {
			o.candidates = append(o.candidates, v.nodes[i].name)
		} else {
			o.excluded = append(o.excluded, Exclusion{v.nodes[i].name, reason})
		}
	}
	return o
}

// firstFault returns the first filter, of those that depend on the address,
// that the node fails for any demand; empty if none.
func firstFault(node int, demands []demand) Reason {
	var local bool
	var first Reason
	for _, d := range demands {
		switch d.reach.faults[node] {
		case NotSelected:
			return NotSelected
		case NoInterface:
			first = NoInterface
		}
		local = local || d.local && !contains(d.eligible, node)
	}
	if first == "" && local {
		return NoLocalEndpoint
	}
	return first
}

func contains(ascending []int, number int) bool {
	_, found := slices.BinarySearch(ascending, number)
	return found
}

// outcomeKey is equal for demands that get the same outcome.
func outcomeKey(demands []demand) string {
	var key []byte
	for _, d := range demands {
		key = binary.AppendUvarint(key, uint64(d.reach.id))
		if !d.local {
			key = append(key, 0)
			continue
		}
		key = append(key, 1)
		key = appendNumbers(key, d.eligible)
	}
	return string(key)
}

func appendNumbers(key []byte, numbers []int) []byte {
	key = binary.AppendUvarint(key, uint64(len(numbers)))
	for _, n := range numbers {
		key = binary.AppendUvarint(key, uint64(n))
	}
	return key
}
