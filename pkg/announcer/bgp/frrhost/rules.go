package frrhost

import (
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// rules are those of a FRR on the node. It takes up to a second to tell routers
// of a changed route map (bgp route-map delay-timer), and they some time to
// follow.
var rules = roster.Rules{Spread: 1500 * time.Millisecond, Patience: 5 * time.Second, Closes: true, Excludes: excludes}

// excludes tells whether a leave would end at once if another session began:
// FRR has one AS number and one router ID in a VRF, and resets all sessions when
// they change. Both have the numbers of frr.Numbered.
func excludes(begins, leaves plan.Peering) bool {
	a, b := begins.Peer, leaves.Peer
	return a.VRF == b.VRF && (begins.ASN != leaves.ASN || a.RouterID != b.RouterID)
}
