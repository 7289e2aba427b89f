package plan

import (
	"maps"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// osLabel names the operating system of a Node.
const osLabel = "kubernetes.io/os"

// awayTaints say that the machine is out of service, shut down, or will be
// removed by the cluster autoscaler. Cordon is none of them.
var awayTaints = [...]string{
	"node.kubernetes.io/out-of-service",
	"node.cloudprovider.kubernetes.io/shutdown",
	"ToBeDeletedByClusterAutoscaler",
}

// node is what is known under a name: a Node object, a live announcer, or both.
type node struct {
	name   string
	object *Node
	member *Member

	// fault is the first filter that the node fails whatever the address,
	// empty if none. stayFault is the same with those left out that do not
	// matter when nobody better is left: that it drains or is unfit.
	fault, stayFault Reason

	// tier is where the node stands whatever the address, lastTier the same
	// when nobody better is left.
	tier, lastTier tier
}

// labels returns the labels of the Node object, nil without one.
func (n *node) labels() map[string]string {
	if n.object == nil {
		return nil
	}
	return n.object.Labels
}

// voice returns where the node stands among those that tell routers of
// addresses, and whether it is one of them at all. One that takes itself for
// unfit speaks where no better one does; one that drains is about to be silent.
// Here is no election, so the number of the rules does not matter.
func (n *node) voice() (t tier, ok bool) {
	if n.stayFault != "" || n.member.Draining {
		return 0, false
	}
	return unfitness(n.member.Unfit), true
}

// told tells whether the node's announcer has told its links.
func (n *node) told() bool { return n.member != nil && n.member.Links != nil }

// newNodes returns all nodes by name. This announcer knows its own links best.
func newNodes(s Snapshot) []node {
	known := map[string]node{}
	for i := range s.Nodes {
		known[s.Nodes[i].Name] = node{name: s.Nodes[i].Name, object: &s.Nodes[i]}
	}
	for _, m := range s.Members {
		n := known[m.Name]
		n.name, n.member = m.Name, &m
		if m.Name == s.Node {
			m.Links = append([]Link{}, s.Links...)
		}
		known[m.Name] = n
	}
	nodes := make([]node, 0, len(known))
	rules := rulesOf(s.Members)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		n := known[name]
		n.judge(s.Config.ExcludeLabel, rules)
		nodes = append(nodes, n)
	}
	return nodes
}

// judge fills in all that depends on no address. Rules before the second know
// of no standing: whoever obeys them cannot have heard of it either.
func (n *node) judge(label config.ExcludeLabel, rules int) {
	n.stayFault = n.filter(label)
	n.fault = n.stayFault
	if n.member == nil {
		return
	}
	m := *n.member
	if rules < 2 {
		m.Standing = Standing{}
	}
	n.tier, n.lastTier = m.tier(), m.lastResort()
	switch {
	case m.Passive:
	case m.Draining:
		n.fault = Draining
	case m.Unfit != "":
		n.fault = m.Unfit
	}
}

// filter returns the first filter that the node fails of those that depend on
// no address, those about draining and fitness left out; empty if it passes
// them all.
func (n *node) filter(label config.ExcludeLabel) Reason {
	switch {
	case n.member == nil:
		return NoAnnouncer
	case n.member.Passive:
		return Passive
	case n.object == nil:
		return NodeMissing
	case n.object.Deleting:
		return NodeDeleting
	case n.object.NetworkUnavailable:
		return NetworkUnavailable
	case label.Excludes(n.object.Labels):
		return ExcludeLabel
	case slices.ContainsFunc(n.object.Taints, IsAway):
		return Tainted
	case n.object.Labels[osLabel] == "windows":
		return Windows
	}
	return ""
}

// Leaving tells whether s.Node is to give its addresses away, by what its Node
// object says. Its announcer then says that it drains: that reaches the others
// before they have read the same, and all of them at once.
func Leaving(s Snapshot) bool {
	return slices.ContainsFunc(s.Nodes, func(n Node) bool {
		return n.Name == s.Node && (n.Drain || s.Config.ExcludeLabel.Excludes(n.Labels) || slices.ContainsFunc(n.Taints, IsAway))
	})
}

// IsAway tells whether a taint, by its key, takes its Node out.
func IsAway(taint string) bool { return slices.Contains(awayTaints[:], taint) }
