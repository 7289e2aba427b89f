package keeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/keeper"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// program is what a keeper keeps: it takes note of what is wanted, and takes
// leave in a minute.
type program struct {
	keeper *keeper.Keeper
	heard  chan keeper.Wish
}

func newProgram() *program {
	p := &program{heard: make(chan keeper.Wish, 100)}
	p.keeper = keeper.New(func(ctx context.Context) {
		for ctx.Err() == nil {
			wish := p.keeper.Wish()
			p.heard <- wish
			if wish.Ending {
				p.keeper.Wait(time.Minute)
				return
			}
			p.keeper.Wait(0)
		}
	})
	return p
}

func TestWhatIsWantedIsHeardUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		if p.keeper.Started() {
			t.Error("it runs before anything is asked")
		}
		p.keeper.Set([]plan.Peering{{ASN: 1}})
		synctest.Wait()
		p.keeper.Set([]plan.Peering{{ASN: 2}, {ASN: 3}})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		p.keeper.Leave(ctx)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the leave took %s", took)
		}
		p.keeper.Set(nil) // has no effect
		close(p.heard)
		var most []int
		for wish := range p.heard {
			most = append(most, len(wish.Peerings))
			if wish.Ending != !wish.Deadline.IsZero() || wish.Ending && !wish.Deadline.Equal(began.Add(time.Hour)) {
				t.Errorf("heard %+v", wish)
			}
		}
		if len(most) < 3 || most[len(most)-1] != 2 {
			t.Errorf("heard %v", most)
		}
	})
}

func TestEndsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		p.keeper.Set(nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		p.keeper.Leave(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the leave took %s", took)
		}
		p.keeper.Close() // does not wait for the minute
		if took := time.Since(began); took != time.Second {
			t.Errorf("the end took %s", took)
		}
		idle := newProgram()
		idle.keeper.Leave(t.Context())
		idle.keeper.Close()
		if len(idle.heard) > 0 {
			t.Error("what nobody has asked for anything runs")
		}
	})
}

func TestSessionsHaveTheTimeOfTheirState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper.New(nil)
		began := time.Now()
		k.Show(began, []bgp.Session{{Peer: "b", State: bgp.Idle}, {Peer: "a", State: bgp.Established}, {Peer: "b", State: bgp.Left}})
		later := began.Add(time.Minute)
		k.Show(later, []bgp.Session{{Peer: "b", State: bgp.Opening}, {Peer: "a", State: bgp.Established}, {Peer: "c"}})
		all := k.Sessions()
		if len(all) != 3 || all[0].Peer != "a" || !all[0].Since.Equal(began) || !all[1].Since.Equal(later) || !all[2].Since.Equal(later) || all[1].State != bgp.Opening {
			t.Errorf("got %+v", all)
		}
	})
}

// Whoever passes while the keeper is closed must not take it for a leave.
func TestACloseAsksForNothing(t *testing.T) {
	var at keeper.Wish
	var k *keeper.Keeper
	k = keeper.New(func(ctx context.Context) {
		<-ctx.Done()
		at = k.Wish()
	})
	k.Set([]plan.Peering{{}})
	k.Close()
	k.Set(nil)
	if now := k.Wish(); at.Ending || len(at.Peerings) != 1 || now.Ending || len(now.Peerings) != 1 {
		t.Errorf("asks for %+v, and then %+v", at, now)
	}
	k.Leave(t.Context()) // it has ended, and says so at once
}
