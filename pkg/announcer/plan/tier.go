package plan

import (
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
)

// tier is where a candidate stands: only those of the best tier that has any
// compete for an address.
type tier int

// The tiers, best first. Those from draining on are for when nobody else is
// left. A node that takes itself for unfit may be mistaken: if all do, something
// is wrong with what they judge by, or answering does no harm. A node whose
// link is down comes last of all: it serves nobody. It is a candidate all the
// same, because then it answers as soon as the carrier is back.
const (
	normal tier = iota
	settling
	stale
	draining
	notReady
	pathDown
	linkDown
)

// reasons say why a node stands in a tier.
var reasons = [...]Reason{
	normal: "", settling: Settling, stale: Stale, draining: Draining,
	notReady: NodeNotReady, pathDown: DataPathDown, linkDown: LinkDown,
}

// unfitness returns where a node stands by what it takes itself for.
func unfitness(unfit Reason) tier {
	switch unfit {
	case "":
		return normal
	case NodeNotReady:
		return notReady
	}
	return pathDown
}

// tier returns where a member stands whatever the address.
func (m *Member) tier() tier {
	switch {
	case m.Stale:
		return stale
	case m.Settling:
		return settling
	}
	return normal
}

// lastResort returns where a member stands when nobody better is left.
func (m *Member) lastResort() tier {
	switch {
	case m.Unfit != "":
		return unfitness(m.Unfit)
	case m.Draining:
		return draining
	}
	return m.tier()
}

// rulesOf returns the number of the rules to decide by: the lowest that a live
// member knows, this one included. A member that tells none knows the first.
func rulesOf(members []Member) int {
	rules := election.Rules
	for i := range members {
		rules = min(rules, max(members[i].Rules, 1))
	}
	return rules
}

// field are candidates by tier.
type field struct {
	tiers [linkDown + 1][]string // by name
	size  int
}

func (f *field) add(t tier, node string) {
	f.tiers[t] = append(f.tiers[t], node)
	f.size++
}

// best returns the best tier that has a candidate, and whether there is one.
func (f *field) best() (tier, bool) {
	for t := range f.tiers {
		if len(f.tiers[t]) > 0 {
			return tier(t), true
		}
	}
	return 0, false
}

// has tells whether a node is a candidate.
func (f *field) has(node string) bool {
	for _, names := range f.tiers {
		if _, found := slices.BinarySearch(names, node); found {
			return true
		}
	}
	return false
}

// behind returns all candidates that do not stand in the normal tier, each
// with the reason; nil if there are none.
func (f *field) behind() map[string]Reason {
	var out map[string]Reason
	for t, names := range f.tiers {
		for _, name := range names {
			if tier(t) == normal {
				break
			}
			if out == nil {
				out = map[string]Reason{}
			}
			out[name] = reasons[t]
		}
	}
	return out
}
