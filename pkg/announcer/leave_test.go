package announcer

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestLeavingHandsOverBeforeItFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		r.end()
		synctest.Wait()
		if said := r.lastSaid(); !said.Draining || said.Passive || len(said.Links) != 1 {
			t.Errorf("published %+v", said)
		}
		// Gossip has told nobody yet, and still this node knows that it drains.
		wantAnswering(t, r, mine+" (yielding)")

		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		wantAnswering(t, r, mine+" (yielding)")
		began := time.Now()
		r.wire.takenOver()
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > lookEvery {
			t.Errorf("left %s after the last address was taken over", took)
		}
		if got, want := r.wire.history(), "start "+mine+", handed over "+mine; got != want {
			t.Errorf("on the wire: %s, want %s", got, want)
		}
	})
}

func TestLeavingEndsIfNobodyTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		r.logged()
		began := time.Now()
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != leaveWithin {
			t.Errorf("left after %s, want %s", took, leaveWithin)
		}
		wantAnswering(t, r, "")
		wantLog(t, r,
			"level=INFO msg=leaving addresses=1",
			`level=INFO msg="no longer announcing" address=192.0.2.101 now=n3 was=n1 because=Draining`,
			"level=INFO msg=left withdrawn=1")
	})
}

func TestTheOnlyCandidateAnswersToTheEndAndLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		r.world.change(lose("n2", "n3"))
		r.kickAndWait()
		r.logged()
		began := time.Now()
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s for nobody", took)
		}
		wantLog(t, r, "level=INFO msg=leaving addresses=1", "level=INFO msg=left withdrawn=1")
		if got, want := r.wire.history(), "start "+mine+", stop "+mine; got != want {
			t.Errorf("on the wire: %s, want %s", got, want)
		}
	})
}

func TestLeavingGoesOnPassing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.start(t)
		r.end()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		r.world.change(lose("n2", "n3")) // all others die while this one leaves
		r.kickAndWait()
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		want := "start " + mine + ", start " + theirs + ", stop " + mine + ", stop " + theirs
		if got := r.wire.history(); got != want {
			t.Errorf("on the wire: %s, want %s", got, want)
		}
	})
}

func TestLeavingInAnUnknownWorldKeepsAnsweringForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		r.world.fail(errors.New("waiting for Nodes"))
		r.end()
		synctest.Wait()
		if said := r.lastSaid(); !said.Draining {
			t.Errorf("published %+v", said)
		}
		wantAnswering(t, r, mine)
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		wantAnswering(t, r, "")
	})
}

func TestLeavingBeforeAnythingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.world.fail(errors.New("waiting for Nodes"))
		r.start(t)
		began := time.Now()
		if err := r.finish(); err != nil || time.Since(began) != 0 {
			t.Errorf("left after %s: %v", time.Since(began), err)
		}
		if said := r.lastSaid(); !said.Passive || !said.Draining {
			t.Errorf("published %+v", said)
		}
	})
}

func TestLeavingReportsWhatCouldNotBeWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(t, broken{})
		err := r.finish()
		if want := "withdraw everything: announce: close socket: no such device"; err == nil || err.Error() != want {
			t.Errorf("Run returned %v, want %s", err, want)
		}
	})
}

// broken fails whatever it is asked for.
type broken struct{}

func (broken) Set(context.Context, []plan.Announcement) error {
	return errors.New("close socket: no such device")
}

func (broken) Answering() []plan.Announcement { return nil }

// The kubelet kills who takes longer than its grace period: routers would be left
// without a word, and addresses without an owner.
func TestKubeletWaitsForTheLongestLeave(t *testing.T) {
	const longest = 15 * time.Second
	for pause, accepted := range map[time.Duration]bool{longest: true, longest + time.Second: false} {
		_, err := config.Load([]byte("apiVersion: ccm-baremetal.io/v1alpha1\nkind: CloudConfig\npools: [{addresses: [192.0.2.1]}]\nbgp: {leavePause: " + pause.String() + "}\n"))
		if (err == nil) != accepted {
			t.Errorf("leavePause: %s: %v", pause, err)
		}
	}
	if routersWithin <= longest {
		t.Errorf("%s are too few for a pause of %s", routersWithin, longest)
	}
	text, err := os.ReadFile("../../manifests/base/announcer-daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(*set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if needed := leaveWithin + routersWithin; grace < needed+3*time.Second {
		t.Errorf("the announcer is killed after %s, and may need %s and a moment to close", grace, needed)
	}
}
