package announcer

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// own edits the Node object of n1.
func own(edit func(*plan.Node)) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) {
		s.Nodes = slices.Clone(s.Nodes)
		edit(&s.Nodes[0])
	}
}

// Whoever takes a Node away tells its announcer in one of these ways, and in
// each of them nothing is lost.
func TestNodeThatIsToLeaveHandsOverAndComesBack(t *testing.T) {
	for name, leave := range map[string]func(*plan.Node){
		"annotation":        func(n *plan.Node) { n.Drain = true },
		"exclude label":     func(n *plan.Node) { n.Labels = map[string]string{config.LabelExclude: ""} },
		"cluster scaler":    func(n *plan.Node) { n.Taints = []string{"ToBeDeletedByClusterAutoscaler"} },
		"shut down":         func(n *plan.Node) { n.Taints = []string{"node.cloudprovider.kubernetes.io/shutdown"} },
		"out of service":    func(n *plan.Node) { n.Taints = []string{"node.kubernetes.io/out-of-service"} },
		"several, and none": func(n *plan.Node) { n.Drain, n.Taints = true, []string{"node.kubernetes.io/out-of-service"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, mine)
				r.start(t)
				defer r.finish()
				r.logged()
				r.world.change(own(leave))
				r.kickAndWait()
				if !r.lastSaid().Draining {
					t.Error("it does not say that it drains")
				}
				wantAnswering(t, r, mine+" (yielding)")
				wantLog(t, r, `level=INFO msg="no longer announcing" address=192.0.2.101 now=n3 was=n1 because=Draining`)
				r.wire.takenOver()
				r.kickAndWait()
				wantAnswering(t, r, "")

				r.world.change(own(func(n *plan.Node) { *n = plan.Node{Name: "n1"} }))
				r.kickAndWait()
				if r.lastSaid().Draining {
					t.Error("it still says that it drains")
				}
				wantAnswering(t, r, mine)
			})
		})
	}
}

func TestCordonAndOtherNodesConcernNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		defer r.finish()
		r.world.change(func(s *plan.Snapshot) {
			own(func(n *plan.Node) { n.Taints = []string{"node.kubernetes.io/unschedulable"} })(s)
			s.Nodes[1].Drain = true
		})
		r.kickAndWait()
		if r.lastSaid().Draining {
			t.Error("it says that it drains")
		}
		wantAnswering(t, r, mine)
	})
}

func TestIgnoredExcludeLabelIsNoReasonToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		defer r.finish()
		r.world.change(func(s *plan.Snapshot) {
			s.Config.ExcludeLabel = config.IgnoreLabel
			own(func(n *plan.Node) { n.Labels = map[string]string{config.LabelExclude: ""} })(s)
		})
		r.kickAndWait()
		wantAnswering(t, r, mine)
	})
}
