package frrcluster

import (
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// rules are those of an FRR that is told by frr-k8s, which collects changes and
// reloads FRR: about two seconds. FRR tells of a changed route map after five
// (bgp route-map delay-timer). For twice the two seconds there is no session
// where another one follows, for frr-k8s would else only edit the one that is up.
var rules = roster.Rules{Spread: 7 * time.Second, Patience: 10 * time.Second, Between: 4 * time.Second, Excludes: excludes}

// excludes tells whether a leave would end at once if another session began:
// FRR has one AS number and one router ID in a VRF.
func excludes(begins, leaves plan.Peering) bool {
	a, b := begins.Peer, leaves.Peer
	return a.VRF == b.VRF && (a.LocalASN != b.LocalASN || a.RouterID != b.RouterID)
}
