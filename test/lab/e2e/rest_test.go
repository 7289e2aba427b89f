package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

const (
	// restWithin bounds the wait for what the test before has caused. What has not
	// come to rest by then most likely never will, and the next test waits for it
	// restBriefly.
	restWithin  = 3 * time.Minute
	restBriefly = 5 * time.Second

	// still is how long neither program must have written anything, and aLeader
	// how long ago one must have renewed its Lease at most.
	still   = time.Second
	aLeader = 6 * time.Second
)

// former is the test that has run before.
var former struct {
	name     string
	failed   bool
	restless bool // not even its beginning was at rest
}

// atRest is what every test begins with that uses the shared installation. It
// waits until nothing is left of the tests before: all programs run and agree on
// the shared document, one CCM leads, every announcer sees all others in order,
// there are no Services but those of the cluster and no Nodes but those of the
// lab, and nothing is being written. What can be mended is mended. If it does
// not come to that, the log of the test says what is the matter, and the test
// goes on: what it says then is the second thing to read.
func atRest(t *testing.T) {
	t.Helper()
	r := resting{t: t, after: cmp.Or(former.name, "the installation"), failed: former.failed, began: time.Now()}
	limit := restWithin
	if former.restless {
		limit = restBriefly
	}
	former.name, former.failed, former.restless = t.Name(), true, false
	t.Cleanup(func() { former.failed = t.Failed() })
	if r.failed {
		mend(t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if first, last := r.wait(ctx); last != nil {
		former.restless = true
		t.Logf("after %s it does not come to rest within %s: %v", r.after, limit, last)
	} else if took := time.Since(r.began); took > 2*still {
		t.Logf("at rest %.1f s after %s; at first: %v", took.Seconds(), r.after, first)
	}
}

// resting is the wait for that.
type resting struct {
	t      *testing.T
	after  string // the test before
	failed bool   // that has failed
	began  time.Time
}

// wait waits until everything is at rest. It returns what was not at first, and
// what is not when ctx ends.
func (r resting) wait(ctx context.Context) (first, last error) {
	r.t.Helper()
	for {
		err := r.look(ctx)
		if err == nil {
			return first, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // not that ctx has ended
		}
		if first == nil {
			first = err
		}
		select {
		case <-ctx.Done():
			return first, last
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// look says what is not at rest, nil if everything is.
func (r resting) look(ctx context.Context) error {
	r.t.Helper()
	r.startEnded()
	for _, look := range []func(context.Context) error{
		nothingLeft, r.sharedDocument, oneLeads, podsAreReady, announcersAgree,
		func(context.Context) error { return written(time.Now().Add(-still)) },
	} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startEnded starts the programs that do not run, as kubelets would. A CCM ends
// when it has lost its Lease. What ends for no such reason fails the test, unless
// a test that has failed may be to blame.
func (r resting) startEnded() {
	r.t.Helper()
	for i := range 2 {
		if p := installed.CCM(i); !p.Running() {
			if crashed(p) {
				r.t.Errorf("%s has crashed after %s:\n%s", p.Name, r.after, lastWords(p, 100))
			}
			_, err := installed.StartCCM(i)
			r.t.Logf("the CCM number %d did not run after %s, and is started: %v", i, r.after, err)
		}
	}
	for _, n := range names() {
		if p := installed.Announcer(n); !p.Running() {
			if !r.failed || crashed(p) {
				r.t.Errorf("the announcer on %s has ended after %s:\n%s", n, r.after, lastWords(p, 100))
			}
			_, err := installed.StartAnnouncer(n)
			r.t.Logf("the announcer on %s is started: %v", n, err)
		}
	}
}

// crashed tells whether a program that has ended was in a panic.
func crashed(p *lab.Process) bool {
	words := lastWords(p, 300)
	return strings.Contains(words, "\npanic: ") || strings.Contains(words, "\nfatal error: ")
}

// lastWords are the last lines that a program has printed.
func lastWords(p *lab.Process, n int) string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// nothingLeft finds Services and Nodes that a test has left, and what it has
// done to the Nodes of the lab.
func nothingLeft(ctx context.Context) error {
	services, err := cluster.Client().CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range services.Items {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 || condition(&s) != nil {
			return fmt.Errorf("there is Service %s/%s: %+v", s.Namespace, s.Name, s.Status)
		}
	}
	list, err := cluster.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var found []string
	for _, n := range list.Items {
		found = append(found, n.Name)
		if n.Annotations[drainAnnotation] == "true" || len(n.Spec.Taints) > 0 || n.Labels[corev1.LabelNodeExcludeBalancers] != "" {
			return fmt.Errorf("node %s has the annotations %v, labels %v and taints %v", n.Name, n.Annotations, n.Labels, n.Spec.Taints)
		}
	}
	if !sameNames(found, names()) {
		return fmt.Errorf("there are the Nodes %v", found)
	}
	return nil
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// lenient is the shared document, which moreover may take away what is held. A
// CCM that has not yet seen Services go would refuse to take their pool away, and
// go on doing so until the document is another one.
var lenient = strings.Replace(document, "pools:\n", "services: {allowMassChange: true}\npools:\n", 1)

// sharedDocument says whether the shared document is not in force. After two
// seconds it is put in force anew.
func (r resting) sharedDocument(ctx context.Context) error {
	late := time.Since(r.began) > 2*time.Second
	var text [2]string
	for i, name := range []string{product.ConfigMap, product.Accepted} {
		m, err := cluster.Client().CoreV1().ConfigMaps(product.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		text[i] = m.Data[product.ConfigKey]
	}
	switch wanted, accepted := text[0], text[1]; {
	case wanted == document && accepted == document:
		return nil
	case wanted != lenient && accepted != lenient && late:
		if err := installed.Configure(ctx, lenient); err != nil {
			return err
		}
	case wanted == lenient && accepted == lenient:
		if err := installed.Configure(ctx, document); err != nil {
			return err
		}
	}
	return fmt.Errorf("wanted is\n%s\nand in force is\n%s", text[0], text[1])
}

// oneLeads says whether no CCM leads.
func oneLeads(ctx context.Context) error {
	lease, err := cluster.Client().CoordinationV1().Leases(product.Namespace).Get(ctx, product.Lease, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case leader() == nil:
		return fmt.Errorf("no CCM leads")
	case lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > aLeader:
		return fmt.Errorf("the Lease of the CCMs was renewed at %v", lease.Spec.RenewTime)
	}
	return nil
}

// podsAreReady says whether a pod of the announcers does not count as ready.
func podsAreReady(ctx context.Context) error { return countReady(ctx, nodes) }

// announcersAgree says what an announcer sees that is not as it should be.
func announcersAgree(ctx context.Context) error {
	configs := map[string][]string{} // who acts on which
	for _, n := range names() {
		page, err := debug(ctx, n)
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		if err := page.idle(configs); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	if len(configs) != 1 {
		return fmt.Errorf("the announcers act on different configurations: %v", configs)
	}
	return nil
}

// mend undoes what a test that has failed may have left: cut hosts, paused or
// ended programs, drained nodes and Services. What it cannot do it logs.
func mend(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	try := func(what string, err error) {
		if err != nil {
			t.Logf("after a failed test: %s: %v", what, err)
		}
	}
	try("heal", cluster.Heal(ctx, names()...))
	try("start etcd and the API server", startControlPlane(ctx))
	for _, p := range cluster.Processes() {
		if p.Running() {
			try("resume", p.Signal(syscall.SIGCONT))
		}
	}
	for _, n := range names() {
		try("undrain", cluster.EditNode(ctx, n, func(n *corev1.Node) { delete(n.Annotations, drainAnnotation) }))
	}
	services, err := cluster.Client().CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if try("list Services", err); err != nil {
		return
	}
	for _, s := range services.Items {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Namespace != metav1.NamespaceDefault {
			try("delete a Service", cluster.Client().CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
		}
	}
}

// startControlPlane starts what does not run of etcd and the API server.
func startControlPlane(ctx context.Context) error {
	for _, part := range []struct {
		name  string
		start func(context.Context) error
	}{{"etcd", cluster.StartEtcd}, {"kube-apiserver", cluster.StartAPI}} {
		if p, ok := cluster.Process(lab.ControlPlane, part.name); ok && p.Running() {
			continue
		}
		if err := part.start(ctx); err != nil {
			return err
		}
	}
	return nil
}
