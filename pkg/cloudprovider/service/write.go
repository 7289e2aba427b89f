package service

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/eventtext"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

// FieldManager owns, in a Service's managedFields, what this controller wrote.
const FieldManager = "ccm-baremetal"

const writeTimeout = 10 * time.Second

// An outcome is what became of a write.
type outcome string

// The outcomes, as they appear in the metric. Changing one is an API change.
const (
	written     outcome = "ok"
	conflict    outcome = "conflict"    // the Service has changed meanwhile
	gone        outcome = "gone"        // the API server says that there is no such Service
	refused     outcome = "refused"     // no right to do so, or the API server finds it wrong
	unreachable outcome = "unreachable" // whether it was made is not known
	withheld    outcome = "withheld"    // this process only observes
)

func outcomes() []outcome {
	return []outcome{written, conflict, gone, refused, unreachable, withheld}
}

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return written
	case errors.Is(err, rehearse.ErrWithheld):
		return withheld
	case apierrors.IsConflict(err):
		return conflict
	case apierrors.IsNotFound(err):
		return gone
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		return refused
	}
	return unreachable
}

// writeAll makes the writes it is given.
func (c *Controller) writeAll(ctx context.Context) {
	for w := range c.writes {
		c.write(ctx, w)
		c.queue.Done(keyOf(w.svc))
	}
}

func (c *Controller) write(ctx context.Context, w write) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := keyOf(w.svc)
	fresh, err := c.client.CoreV1().Services(w.svc.Namespace).Patch(ctx, w.svc.Name, types.StrategicMergePatchType,
		w.patch, metav1.PatchOptions{FieldManager: FieldManager}, "status")
	o := outcomeOf(err)
	if o == gone && c.refresh(ctx, w.svc) {
		o = refused // by a webhook or a proxy that answers so
	}
	c.counts.patch(o)
	switch o {
	case written:
		c.wrote(w, fresh)
		return
	case withheld:
		c.queue.Forget(key) // what was decided stays kept for it, as if it had been written
		return
	case conflict:
		c.refresh(ctx, w.svc)
		c.queue.AddRateLimited(key)
	case refused:
		c.refuse(key)
	case gone, unreachable:
		// A Service counts as gone when the informer says so, and not before:
		// an answer that is wrong must cost nobody an address.
		c.queue.AddRateLimited(key)
	}
	c.tellTrouble(w.svc, o, err)
}

// tellTrouble tells why a status is not written. What stands in its way for
// long is told again now and then, however often that is tried.
func (c *Controller) tellTrouble(svc *v1.Service, o outcome, err error) {
	key, what := keyOf(svc), string(o)
	if o == refused {
		what = err.Error()
	}
	if !c.fails.isNews(key, what, time.Now()) {
		return
	}
	c.log.Warn("status of a service not written", "service", key, "outcome", string(o), "err", err)
	if o == refused {
		c.events.Event(svc, v1.EventTypeWarning, reasonNotWritten, eventtext.Limit("the API server refuses the status of this Service: "+what))
	}
}

// wrote records a write that was made, and tells what is new.
func (c *Controller) wrote(w write, fresh *v1.Service) {
	key := keyOf(w.svc)
	fresh.SetManagedFields(nil)
	c.reads.put(fresh)
	c.queue.Forget(key)
	c.fails.forget(key)
	if w.want.condition == nil {
		c.queue.Add(key) // it holds nothing any more, and is to be forgotten
	}
	for _, e := range w.news {
		if e.reason == reasonDuplicate {
			c.counts.duplicates.Add(1)
		}
	}
	c.tell(w.svc, w.news)
	c.gave(w)
	if n := c.pace.wrote(key, w.want.String(), time.Now()); n > 0 {
		c.counts.repairs.Add(1)
		if n == fightAt {
			c.events.Event(w.svc, v1.EventTypeWarning, reasonOverwritten,
				"something else keeps changing the status of this Service; it is put right again at growing intervals")
		}
	}
	c.log.Info("status of a service written", "service", key, "status", w.want.String())
}

// gave looks at the addresses that a Service did not have before a write.
func (c *Controller) gave(w write) {
	if w.want.condition == nil || w.want.condition.Status != metav1.ConditionTrue {
		return
	}
	before := held(w.svc)
	var given []netip.Addr
	for _, confirmed := range config.Confirmed(w.want.condition.Message) {
		if !slices.Contains(before, confirmed.Address) {
			given = append(given, confirmed.Address)
		}
	}
	c.tell(w.svc, externalConflicts(w.svc, given, c.informed.GetIndexer()))
	if since, waited := c.births.take(keyOf(w.svc)); waited && len(given) > 0 {
		c.latency.Observe(time.Since(since).Seconds())
	}
}

// refresh looks at a Service that has changed, so that the next pass need not
// wait for the informer, and tells whether it is there for certain.
func (c *Controller) refresh(ctx context.Context, svc *v1.Service) bool {
	fresh, err := c.client.CoreV1().Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		fresh.SetManagedFields(nil)
		c.reads.put(fresh)
		return fresh.UID == svc.UID
	case apierrors.IsForbidden(err):
		c.log.Warn("cannot look at a changed service, waiting to be told of it", "service", keyOf(svc), "err", err)
	default:
		c.log.Debug("look at a changed service", "service", keyOf(svc), "err", err)
	}
	return false
}

// refuse has the answer taken back by the goroutine that decides.
func (c *Controller) refuse(key ipam.Key) {
	c.mu.Lock()
	c.refused[key] = struct{}{}
	c.mu.Unlock()
	c.queue.Add(key)
}
