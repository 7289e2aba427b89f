// Package watchdog says of Services that nobody announces them when no
// announcer has been ready for a minute: then nobody else is there to say so.
//
// It goes by the status of the announcers' DaemonSet. Whatever is not known is
// no silence: neither a DaemonSet that does not exist nor an API server that
// cannot be reached makes it speak. It speaks once of each Service for as long
// as the silence lasts: whoever says something else afterwards is an announcer
// that lives, and knows better.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// DaemonSet is the name of the announcers' DaemonSet. Changing it is an API
// change.
const DaemonSet = "announcer"

const (
	answerWithin = 10 * time.Second // a single request
	watchFor     = 10 * time.Minute // then the DaemonSet is read anew

	// A pause lies before each new reading, which doubles while reading fails.
	retryFirst = time.Second
	retryLast  = time.Minute

	// While it is silent, Services are written ten a second, and looked for
	// that have got an address since. At all other times nothing is looked at.
	writeEvery = 100 * time.Millisecond
	lookEvery  = 2 * time.Second
)

// Options are what a Watchdog is made of. All are required.
type Options struct {
	Client    kubernetes.Interface
	Namespace string // of the DaemonSet

	// Services returns the Services that ought to be announced, in the order
	// in which they are to be written. It must not block; what it returns is
	// not modified.
	Services func() []*v1.Service

	Log *slog.Logger
}

// A Watchdog looks after the announcers. Its state belongs to Run.
type Watchdog struct {
	o Options

	silence silence
	told    map[types.UID]bool // Services that were spoken of, in this silence
	pending []*v1.Service      // those to be spoken of next

	spoke  bool   // the log says that there is silence
	absent bool   // the log says that there is no DaemonSet
	said   string // the trouble that the log speaks of
}

// New returns a Watchdog, which Run sets to work.
func New(o Options) *Watchdog {
	return &Watchdog{o: o, told: map[types.UID]bool{}}
}

// Run watches until ctx ends.
func (w *Watchdog) Run(ctx context.Context) {
	pause := retryFirst
	for ctx.Err() == nil {
		if err := w.observe(ctx); err == nil {
			pause = retryFirst
		} else {
			w.lose(err)
			pause = min(2*pause, retryLast)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// observe reads the DaemonSet and watches it until the watch ends, which is no
// interruption if it can be read again. An error is one.
func (w *Watchdog) observe(ctx context.Context) error {
	list, err := w.list(ctx)
	if err != nil {
		return err
	}
	o := w.only()
	seconds := int64(watchFor.Seconds())
	o.ResourceVersion, o.TimeoutSeconds = list.ResourceVersion, &seconds
	events, err := w.o.Client.AppsV1().DaemonSets(w.o.Namespace).Watch(ctx, o)
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.name(), err)
	}
	defer events.Stop()
	w.said = ""
	if len(list.Items) == 0 {
		w.lack()
	}
	for i := range list.Items {
		w.see(&list.Items[i], time.Now())
	}
	return w.follow(ctx, events.ResultChan())
}

func (w *Watchdog) list(ctx context.Context) (*appsv1.DaemonSetList, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	list, err := w.o.Client.AppsV1().DaemonSets(w.o.Namespace).List(ctx, w.only())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", w.name(), err)
	}
	return list, nil
}

// only selects the one DaemonSet, which is all that there is a right to see.
func (w *Watchdog) only() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, DaemonSet).String()}
}

func (w *Watchdog) name() string { return "daemonset " + w.o.Namespace + "/" + DaemonSet }

// follow lets events in, and speaks when it is time to, until the watch ends.
func (w *Watchdog) follow(ctx context.Context, events <-chan watch.Event) error {
	var rest time.Duration // since the last turn; what has happened meanwhile comes first
	for {
		timer := time.NewTimer(max(rest, w.wait(time.Now())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case e, ok := <-events:
			timer.Stop()
			if !ok || e.Type == watch.Error {
				return nil
			}
			w.hear(e)
		case <-timer.C:
			var err error
			if rest, err = w.turn(ctx); err != nil {
				return err
			}
		}
	}
}

// wait returns how long there is nothing to do.
func (w *Watchdog) wait(now time.Time) time.Duration {
	at, silent := w.silence.due()
	if !silent {
		return watchFor
	}
	return at.Sub(now)
}

func (w *Watchdog) hear(e watch.Event) {
	set, ok := e.Object.(*appsv1.DaemonSet)
	switch {
	case e.Type == watch.Deleted:
		w.lack()
	case ok:
		w.see(set, time.Now())
	}
}

// see takes in the state of the DaemonSet.
func (w *Watchdog) see(set *appsv1.DaemonSet, now time.Time) {
	w.absent = false
	w.silence = w.silence.after(sight{wanted: set.Status.DesiredNumberScheduled, ready: set.Status.NumberReady}, now)
	if _, silent := w.silence.due(); silent {
		return
	}
	if w.spoke {
		w.o.Log.Info("an announcer is ready again", "daemonset", DaemonSet, "ready", set.Status.NumberReady)
	}
	w.spoke, w.pending = false, nil
	clear(w.told)
}

// lack takes in that there is no DaemonSet: announcers may run in another way.
func (w *Watchdog) lack() {
	if !w.absent {
		w.o.Log.Info("there is no such daemonset, so whether announcers run is not known", "namespace", w.o.Namespace, "daemonset", DaemonSet)
	}
	w.absent = true
	w.unknown()
}

// lose takes in that nothing can be seen.
func (w *Watchdog) lose(err error) {
	w.unknown()
	if errors.Is(err, context.Canceled) || err.Error() == w.said {
		return
	}
	w.said = err.Error()
	w.o.Log.Warn("cannot look after the announcers, will retry", "err", err)
}

// unknown ends the silence, but not what is known of what was said in it: that
// it was a new one is not known either.
func (w *Watchdog) unknown() { w.silence, w.pending = silence{}, nil }
