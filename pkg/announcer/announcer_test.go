package announcer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Of these, n1 ranks first for .101 (then n3), n2 for .103.
const (
	mine   = "192.0.2.101"
	theirs = "192.0.2.103"
)

func wantLog(t *testing.T, r *rig, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func wantAnswering(t *testing.T, r *rig, want string) {
	t.Helper()
	if got := r.wire.String(); got != want {
		t.Errorf("answering for %q, want %q", got, want)
	}
}

// finish ends the announcer and returns what Run returned.
func (r *rig) finish() error {
	r.end()
	return <-r.done
}

func TestOwnedAddressesAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.start(t)
		defer r.finish()
		wantAnswering(t, r, mine)
		wantLog(t, r, "level=INFO msg=announcing address=192.0.2.101 node=n1 links=eth0 was=n3 because=NotOwner")
		if said := r.lastSaid(); said.Passive || said.Draining || len(said.Links) != 1 {
			t.Errorf("published %+v", said)
		}
	})
}

func TestTakeOverSaysFromWhomAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.start(t)
		defer r.finish()
		r.logged()
		r.world.change(lose("n2"))
		r.world.change(func(s *plan.Snapshot) { s.Members = slices.Clone(s.Members); s.Members[1].Draining = true })
		r.kickAndWait()
		wantAnswering(t, r, mine+", "+theirs)
		wantLog(t, r, "level=INFO msg=announcing address=192.0.2.103 node=n1 links=eth0 was=n2 because=NoAnnouncer")
	})
}

func TestAtRestNothingIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.start(t)
		defer r.finish()
		r.logged()
		r.observed()
		passes := r.world.passes()
		time.Sleep(10 * time.Minute)
		for range 10 {
			r.kickAndWait()
		}
		if r.world.passes() < passes+20 {
			t.Errorf("%d passes in ten minutes with ten kicks", r.world.passes()-passes)
		}
		wantLog(t, r)
		if changes := r.observed(); len(changes) != 0 {
			t.Errorf("changes at rest: %v", changes)
		}
		if got, want := r.wire.history(), "start "+mine; got != want {
			t.Errorf("on the wire: %s, want %s", got, want)
		}
	})
}

func TestUnknownWorldKeepsWhatIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		defer r.finish()
		r.logged()
		r.world.fail(errors.New("waiting for EndpointSlices"))
		r.kickAndWait()
		time.Sleep(time.Minute)
		wantAnswering(t, r, mine)
		wantLog(t, r, `level=WARN msg="pass failed, keeping what is announced and trying again" err="waiting for EndpointSlices"`)

		r.world.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantAnswering(t, r, mine)
		wantLog(t, r, `level=INFO msg="pass succeeded, the network agrees with the world"`)
		if got, want := r.wire.history(), "start "+mine; got != want {
			t.Errorf("on the wire: %s, want %s", got, want)
		}
	})
}

func TestPassiveUntilEverythingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.world.fail(errors.New("waiting for Nodes"))
		r.start(t)
		defer r.finish()
		time.Sleep(time.Minute)
		wantAnswering(t, r, "")
		if said := r.lastSaid(); !said.Passive {
			t.Errorf("published %+v while nothing is known", said)
		}
		wantLog(t, r, `level=INFO msg="not ready to announce yet" because="waiting for Nodes"`)

		r.world.fail(nil)
		r.kickAndWait()
		if said := r.lastSaid(); said.Passive {
			t.Errorf("published %+v though everything is known", said)
		}
		wantAnswering(t, r, mine)
	})
}

// slow is a speaker that takes its time.
type slow struct{ wire }

func (s *slow) Set(ctx context.Context, want []plan.Announcement) error {
	time.Sleep(5 * time.Second)
	return s.wire.Set(ctx, want)
}

func TestKicksDuringAPassAreOneMorePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t, &slow{})
		defer r.finish()
		for range 1000 {
			r.Kick()
		}
		time.Sleep(25 * time.Second)
		if got := r.world.passes(); got != 2 {
			t.Errorf("%d passes for a thousand kicks during the first, want 2", got)
		}
	})
}

func TestOneFailingSpeakerStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		broken := &wire{err: errors.New("open socket on eth0: permission denied")}
		r.start(t, broken)
		defer r.finish()
		time.Sleep(time.Minute)
		wantAnswering(t, r, mine)
		if got := broken.String(); got != "" {
			t.Errorf("the broken speaker answers for %s", got)
		}
		wantLog(t, r,
			`level=WARN msg="pass failed, keeping what is announced and trying again" err="announce: open socket on eth0: permission denied"`,
			"level=INFO msg=announcing address=192.0.2.101 node=n1 links=eth0 was=n3 because=NotOwner")

		broken.set(nil)
		time.Sleep(2 * time.Second) // without a kick
		synctest.Wait()
		if got := broken.String(); got != mine {
			t.Errorf("the repaired speaker answers for %q", got)
		}
		wantLog(t, r, `level=INFO msg="pass succeeded, the network agrees with the world"`)
	})
}

func TestAGainIsToldWhenItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.wire.stuck = true
		r.start(t)
		defer r.finish()
		wantLog(t, r)
		r.wire.mu.Lock()
		r.wire.stuck = false
		r.wire.mu.Unlock()
		r.kickAndWait()
		wantLog(t, r, "level=INFO msg=announcing address=192.0.2.101 node=n1 links=eth0 was=n3 because=NotOwner")
	})
}

func TestLostAddressIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, theirs)
		r.start(t)
		defer r.finish()
		all := r.world.members()
		r.world.change(lose("n2", "n3"))
		r.kickAndWait()
		wantAnswering(t, r, theirs)
		r.logged()

		r.world.change(func(s *plan.Snapshot) { s.Members = all }) // they come back
		r.kickAndWait()
		wantAnswering(t, r, theirs+" (yielding)")
		wantLog(t, r, `level=INFO msg="no longer announcing" address=192.0.2.103 now=n2 was=n1 because=NotOwner`)
		r.wire.takenOver()
		r.kickAndWait()
		wantAnswering(t, r, "")
	})
}

func TestNobodyAnnouncesIsSaidByOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.start(t)
		defer r.finish()
		r.logged()
		r.world.change(func(s *plan.Snapshot) {
			for i := range s.Services {
				s.Services[i].Endpoints = plan.Endpoints{}
			}
		})
		r.kickAndWait()
		wantAnswering(t, r, "")
		// .103 is n2's to tell.
		wantLog(t, r, `level=INFO msg="no longer announcing" address=192.0.2.101 now="" was=n1 because=NoEndpoints`)
		r.world.change(func(s *plan.Snapshot) {
			for i := range s.Services {
				s.Services[i].Deleting = true
			}
		})
		r.kickAndWait()
		wantLog(t, r, `level=INFO msg="nobody announces" address=192.0.2.101 because=Deleting`)
	})
}

func TestB041ReleasedAddressIsSilentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		defer r.finish()
		r.logged()
		r.world.change(func(s *plan.Snapshot) { s.Services = nil })
		r.kickAndWait()
		wantAnswering(t, r, "")
		wantLog(t, r, `level=INFO msg="no longer announcing" address=192.0.2.101 now="" was=n1 because=Released`)
		want := plan.Change{Address: netip.MustParseAddr(mine), From: "n1", Cause: plan.Released}
		if got := r.observed(); len(got) == 0 || !cmp.Equal(got[len(got)-1], want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
			t.Errorf("observed %+v, last want %+v", got, want)
		}
	})
}

func TestAloneAmongNodesItWaitsForContactBeforeItClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		all := r.world.members()
		r.world.change(lose("n2", "n3")) // not met yet
		r.start(t)
		defer r.finish()
		time.Sleep(meetWithin - time.Second)
		wantAnswering(t, r, "")
		if said := r.lastSaid(); !said.Passive {
			t.Errorf("published %+v before it met anybody", said)
		}
		r.world.change(func(s *plan.Snapshot) { s.Members = all })
		r.kickAndWait()
		wantAnswering(t, r, mine)
	})
}

func TestAloneAmongNodesItClaimsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.world.change(lose("n2", "n3"))
		r.start(t)
		defer r.finish()
		time.Sleep(meetWithin + retryAfter)
		wantAnswering(t, r, mine+", "+theirs)
	})
}

func TestOnASingleNodeItClaimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.world.change(lose("n2", "n3"))
		r.world.change(func(s *plan.Snapshot) { s.Nodes = s.Nodes[:1] })
		r.start(t)
		defer r.finish()
		wantAnswering(t, r, mine)
	})
}

// first tells for which addresses the last Set said that nobody had them before.
func (w *wire) first() map[string]bool {
	out := map[string]bool{}
	for _, a := range w.Answering() {
		out[a.Address.String()] = a.First
	}
	return out
}

func TestOnlyANewAddressIsAClaimToBeProbed(t *testing.T) {
	const fresh = "192.0.2.105" // n1 ranks first for it, too
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine, theirs)
		r.start(t)
		defer r.finish()
		r.wire.set(errors.New("not yet"))
		r.world.change(func(s *plan.Snapshot) {
			svc := s.Services[0]
			svc.Name, svc.Addresses = "fresh", []netip.Addr{netip.MustParseAddr(fresh)}
			s.Services = append(slices.Clone(s.Services), svc)
		})
		r.world.change(lose("n2", "n3"))
		r.kickAndWait()
		r.wire.set(nil)
		time.Sleep(2 * retryAfter)
		synctest.Wait()
		// The first two are taken over from n3 and n2, the failure notwithstanding.
		want := map[string]bool{mine: false, theirs: false, fresh: true}
		if diff := cmp.Diff(want, r.wire.first()); diff != "" {
			t.Errorf("first claims (-want +got):\n%s", diff)
		}
	})
}

// returns is what the wire was last told of returns for an address.
func (w *wire) returns(address string) int {
	for _, a := range w.Answering() {
		if a.Address.String() == address {
			return a.Returns
		}
	}
	return -1
}

func TestOwnersRepeatTheirAnnouncementWhenStrangersCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, mine)
		r.start(t)
		defer r.finish()
		n4 := plan.Member{Name: "n4"}
		told := r.wire.returns(mine)
		for _, step := range []struct {
			what   string
			edit   func(*plan.Snapshot)
			repeat bool
		}{
			{"nothing", func(*plan.Snapshot) {}, false},
			{"a member dies", lose("n2"), false},
			{"a new process, passive", func(s *plan.Snapshot) {
				s.Members = append(slices.Clone(s.Members), plan.Member{Name: "n2", Passive: true})
			}, false},
			{"it is ready", func(s *plan.Snapshot) {
				s.Members = slices.Clone(s.Members)
				s.Members[len(s.Members)-1].Passive = false
			}, false},
			{"one that was alive elsewhere", func(s *plan.Snapshot) { s.Members = append(slices.Clone(s.Members), n4) }, true},
			{"gossip knows of a return", func(s *plan.Snapshot) { s.Returns++ }, true},
		} {
			r.world.change(step.edit)
			r.kickAndWait()
			now := r.wire.returns(mine)
			if (now != told) != step.repeat {
				t.Errorf("%s: Returns went from %d to %d", step.what, told, now)
			}
			told = now
		}
	})
}
