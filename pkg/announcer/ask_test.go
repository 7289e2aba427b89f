package announcer

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// missing loses members whose Nodes are Ready, so that they may well be alive.
func missing(names ...string) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) {
		s.Nodes = slices.Clone(s.Nodes)
		for i := range s.Nodes {
			s.Nodes[i].Ready = true
		}
		lose(names...)(s)
	}
}

// wantAsked compares what the speaker was last told about an address.
func wantAsked(t *testing.T, r *rig, address string, want bool) {
	t.Helper()
	for _, a := range r.wire.Answering() {
		if a.Address == netip.MustParseAddr(address) {
			if a.Ask != want {
				t.Errorf("%s: asks %t, want %t", address, a.Ask, want)
			}
			return
		}
	}
	t.Errorf("%s is not announced", address)
}

func TestMinorityAsksTheWireBeforeAnUnplannedTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.start(t)
		defer r.finish()
		wantAsked(t, r, mine, false)
		r.world.change(missing("n3"))
		r.kickAndWait()
		wantAsked(t, r, mine, false) // two of three
		r.world.change(missing("n2"))
		r.kickAndWait()
		wantAsked(t, r, theirs, true)
	})
}

func TestMinorityDoesNotAskWhenAMemberHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.world.change(func(s *plan.Snapshot) {
			s.Members[2].Settling = true // so that n1 is the next
			for i := range 5 {
				name := fmt.Sprint("n", 4+i)
				s.Nodes = append(s.Nodes, plan.Node{Name: name})
				s.Members = append(s.Members, plan.Member{Name: name, Rules: 2, Links: s.Links, Standing: plan.Standing{Stale: true}})
			}
		})
		r.start(t)
		defer r.finish()
		r.world.change(missing("n4", "n5", "n6", "n7", "n8"))
		r.kickAndWait()
		r.world.change(func(s *plan.Snapshot) { s.Members = drained(s.Members, "n2", true) })
		r.kickAndWait()
		wantAsked(t, r, theirs, false)

		// Without n2 there is nobody to say whether it is handed over.
		r.wire.takenOver()
		r.world.change(missing("n2"))
		r.kickAndWait()
		wantAsked(t, r, mine, true)
	})
}
