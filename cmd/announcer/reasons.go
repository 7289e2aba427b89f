package main

import "github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"

// meaning says what a reason means to somebody who sees it for the first time.
// It is empty for a reason of another release.
func meaning(r plan.Reason) string {
	switch r {
	case plan.Owner:
		return "this node announces it"
	case plan.NotOwner:
		return "another candidate ranks before this node"
	case plan.NotCandidate:
		return "this node could not announce it"
	case plan.NotAllocated:
		return "ccm-baremetal has not confirmed the address, see the condition ccm-baremetal.io/Allocated"
	case plan.Deleting:
		return "the Service is being deleted"
	case plan.NodeAddress:
		return "it is an address of a Node or of the API server"
	case plan.SpecialPurpose:
		return "loopback, multicast, link-local and the like are never announced"
	case plan.NoEndpoints:
		return "no Service on it has a usable endpoint"
	case plan.NoAdvertisement:
		return "no advertisement selects its pool and its Services"
	case plan.NoEligibleNode:
		return "every node is left out"
	case plan.NoQuorum:
		return "this node sees half of the announcers or fewer, and membership.quorum forbids it to announce"
	case plan.Honoured:
		return "every candidate passes for it"
	case plan.Overruled:
		return "no node passes for all Services on the address, so an older one decides"
	case plan.Released:
		return "no Service holds the address any more"
	case plan.LinksChanged:
		return "the same node announces it on other links"
	default:
		return nodeMeaning(r)
	}
}

// nodeMeaning is meaning for the reasons that rule out a node.
func nodeMeaning(r plan.Reason) string {
	switch r {
	case plan.NoAnnouncer:
		return "no live announcer"
	case plan.Passive:
		return "its announcer has not learnt everything yet"
	case plan.Draining:
		return "it is leaving"
	case plan.Settling:
		return "it came back a short while ago, others are preferred"
	case plan.Stale:
		return "it has no API server while most others have one"
	case plan.LinkDown:
		return "its link for the address is down"
	case plan.NodeNotReady:
		return "its Node has been NotReady for a minute"
	case plan.DataPathDown:
		return "its kube-proxy says that it forwards nothing"
	case plan.NodeMissing:
		return "there is no such Node"
	case plan.NodeDeleting:
		return "its Node is being deleted"
	case plan.NetworkUnavailable:
		return "the Node's condition NetworkUnavailable is True"
	case plan.ExcludeLabel:
		return "label node.kubernetes.io/exclude-from-external-load-balancers"
	case plan.Tainted:
		return "tainted as out of service, shut down or about to be removed"
	case plan.Windows:
		return "no announcer runs on Windows"
	case plan.NotSelected:
		return "no advertisement's nodeSelector matches"
	case plan.NoInterface:
		return "no usable link for the address"
	case plan.NoLocalEndpoint:
		return "externalTrafficPolicy is Local and it has no ready endpoint"
	default:
		return ""
	}
}
