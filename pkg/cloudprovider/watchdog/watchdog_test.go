package watchdog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const namespace = "kube-system"

// A cluster is a Watchdog in a bubble, with the API server faked.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	log    bytes.Buffer

	mu      sync.Mutex
	refusal error // answers patches
	down    bool  // nothing is answered
	patches []patched
}

type patched struct {
	service string
	at      time.Time
}

// inBubble runs a test with a DaemonSet of three pods, of which so many are
// ready (less than 0: without one), and with Services that are announced.
func inBubble(t *testing.T, ready int32, services int, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, client: fake.NewClientset()}
		if ready >= 0 {
			if _, err := c.client.AppsV1().DaemonSets(namespace).Create(t.Context(), daemonSet(3, ready), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range services {
			c.create(fmt.Sprintf("s%03d", i))
		}
		c.client.PrependReactor("*", "*", c.answer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			New(Options{Client: c.client, Namespace: namespace, Services: c.services, Log: slog.New(slog.NewTextHandler(&c.log, nil))}).Run(ctx)
		}()
		test(c)
		cancel()
		<-done
	})
}

func daemonSet(wanted, ready int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "announcer"},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: wanted, NumberReady: ready},
	}
}

func service(name string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Status: v1.ServiceStatus{Conditions: []metav1.Condition{
			{Type: "ccm-baremetal.io/Allocated", Status: metav1.ConditionTrue, Reason: "Allocated"},
			{Type: "ccm-baremetal.io/Announced", Status: metav1.ConditionTrue, Reason: "Layer2"},
		}},
	}
}

// answer stands before the fake's own answers.
func (c *cluster) answer(a clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := a.GetResource().Resource
	if c.down && (resource != "services" || a.GetVerb() != "list") { // Services are known from memory
		return true, nil, errors.New("connection refused")
	}
	p, ok := a.(clienttesting.PatchAction)
	if !ok || resource != "services" {
		return false, nil, nil
	}
	c.patches = append(c.patches, patched{p.GetName(), time.Now()})
	return c.refusal != nil, nil, c.refusal
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// services is what the service controller would name.
func (c *cluster) services() []*v1.Service {
	list, err := c.client.CoreV1().Services("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var out []*v1.Service
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

func (c *cluster) create(name string) {
	c.t.Helper()
	if _, err := c.client.CoreV1().Services("web").Create(context.Background(), service(name), metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// announcers sets how many pods there are to be, and how many are ready.
func (c *cluster) announcers(wanted, ready int32) {
	c.t.Helper()
	if _, err := c.client.AppsV1().DaemonSets(namespace).Update(context.Background(), daemonSet(wanted, ready), metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// overwrite writes the condition of a Service as an announcer would.
func (c *cluster) overwrite(name string) {
	c.t.Helper()
	if _, err := c.client.CoreV1().Services("web").UpdateStatus(context.Background(), service(name), metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// passes lets time pass, and everything come to rest.
func (c *cluster) passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// written returns the Services that a patch was tried of since the last call.
func (c *cluster) written() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, p := range c.patches {
		out = append(out, p.service)
	}
	c.patches = nil
	return out
}

func (c *cluster) wantWritten(when string, want ...string) {
	c.t.Helper()
	if got := c.written(); !slices.Equal(got, want) {
		c.t.Errorf("%s: written %v, want %v", when, got, want)
	}
}

func (c *cluster) wantLogged(text string, times int) {
	c.t.Helper()
	if n := strings.Count(c.log.String(), text); n != times {
		c.t.Errorf("%q is logged %d times, want %d:\n%s", text, n, times, c.log.String())
	}
}

func TestServicesSaySoAfterAMinuteOfSilence(t *testing.T) {
	inBubble(t, 3, 2, func(c *cluster) {
		c.passes(time.Hour)
		c.announcers(3, 0)
		c.passes(59 * time.Second)
		c.wantWritten("before the minute is over")
		c.passes(10 * time.Second)
		c.wantWritten("after it", "s000", "s001")
		for _, svc := range c.services() {
			if got := fmt.Sprintf("%s %s, %s %s %s", svc.Status.Conditions[0].Type, svc.Status.Conditions[0].Status,
				svc.Status.Conditions[1].Type, svc.Status.Conditions[1].Status, svc.Status.Conditions[1].Reason); len(svc.Status.Conditions) != 2 ||
				got != "ccm-baremetal.io/Allocated True, ccm-baremetal.io/Announced Unknown NoAnnouncer" {
				t.Errorf("%s says %s", svc.Name, got)
			}
			announced := svc.Status.Conditions[1]
			if !strings.Contains(announced.Message, "kubectl --namespace kube-system describe daemonset announcer") {
				t.Errorf("%s does not say what to do: %s", svc.Name, announced.Message)
			}
			if since := time.Since(announced.LastTransitionTime.Time); since < 0 || since > 20*time.Second {
				t.Errorf("%s says so since %s", svc.Name, announced.LastTransitionTime)
			}
		}
		c.create("s002")
		c.passes(10 * time.Second)
		c.wantWritten("a Service that has got its address now", "s002")
		c.passes(20 * time.Minute)
		c.wantWritten("at rest")
		c.announcers(3, 1)
		for _, name := range []string{"s000", "s001", "s002"} {
			c.overwrite(name)
		}
		c.create("s003")
		c.passes(time.Hour)
		c.wantWritten("once an announcer is ready")
		c.wantLogged("no announcer has been ready", 1)
		c.wantLogged("an announcer is ready again", 1)
		c.announcers(3, 0)
		c.passes(59 * time.Second)
		c.wantWritten("before the next minute is over")
		c.passes(10 * time.Second)
		c.wantWritten("after the next", "s000", "s001", "s002", "s003")
	})
}

func TestMomentOfReadinessBeginsTheMinuteAnew(t *testing.T) {
	inBubble(t, 0, 1, func(c *cluster) {
		c.passes(50 * time.Second)
		c.announcers(3, 1)
		c.announcers(3, 0)
		c.passes(59 * time.Second)
		c.wantWritten("before the second minute is over")
		c.passes(5 * time.Second)
		c.wantWritten("after it", "s000")
	})
}

func TestUnknownIsNoSilence(t *testing.T) {
	t.Run("no daemonset", func(t *testing.T) {
		inBubble(t, -1, 1, func(c *cluster) {
			c.passes(24 * time.Hour)
			c.wantWritten("in a day")
			c.wantLogged("level=INFO", 1)
			c.wantLogged("level=WARN", 0)
		})
	})
	t.Run("daemonset deleted", func(t *testing.T) {
		inBubble(t, 0, 1, func(c *cluster) {
			c.passes(50 * time.Second)
			if err := c.client.AppsV1().DaemonSets(namespace).Delete(t.Context(), "announcer", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			c.passes(time.Hour)
			c.wantWritten("in an hour")
		})
	})
	t.Run("no pods wanted", func(t *testing.T) {
		inBubble(t, 0, 1, func(c *cluster) {
			c.announcers(0, 0)
			c.passes(time.Hour)
			c.wantWritten("in an hour")
		})
	})
}

// When an API server is away, the first write notices; the minute begins anew
// when it is back.
func TestOutageOfTheAPIBeginsTheMinuteAnew(t *testing.T) {
	inBubble(t, 0, 1, func(c *cluster) {
		c.passes(50 * time.Second)
		c.set(func() { c.down = true })
		c.passes(10 * time.Minute)
		c.wantLogged("connection refused", 2) // to write, and then to read
		c.set(func() { c.down = false })
		c.passes(59 * time.Second)
		c.wantWritten("within the minute")
		c.passes(2 * time.Minute)
		c.wantWritten("after it", "s000")
	})
}

// Whoever writes the condition after us is an announcer that lives although
// its pod does not count as ready.
func TestAnnouncerThatLivesHasTheLastWord(t *testing.T) {
	inBubble(t, 0, 1, func(c *cluster) {
		c.passes(65 * time.Second)
		c.wantWritten("after a minute", "s000")
		c.overwrite("s000")
		c.passes(time.Hour)
		c.wantWritten("after it was contradicted")
	})
}

func TestConflictIsLookedAtAgain(t *testing.T) {
	inBubble(t, 0, 1, func(c *cluster) {
		c.set(func() { c.refusal = apierrors.NewConflict(v1.Resource("services"), "s000", errors.New("changed")) })
		c.passes(61 * time.Second)
		c.wantWritten("in conflict", "s000")
		c.set(func() { c.refusal = nil })
		c.passes(time.Minute)
		c.wantWritten("after it", "s000")
		c.wantLogged("level=WARN", 1) // that there is silence
	})
}

func TestRefusalIsTakenForAnAnswer(t *testing.T) {
	inBubble(t, 0, 2, func(c *cluster) {
		c.set(func() { c.refusal = apierrors.NewForbidden(v1.Resource("services"), "s000", errors.New("no right")) })
		c.passes(time.Hour)
		c.wantWritten("in an hour", "s000", "s001")
		c.wantLogged("no right", 2)
	})
}

func TestWritesArePacedAndStopWhenAnAnnouncerIsReady(t *testing.T) {
	inBubble(t, 0, 100, func(c *cluster) {
		c.passes(time.Minute + 5*time.Second)
		c.announcers(3, 1)
		n := len(c.written())
		if n < 40 || n > 51 {
			t.Errorf("%d writes within five seconds", n)
		}
		c.passes(time.Hour)
		c.wantWritten("once an announcer is ready")
	})
}

func TestWatchdogReadsOnlyTheOneDaemonSet(t *testing.T) {
	inBubble(t, 3, 1, func(c *cluster) {
		c.passes(time.Minute)
		for _, a := range c.client.Actions() {
			if a.GetResource().Resource != "daemonsets" {
				continue
			}
			var selector string
			switch a := a.(type) {
			case clienttesting.ListAction:
				selector = a.GetListRestrictions().Fields.String()
			case clienttesting.WatchAction:
				selector = a.GetWatchRestrictions().Fields.String()
			case clienttesting.CreateAction: // by the test
				continue
			}
			if selector != "metadata.name=announcer" || a.GetNamespace() != namespace {
				t.Errorf("%s of daemonsets in %q by %q", a.GetVerb(), a.GetNamespace(), selector)
			}
		}
	})
}
