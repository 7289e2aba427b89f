package announcer

import (
	"context"
	"fmt"
	"time"
)

const (
	// leaveWithin bounds a hand-over. Whoever has not taken over by then does
	// so when it sees that this announcer is gone.
	leaveWithin = 2 * time.Second

	// routersWithin bounds taking leave of the routers: the longest pause that
	// the configuration allows, and what goes with it: an FRR has to take two
	// configurations.
	routersWithin = 22 * time.Second

	// lookEvery is how often the speakers are asked whether they have handed
	// everything over.
	lookEvery = 20 * time.Millisecond
)

// leave ends without loss: the others learn that this announcer drains, their
// new owners announce, and the speakers here answer until they have seen it.
// What nobody else can announce is kept until the end, but not waited for.
// Meanwhile the routers are taken leave of, who take their time.
func (a *Announcer) leave(ctx context.Context) error {
	began := time.Now()
	a.draining = true
	a.o.Log.Info("leaving", "addresses", len(a.answering()))
	a.publish(a.last.Snapshot)
	routers := make(chan struct{})
	go func() {
		defer close(routers)
		ctx, cancel := context.WithTimeout(ctx, routersWithin)
		defer cancel()
		a.o.Router.Leave(ctx)
	}()
	defer func() { <-routers }()
	a.handOver(ctx, time.After(leaveWithin))
	left := len(a.answering())
	err := a.set(ctx, nil)
	a.o.Log.Info("left", "withdrawn", left, "took", time.Since(began))
	if err != nil {
		return fmt.Errorf("withdraw everything: %w", err)
	}
	return nil
}

// handOver goes on passing while somebody may still take something over.
func (a *Announcer) handOver(ctx context.Context, deadline <-chan time.Time) {
	a.pass(ctx)
	for a.awaited() {
		select {
		case <-deadline:
			return
		case <-a.kick:
			a.pass(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// awaited tells whether the speakers answer for anything that another node
// could announce.
func (a *Announcer) awaited() bool {
	answering := a.answering()
	for _, v := range a.last.Verdicts {
		_, ours := answering[v.Address]
		alone := v.Owner == "" || v.Owner == a.last.Snapshot.Node && v.Eligible == 1
		if ours && !alone {
			return true
		}
	}
	return false
}
