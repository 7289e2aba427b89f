package status

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestConditionTexts(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.101"), netip.MustParseAddr("192.0.2.103")
	both := func(s *plan.Snapshot) {
		s.Services = slices.Clone(s.Services[:1])
		s.Services[0].Addresses = []netip.Addr{four, six, four}
	}
	tests := []struct {
		name     string
		change   func(*plan.Snapshot)
		conflict []Conflict
		want     string
	}{
		{"two addresses", both, nil, "True Layer2: announcing 192.0.2.101 from n1, eth0; announcing 192.0.2.103 from n2, eth0"},
		{"one of two", func(s *plan.Snapshot) {
			both(s)
			s.Reserved = []netip.Addr{six}
		}, nil, "False PartlyAnnounced: announcing 192.0.2.101 from n1, eth0; not announcing 192.0.2.103: it is an address of a Node or of the API server"},
		{"conflict", both, []Conflict{{Address: "192.0.2.101", Link: "eth0", MAC: "02:00:00:00:00:99"}},
			"False PartlyAnnounced: 192.0.2.101 of n1: a foreign station, 02:00:00:00:00:99, claims it on eth0; announcing 192.0.2.103 from n2, eth0"},
		{"conflict with a node's kernel", func(*plan.Snapshot) {}, []Conflict{{Address: "192.0.2.101", Link: "eth0", MAC: "02:00:00:00:00:02", Node: "n2"}},
			"False AddressConflict: 192.0.2.101 of n1: the kernel of node n2 (kube-proxy in IPVS mode without strictARP?), 02:00:00:00:00:02, claims it on eth0"},
		{"conflict with another announcer", func(*plan.Snapshot) {}, []Conflict{{Address: "192.0.2.101", Link: "eth0", MAC: "02:00:00:00:00:02", Node: "n2", Cause: memberAnnounces}},
			"False AddressConflict: 192.0.2.101 of n1: the announcer of node n2, 02:00:00:00:00:02, claims it on eth0"},
		{"no endpoint", func(s *plan.Snapshot) {
			s.Members = s.Members[:1]
			s.Services[0].Endpoints = plan.Endpoints{}
		}, nil, "False NoEndpoints: not announcing 192.0.2.101: no Service on it has a usable endpoint"},
		{"link down", func(s *plan.Snapshot) {
			s.Members = slices.Clone(s.Members[:1])
			s.Links = slices.Clone(s.Links)
			s.Links[0].Up = false
		}, nil, "False NoInterface: not announcing 192.0.2.101 from n1, eth0: no candidate's link is up"},
		{"no link", func(s *plan.Snapshot) {
			s.Members, s.Nodes = s.Members[:1], s.Nodes[:1]
			s.Links = nil
		}, nil, "False NoInterface: not announcing 192.0.2.101: no usable link for the address: 1 NoInterface"},
		{"no address any more", func(s *plan.Snapshot) {
			s.Members, s.Services[0].Addresses = s.Members[:1], nil
		}, nil, "False NotAllocated: it has no address"},
		{"to routers only", func(s *plan.Snapshot) { s.Config = routed(t, "{bgp: {}}") }, nil, "True BGP: 2 nodes advertise 192.0.2.101 to routers"},
		{"to routers too", func(s *plan.Snapshot) {
			both(s)
			s.Config = routed(t, "{layer2: {}, bgp: {}}")
		}, nil, "True Layer2AndBGP: announcing 192.0.2.101 from n1, eth0; 2 nodes advertise 192.0.2.101 to routers; " +
			"announcing 192.0.2.103 from n2, eth0; 2 nodes advertise 192.0.2.103 to routers"},
		{"to routers from nowhere", func(s *plan.Snapshot) {
			s.Members = s.Members[:1]
			s.Config = routed(t, "{nodeSelector: rack=z, bgp: {}}")
		}, nil, "False NoEligibleNode: not announcing 192.0.2.101: every node is left out"},
		{"deleting", func(s *plan.Snapshot) { s.Services[0].Deleting = true }, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard()
				b.set("web/s101", Condition{metav1.ConditionUnknown, "Old", "old"})
				withConditions(t, b, func(w *writer) {
					s := world(t)
					s.Services = slices.Clone(s.Services[:1])
					tt.change(&s)
					w.conflicts = tt.conflict
					w.passes(s)
					time.Sleep(time.Minute)
					got := strings.TrimPrefix(strings.Join(w.lines(), "\n"), "web/s101 ")
					if got != tt.want {
						t.Errorf("got  %s\nwant %s", got, tt.want)
					}
				})
			})
		})
	}
}

func TestConditionPatchNamesOneConditionOnly(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	yes := Condition{metav1.ConditionTrue, "Layer2", "announcing"}
	patch, err := ConditionPatch("u1", Condition{}, yes, now)
	want := `{"metadata":{"uid":"u1"},"status":{"conditions":[{"lastTransitionTime":"2030-01-02T02:04:05Z","message":"announcing",` +
		`"reason":"Layer2","status":"True","type":"ccm-baremetal.io/Announced"}]}}`
	if err != nil || string(patch) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, patch, want)
	}
	patch, err = ConditionPatch("u1", yes, Condition{metav1.ConditionTrue, "Layer2", "elsewhere"}, now)
	if err != nil || strings.Contains(string(patch), "lastTransitionTime") {
		t.Errorf("%v, a new time without a new status: %s", err, patch)
	}
}

// routed is the usual configuration with one advertisement and a router.
func routed(t *testing.T, advertisement string) config.Config {
	t.Helper()
	c, err := config.Load([]byte(document + "bgp: {localASN: 64500, peers: [{name: r1, address: 203.0.113.1, asn: 64501}]}\nadvertisements: [" + advertisement + "]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
