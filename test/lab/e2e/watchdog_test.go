package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// No announcer is left to say that none is left: after a minute the CCM does,
// once for each Service, also for one that gets its address only then. The
// first announcer that is back has the last word.
func TestServicesSayThatNoAnnouncerIsLeft(t *testing.T) {
	atRest(t)
	serve(t, "watchdog", "web")
	svc := create(t, lab.LoadBalancer("watchdog", "web", "web"))
	vip := address(t, svc)
	saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", vip.String())
	readyAnnouncers(t, nodes)

	t.Cleanup(func() { keepAnnouncers(t) })
	began := time.Now()
	for _, n := range names() {
		must(t, installed.Announcer(n).Kill())
	}
	readyAnnouncers(t, 0)
	late := create(t, lab.LoadBalancer("watchdog", "late", "web"))
	address(t, late)
	saysAnnounced(t, svc, metav1.ConditionUnknown, "NoAnnouncer", "describe daemonset announcer")
	if took := time.Since(began); took < time.Minute {
		t.Errorf("said after %s", took)
	}
	saysAnnounced(t, late, metav1.ConditionUnknown, "NoAnnouncer", "describe daemonset announcer")
	time.Sleep(5 * time.Second)

	back := names()[0]
	_, err := installed.StartAnnouncer(back)
	must(t, err)
	saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s", vip, back))
	saysAnnounced(t, late, metav1.ConditionTrue, "Layer2", "from "+back)
	log, err := cluster.Audit(began)
	must(t, err)
	// Of the CCM: the address of the late one, and both conditions.
	writes := log.User(product.Namespace + "/" + product.CCM).Writes().On("services/status").Succeeded()
	if len(writes) != 3 {
		t.Errorf("the CCM wrote\n%s", writes)
	}
	keepAnnouncers(t)
	whole(t)
	readyAnnouncers(t, nodes)
}

// keepAnnouncers starts the announcers that do not run, as kubelets would.
func keepAnnouncers(t *testing.T) {
	t.Helper()
	for _, n := range names() {
		if !installed.Announcer(n).Running() {
			_, err := installed.StartAnnouncer(n)
			must(t, err)
		}
	}
}

// readyAnnouncers waits until so many pods of the announcers count as ready.
func readyAnnouncers(t *testing.T, want int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d announcers are ready", want), func(ctx context.Context) error { return countReady(ctx, want) })
}

// countReady returns an error unless so many pods of the announcers count as
// ready.
func countReady(ctx context.Context, want int32) error {
	set, err := cluster.Client().AppsV1().DaemonSets(product.Namespace).Get(ctx, product.Announcer, metav1.GetOptions{})
	if err == nil && (set.Status.NumberReady != want || set.Status.DesiredNumberScheduled != nodes) {
		err = fmt.Errorf("of %d announcers %d are ready, not %d", set.Status.DesiredNumberScheduled, set.Status.NumberReady, want)
	}
	return err
}
