package frrhost

import (
	"net/netip"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// FRR has one AS number and one router ID, and would end all sessions to change
// them.
func TestAnotherAnswerOfTheWholeVRFCutsLeavesShort(t *testing.T) {
	number := func(document, local uint32) plan.Peering {
		alone := []plan.Peering{{ASN: document, Peer: config.Peer{LocalASN: local, ASN: 64501}}}
		return frr.Numbered(alone)[0]
	}
	identified, elsewhere := number(64500, 64500), number(64600, 64600)
	identified.Peer.RouterID = netip.MustParseAddr("10.0.0.1")
	elsewhere.Peer.VRF = "red"
	for name, c := range map[string]struct {
		begins plan.Peering
		want   bool
	}{
		"the same numbers":                 {number(64500, 64500), false},
		"another number by local-as":       {number(64500, 64600), false},
		"another number of the document":   {number(64600, 64600), true},
		"an internal router of another AS": {number(64500, 64501), true},
		"another router ID":                {identified, true},
		"in another VRF":                   {elsewhere, false},
	} {
		if got := excludes(c.begins, number(64500, 64500)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
