package source

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// drainAnnotation asks a Node's announcer to give its addresses away. Changing
// it is an API change.
const drainAnnotation = "ccm-baremetal.io/drain" // "true": other nodes are to announce what this one does

// node is a Node together with what gossip and links need of it.
type node struct {
	plan.Node
	internal []netip.Addr // of type InternalIP, in the order of the status
	notReady bool         // condition Ready is False, which Unknown is not
}

// convertNode keeps every Node, and of it nothing that a heartbeat changes.
func convertNode(o *corev1.Node) (node, bool) {
	n := node{Node: plan.Node{
		Name:     o.Name,
		Labels:   o.Labels,
		Taints:   taints(o.Spec.Taints),
		Deleting: o.DeletionTimestamp != nil,
		Drain:    isTrue(o.Annotations[drainAnnotation]),
	}}
	for _, entry := range o.Status.Addresses {
		address, ok := parseAddr(entry.Address)
		switch {
		case !ok:
		case entry.Type == corev1.NodeInternalIP:
			n.internal = append(n.internal, address)
			n.Addresses = append(n.Addresses, address)
		case entry.Type == corev1.NodeExternalIP:
			n.Addresses = append(n.Addresses, address)
		}
	}
	for _, c := range o.Status.Conditions {
		switch isTrue := c.Status == corev1.ConditionTrue; c.Type {
		case corev1.NodeNetworkUnavailable:
			n.NetworkUnavailable = isTrue
		case corev1.NodeReady:
			n.Ready, n.notReady = isTrue, c.Status == corev1.ConditionFalse
		}
	}
	return n, true
}

func taints(list []corev1.Taint) []string {
	var keys []string
	for _, taint := range list {
		keys = append(keys, taint.Key)
	}
	return sorted(keys)
}

// gossip returns the address at which the node's announcer is to be reached:
// the first InternalIP, or the first address inside advertise if that is given.
func (n node) gossip(advertise netip.Prefix) (netip.Addr, error) {
	if !advertise.IsValid() {
		if len(n.internal) == 0 {
			return netip.Addr{}, fmt.Errorf("node %s has no InternalIP yet", n.Name)
		}
		return n.internal[0], nil
	}
	i := slices.IndexFunc(n.Addresses, advertise.Contains)
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("node %s has no address inside membership.advertise %s", n.Name, advertise)
	}
	return n.Addresses[i], nil
}

// announces tells whether an announcer can run on the node at all.
func (n node) announces() bool {
	return n.Labels[corev1.LabelOSStable] != "windows"
}
