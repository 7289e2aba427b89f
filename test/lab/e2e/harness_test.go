package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/audit"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/expect"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// allocated is the type of the CCM's condition.
const allocated = "ccm-baremetal.io/Allocated"

// patience bounds every wait for what should take a second or two.
const patience = expect.Patience

// askEvery is the interval at which observers ask for an address.
const askEvery = 20 * time.Millisecond

// The words of package expect, which every line of these tests is full of.

func must(t *testing.T, err error) {
	t.Helper()
	expect.Must(t, err)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	return expect.Bounded(t)
}

func eventually(t *testing.T, what string, ok func(ctx context.Context) error) {
	t.Helper()
	expect.Eventually(t, what, ok)
}

func eventuallyWithin(t *testing.T, limit time.Duration, what string, ok func(ctx context.Context) error) {
	t.Helper()
	expect.Within(t, limit, what, ok)
}

// names returns the names of the lab's nodes.
func names() []string {
	var all []string
	for _, n := range cluster.Nodes() {
		all = append(all, n.Name)
	}
	return all
}

// serve runs a pod of app on each of the given nodes (none: on all) in a
// namespace of the test's own.
func serve(t *testing.T, namespace, app string, on ...string) []lab.Pod {
	t.Helper()
	if len(on) == 0 {
		on = names()
	}
	pods, err := cluster.RunPods(bounded(t), namespace, app, on...)
	must(t, err)
	t.Cleanup(func() {
		if err := cluster.DeletePods(context.Background(), pods...); err != nil {
			t.Error(err)
		}
	})
	return pods
}

// create creates a Service and deletes it after the test.
func create(t *testing.T, s *corev1.Service) *corev1.Service {
	t.Helper()
	made, err := cluster.CreateService(bounded(t), s)
	must(t, err)
	t.Cleanup(func() { remove(t, made) })
	return made
}

// remove deletes a Service, which may be gone already, and waits until the CCM
// has had a moment to see it.
func remove(t *testing.T, s *corev1.Service) {
	t.Helper()
	err := cluster.Client().CoreV1().Services(s.Namespace).Delete(context.Background(), s.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete service %s/%s: %v", s.Namespace, s.Name, err)
	}
}

// get reads a Service anew.
func get(t *testing.T, s *corev1.Service) *corev1.Service {
	t.Helper()
	now, err := cluster.Client().CoreV1().Services(s.Namespace).Get(bounded(t), s.Name, metav1.GetOptions{})
	must(t, err)
	return now
}

// patch changes a Service by a merge patch.
func patch(t *testing.T, s *corev1.Service, merge string) {
	t.Helper()
	_, err := cluster.Client().CoreV1().Services(s.Namespace).Patch(bounded(t), s.Name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
	must(t, err)
}

// address waits for the one address of a Service.
func address(t *testing.T, s *corev1.Service) netip.Addr {
	t.Helper()
	addrs, err := cluster.WaitIngress(bounded(t), s)
	must(t, err)
	if len(addrs) != 1 {
		t.Fatalf("service %s/%s has %v, want one address", s.Namespace, s.Name, addrs)
	}
	return addrs[0]
}

// serving is a Service with pods on all nodes, an address, and an observer that
// has heard its first answer.
func serving(t *testing.T, namespace string) (*corev1.Service, netip.Addr, *observe.Observation) {
	t.Helper()
	serve(t, namespace, "web")
	s := create(t, lab.LoadBalancer(namespace, "web", "web"))
	a := address(t, s)
	o := watch(t, a)
	reachable(t, a)
	return s, a, o
}

// reachable waits until a request through the address reaches a pod: the
// kube-proxies learn of it when the announcers do, and take longer.
func reachable(t *testing.T, a netip.Addr) {
	t.Helper()
	eventually(t, "a request through "+a.String()+" to be answered", func(ctx context.Context) error {
		_, err := cluster.Get(ctx, lab.Client, "http://"+netip.AddrPortFrom(a, 80).String()+"/")
		return err
	})
}

// watch observes an address from the client until the test ends, and returns
// when it has been answered for the first time.
func watch(t *testing.T, a netip.Addr) *observe.Observation {
	t.Helper()
	o := look(t, a)
	_, err := o.WaitReply(bounded(t), time.Time{})
	must(t, err)
	return o
}

// look observes an address from the client until the test ends.
func look(t *testing.T, a netip.Addr) *observe.Observation {
	t.Helper()
	w, err := cluster.Watch(lab.Client, askEvery, a)
	must(t, err)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w.Of(a)
}

// owner returns the host whose MAC answers. After a change it waits until one
// alone has answered for a second.
func owner(t *testing.T, o *observe.Observation) string {
	t.Helper()
	return single(t, o, time.Now().Add(-time.Second), healBound)
}

// silent fails the test if the address was answered since a time.
func silent(t *testing.T, o *observe.Observation, since time.Time) {
	t.Helper()
	if r := o.Replies(since, time.Now()); len(r) > 0 {
		t.Errorf("%d replies since %s, the first from %s\n%s", len(r), since.Format(time.TimeOnly), cluster.HostOf(r[0].MAC), o)
	}
}

// condition returns the CCM's condition on a Service, nil if there is none.
func condition(s *corev1.Service) *metav1.Condition {
	for i, c := range s.Status.Conditions {
		if c.Type == allocated {
			return &s.Status.Conditions[i]
		}
	}
	return nil
}

// waitReason waits for a reason of the condition and returns the Service then.
func waitReason(t *testing.T, s *corev1.Service, reason string) *corev1.Service {
	t.Helper()
	var now *corev1.Service
	eventually(t, fmt.Sprintf("reason %s on %s/%s", reason, s.Namespace, s.Name), func(context.Context) error {
		now = get(t, s)
		if c := condition(now); c == nil || c.Reason != reason {
			return fmt.Errorf("its condition is %+v", c)
		}
		return nil
	})
	return now
}

// events returns the messages of the events on an object.
func events(t *testing.T, namespace, name string) []string {
	t.Helper()
	list, err := cluster.Client().CoreV1().Events(namespace).List(bounded(t), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	must(t, err)
	var texts []string
	for _, e := range list.Items {
		texts = append(texts, e.Type+" "+e.Reason+": "+e.Message)
	}
	return texts
}

// waitEvent waits for an event on an object that has all parts in its text.
func waitEvent(t *testing.T, namespace, name string, parts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("an event on %s/%s with %q", namespace, name, parts), func(context.Context) error {
		all := events(t, namespace, name)
		if !slices.ContainsFunc(all, func(text string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
		}) {
			return fmt.Errorf("there are: %q", all)
		}
		return nil
	})
}

// held returns the addresses of all LoadBalancer Services of a namespace by
// their names.
func held(t *testing.T, namespace string) map[string]string {
	t.Helper()
	list, err := cluster.Client().CoreV1().Services(namespace).List(bounded(t), metav1.ListOptions{})
	must(t, err)
	found := map[string]string{}
	for _, s := range list.Items {
		for _, i := range s.Status.LoadBalancer.Ingress {
			found[s.Name] += i.IP + " "
		}
	}
	return found
}

// distinct fails the test unless there are n Services with an address and no
// two have the same.
func distinct(t *testing.T, found map[string]string, n int) {
	t.Helper()
	by := map[string]string{}
	for name, a := range found {
		if other, ok := by[a]; ok {
			t.Errorf("%s and %s both have %s", name, other, a)
		}
		by[a] = name
	}
	if len(found) != n {
		t.Errorf("%d Services have an address, want %d", len(found), n)
	}
}

// serviceWrites returns how many writes to Services the CCM has made since a
// time. What was refused is none: an announcer may write the other condition at
// the same moment, and then the CCM looks again.
func serviceWrites(t *testing.T, since time.Time) int {
	t.Helper()
	return len(serviceAttempts(t, since).Succeeded())
}

// serviceAttempts returns these writes, and those that were refused.
func serviceAttempts(t *testing.T, since time.Time) audit.Log {
	t.Helper()
	log, err := cluster.Audit(since)
	must(t, err)
	return log.User("kube-system/ccm-baremetal").Writes().Where(func(e audit.Event) bool { return e.Resource == "services" })
}

// unanswered returns the questions for an address since a time that had no
// answer. A machine that is busy takes its time to answer, and the observer to
// hear it: only what stays so counts.
func unanswered(o *observe.Observation, since time.Time) []observe.Question {
	end := time.Now().Add(-200 * time.Millisecond)
	lost := o.Unanswered(since, end)
	for deadline := time.Now().Add(3 * time.Second); len(lost) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		lost = o.Unanswered(since, end)
	}
	return lost
}

// written says what both programs have written since, Leases aside.
func written(since time.Time) error {
	log, err := cluster.Audit(since)
	if err != nil {
		return err
	}
	var all audit.Log
	for _, account := range []string{product.CCM, product.Announcer} {
		all = append(all, log.User(product.Namespace+"/"+account).Writes().Where(func(e audit.Event) bool { return e.Resource != "leases" })...)
	}
	if len(all) > 0 {
		return fmt.Errorf("written since %s:\n%s", since.Format(time.TimeOnly), all)
	}
	return nil
}

// calm waits until neither program has written anything for a time, Leases
// aside, and returns when that had passed: what is counted from then on is none
// of what was on its way before.
func calm(t *testing.T, length time.Duration) (end time.Time) {
	t.Helper()
	eventuallyWithin(t, 6*time.Minute, "nothing to be written for "+length.String(), func(context.Context) error {
		begin := time.Now()
		time.Sleep(length)
		end = time.Now()
		return written(begin)
	})
	return end
}
