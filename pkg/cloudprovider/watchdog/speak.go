package watchdog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// fieldManager owns, in a Service's managedFields, what is written here.
const fieldManager = "ccm-baremetal-watchdog"

// turn speaks of one Service if it is time to, and returns how long to rest
// then.
func (w *Watchdog) turn(ctx context.Context) (time.Duration, error) {
	if w.wait(time.Now()) > 0 {
		return 0, nil
	}
	if len(w.pending) == 0 {
		w.pending = w.unaware()
	}
	if len(w.pending) == 0 {
		return lookEvery, nil
	}
	if !w.spoke {
		w.spoke = true
		w.o.Log.Warn("no announcer has been ready for a minute, services will say so", "daemonset", DaemonSet, "services", len(w.pending))
	}
	svc := w.pending[0]
	w.pending = w.pending[1:]
	rest := writeEvery
	if len(w.pending) == 0 {
		rest = lookEvery // until the write can be seen
	}
	return rest, w.tell(ctx, svc)
}

// unaware returns the Services that were not spoken of and do not say already
// what there is to say.
func (w *Watchdog) unaware() []*v1.Service {
	var out []*v1.Service
	for _, svc := range w.o.Services() {
		if !w.told[svc.UID] && !says(svc, w.condition()) {
			out = append(out, svc)
		}
	}
	return out
}

// condition is what Services are to say.
func (w *Watchdog) condition() metav1.Condition {
	return metav1.Condition{
		Type:   config.ConditionAnnounced,
		Status: metav1.ConditionUnknown,
		Reason: config.NoAnnouncer,
		Message: fmt.Sprintf("no announcer has been ready for a minute, so most likely nobody answers; why: kubectl --namespace %s describe daemonset %s, and its pods",
			w.o.Namespace, DaemonSet),
	}
}

func says(svc *v1.Service, want metav1.Condition) bool {
	c := announced(svc)
	return c != nil && c.Status == want.Status && c.Reason == want.Reason && c.Message == want.Message
}

func announced(svc *v1.Service) *metav1.Condition {
	return meta.FindStatusCondition(svc.Status.Conditions, config.ConditionAnnounced)
}

// tell writes the condition of a Service. What has changed meanwhile is looked
// at again; what the API server refuses it would refuse again. Any other error
// means that nothing is seen any more either.
func (w *Watchdog) tell(ctx context.Context, svc *v1.Service) error {
	body, err := patch(svc, w.condition(), time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, err = w.o.Client.CoreV1().Services(svc.Namespace).Patch(ctx, svc.Name, types.StrategicMergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	switch {
	case err == nil:
		w.told[svc.UID] = true
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		w.told[svc.UID] = true
		w.o.Log.Warn("a service cannot say that nobody announces it", "service", svc.Namespace+"/"+svc.Name, "err", err)
	default:
		return fmt.Errorf("write the condition of service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return nil
}

// patch returns the strategic merge patch of the status subresource that sets
// a condition, and nothing else. It carries the resourceVersion: an announcer
// that has written meanwhile is not to be contradicted.
func patch(svc *v1.Service, want metav1.Condition, now time.Time) ([]byte, error) {
	want.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	if was := announced(svc); was != nil && was.Status == want.Status {
		want.LastTransitionTime = was.LastTransitionTime
	}
	out, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": svc.UID, "resourceVersion": svc.ResourceVersion},
		"status":   map[string]any{"conditions": []any{want}},
	})
	if err != nil {
		return nil, fmt.Errorf("write the patch of service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return out, nil
}
