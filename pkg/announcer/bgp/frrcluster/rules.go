package frrcluster

import (
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// rules are those of an FRR that is told by frr-k8s, which collects changes for
// three seconds and reloads FRR in about two. FRR tells of a changed route map
// after five (bgp route-map delay-timer). A withdrawal may take none of that, for
// frr-k8s may have begun to collect before it. For twice the three seconds there
// is no session where another one follows: frr-k8s would else only edit the one
// that is up.
var rules = roster.Rules{Spread: 10 * time.Second, Patience: 10 * time.Second, Between: 6 * time.Second, Excludes: excludes}

// excludes tells whether a leave would end at once if another session began:
// FRR has one AS number and one router ID in a VRF.
func excludes(begins, leaves plan.Peering) bool {
	a, b := begins.Peer, leaves.Peer
	return a.VRF == b.VRF && (a.LocalASN != b.LocalASN || a.RouterID != b.RouterID)
}
