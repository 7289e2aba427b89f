package service

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// A write is one patch that has to be made, and what to tell when it is.
type write struct {
	svc   *v1.Service
	want  status
	patch []byte
	news  []event

	reassigned bool // it moves by the rule of a pool, and has to wait for its turn
}

// decideAll looks at one queued key after the other, until the queue shuts
// down. It alone makes decisions, so that they have an order.
func (c *Controller) decideAll(ctx context.Context) {
	defer close(c.writes)
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		w := c.look(key, time.Now())
		if w == nil {
			c.queue.Done(key)
			continue
		}
		select {
		case c.writes <- *w: // the writer says Done
		case <-ctx.Done():
			c.queue.Done(key)
		}
	}
}

// look deals with one key of the queue, and then queues the waiting Services
// that have profited: what became free is kept for them already. It returns a
// write that has to be made, nil if none.
func (c *Controller) look(key ipam.Key, now time.Time) *write {
	defer func() {
		for _, waiting := range c.balancer.Wake() {
			c.queue.Add(waiting)
		}
	}()
	if key == world {
		c.configure()
		for _, svc := range c.list() {
			c.queue.Add(keyOf(svc))
		}
		return nil
	}
	svc := c.reads.get(key)
	if svc == nil {
		c.balancer.Release(key, now)
		c.pace.forget(key)
		c.turns.forget(key)
		c.births.take(key)
		c.fails.forget(key)
		c.takeRefused(key)
		c.queue.Forget(key)
		return nil
	}
	if c.takeRefused(key) {
		c.balancer.Revert(svc, now)
		c.queue.AddRateLimited(key)
		return nil
	}
	return c.pass(svc, now)
}

// pass decides about one Service. No write is needed most of the time.
func (c *Controller) pass(svc *v1.Service, now time.Time) *write {
	key := keyOf(svc)
	w, stays := c.decide(svc, now)
	var err error
	if w.patch, err = patch(svc, w.want); err != nil {
		c.log.Error("cannot write down a decision", "service", key, "err", err)
		return nil
	}
	if !stays && (w.patch == nil || allocated(svc) == nil || len(held(svc)) == 0) {
		c.balancer.Release(key, now) // else when the write has been made
	}
	if !w.reassigned {
		c.turns.forget(key)
	}
	if w.patch == nil {
		c.queue.Forget(key)
		c.fails.forget(key)
		return nil
	}
	if pause := c.pause(key, w, now); pause > 0 {
		c.queue.AddAfter(key, pause)
		return nil
	}
	return &w
}

// pause returns how long a write has to wait: because it moves a Service by
// the rule of a pool, or because it repeats what somebody else has undone.
func (c *Controller) pause(key ipam.Key, w write, now time.Time) time.Duration {
	pause := c.pace.pause(key, w.want.String(), now)
	if w.reassigned {
		c.mu.Lock()
		interval := c.config.Services.ReassignInterval
		c.mu.Unlock()
		pause = max(pause, c.turns.pause(key, interval, now))
	}
	return pause
}

// decide returns what the status of a Service is to become, and whether the
// Service may hold an address at all.
func (c *Controller) decide(svc *v1.Service, now time.Time) (w write, stays bool) {
	key := keyOf(svc)
	ours, err := c.balancer.Ours(svc)
	if err != nil {
		panic(fmt.Sprintf("decide about %s before restore: %v", key, err))
	}
	leaving := svc.DeletionTimestamp != nil
	switch {
	case leaving && ours:
		return write{svc: svc, want: departing(svc)}, c.balancer.Assigned(key) != nil
	case leaving:
		return write{svc: svc, want: untouched(svc)}, true
	case !ours:
		c.births.take(key)
		want := abandoned(svc, c.balancer.Assigned(key))
		return write{svc: svc, want: want, news: farewell(svc)}, false
	}
	answer, err := c.balancer.Decide(svc, now)
	if err != nil {
		panic(fmt.Sprintf("decide about %s before restore: %v", key, err))
	}
	c.counts.decided(answer.Reason)
	want := granted(svc, answer.Decision, now)
	return write{svc: svc, want: want, news: news(svc, want, answer), reassigned: answer.Reassigned}, true
}

// takeRefused tells, once, whether the last write of a Service was refused.
func (c *Controller) takeRefused(key ipam.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, refused := c.refused[key]
	delete(c.refused, key)
	return refused
}
