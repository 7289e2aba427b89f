package plan

// Meaning says what a reason means to somebody who sees it for the first time.
// It is empty for a reason of another release.
func (r Reason) Meaning() string {
	switch r {
	case Owner:
		return "this node announces it"
	case NotOwner:
		return "another candidate ranks before this node"
	case NotCandidate:
		return "this node could not announce it"
	case NotAllocated:
		return "ccm-baremetal has not confirmed the address, see the condition ccm-baremetal.io/Allocated"
	case Deleting:
		return "the Service is being deleted"
	case NodeAddress:
		return "it is an address of a Node or of the API server"
	case SpecialPurpose:
		return "loopback, multicast, link-local and the like are never announced"
	case NoEndpoints:
		return "no Service on it has a usable endpoint"
	case NoAdvertisement:
		return "no advertisement selects its pool and its Services"
	case OnlyBGP:
		return "it is advertised to routers, see announcer bgp"
	case NoEligibleNode:
		return "every node is left out"
	case NoQuorum:
		return "this node sees half of the announcers or fewer, and membership.quorum forbids it to announce"
	case Honoured:
		return "every candidate passes for it"
	case Overruled:
		return "no node passes for all Services on the address, so an older one decides"
	case Released:
		return "no Service holds the address any more"
	case LinksChanged:
		return "the same node announces it on other links"
	default:
		return r.ofNode()
	}
}

// ofNode is Meaning for the reasons that rule out a node, or put it behind.
func (r Reason) ofNode() string {
	switch r {
	case NoAnnouncer:
		return "no live announcer"
	case Passive:
		return "its announcer has not learnt everything yet"
	case Draining:
		return "it is leaving"
	case Settling:
		return "it came back a short while ago, others are preferred"
	case Stale:
		return "it has no API server while most others have one"
	case LinkDown:
		return "its link for the address is down"
	case NodeNotReady:
		return "its Node has been NotReady for a minute"
	case DataPathDown:
		return "its kube-proxy says that it forwards nothing"
	case NodeMissing:
		return "there is no such Node"
	case NodeDeleting:
		return "its Node is being deleted"
	case NetworkUnavailable:
		return "the Node's condition NetworkUnavailable is True"
	case ExcludeLabel:
		return "label node.kubernetes.io/exclude-from-external-load-balancers"
	case Tainted:
		return "tainted as out of service, shut down or about to be removed"
	case Windows:
		return "no announcer runs on Windows"
	case NotSelected:
		return "no advertisement's nodeSelector matches"
	case NoInterface:
		return "no usable link for the address"
	case NoLocalEndpoint:
		return "externalTrafficPolicy is Local and it has no ready endpoint"
	case NoPeer:
		return "no session of its is with a router that is told of such addresses"
	default:
		return ""
	}
}
