package main

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// An API server takes a patch with an empty UID for one of whatever Service has
// the name, so a Service that is not known any more must not be written.
func TestNoConditionOfAServiceThatIsNotKnown(t *testing.T) {
	sink := conditionSink{world: &source.World{}} // without a client: a request would panic
	err := sink.write(t.Context(), "shop/web", status.Condition{}, status.Condition{Status: "True", Reason: status.AnnouncedByLayer2})
	if !apierrors.IsNotFound(err) {
		t.Errorf("it says %v, want that there is no such Service", err)
	}
}
