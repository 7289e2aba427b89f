package document

import (
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

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
	"github.com/ccm-baremetal/ccm-baremetal/test/events"
)

const patience = time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// A target remembers what was applied, and knows of addresses in use by pool.
type target struct {
	mu      sync.Mutex
	resumed []string // the names of the pools of each configuration
	applied []string // likewise
	inUse   map[string]int
	waits   bool // it never gets to know what an Impact would be
}

func (g *target) Resume(c config.Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resumed = append(g.resumed, pools(c))
}

func (g *target) Apply(c config.Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applied = append(g.applied, pools(c))
}

func pools(c config.Config) string {
	var names []string
	for _, p := range c.Pools {
		names = append(names, p.Name)
	}
	return strings.Join(names, "+")
}

func (g *target) Impact(ctx context.Context, c config.Config) (lost []string, total int, err error) {
	if g.waits {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, n := range g.inUse {
		total += n
		if !slices.ContainsFunc(c.Pools, func(p config.Pool) bool { return p.Name == name }) {
			for i := range n {
				lost = append(lost, fmt.Sprintf("address %d of %s", i, name))
			}
		}
	}
	return lost, total, nil
}

func (g *target) last() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.applied) == 0 {
		return ""
	}
	return g.applied[len(g.applied)-1]
}

// doc is a document with these pools.
func doc(names ...string) string {
	text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\npools:\n"
	for i, name := range names {
		text += fmt.Sprintf("- name: %s\n  addresses: [192.0.2.%d0-192.0.2.%d9]\n", name, i+1, i+1)
	}
	return text
}

// A run is a running Keeper.
type run struct {
	*Keeper
	target *target
	events *events.Recorder
	stop   func()
}

func start(t *testing.T, client *fake.Clientset, target *target) *run {
	t.Helper()
	r := &run{target: target, events: &events.Recorder{}}
	r.Keeper = NewKeeper(&ConfigMap{Client: client, Namespace: "kube-system", Events: r.events}, target, slog.New(slog.DiscardHandler))
	r.stop = follow(t, r.Keeper)
	return r
}

func follow(t *testing.T, k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func (r *run) isStale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stale
}

// newClient returns a client whose watches honour the field selector, as the
// real API server does and the fake does not.
func newClient(objects ...runtime.Object) *fake.Clientset {
	c := fake.NewClientset(objects...)
	c.PrependWatchReactor("configmaps", func(a clienttesting.Action) (bool, watch.Interface, error) {
		options := a.(clienttesting.WatchActionImpl).ListOptions
		w, err := c.Tracker().Watch(a.GetResource(), a.GetNamespace(), options)
		return true, watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			return e, strings.HasSuffix(options.FieldSelector, "="+e.Object.(*v1.ConfigMap).Name)
		}), err
	})
	c.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		action := a.(clienttesting.ListActionImpl)
		list, err := c.Tracker().List(a.GetResource(), action.GetKind(), a.GetNamespace(), action.ListOptions)
		if err != nil {
			return true, nil, err
		}
		all := list.(*v1.ConfigMapList)
		all.Items = slices.DeleteFunc(all.Items, func(m v1.ConfigMap) bool {
			return !strings.HasSuffix(action.ListOptions.FieldSelector, "="+m.Name)
		})
		return true, all, nil
	})
	return c
}

func configMap(name, document string) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Data:       map[string]string{config.ConfigMapKey: document},
	}
}

func write(t *testing.T, c *fake.Clientset, m *v1.ConfigMap) {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps(m.Namespace).Update(context.Background(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.CoreV1().ConfigMaps(m.Namespace).Create(context.Background(), m, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stored returns the accepted document.
func stored(c *fake.Clientset) string {
	m, err := c.CoreV1().ConfigMaps("kube-system").Get(context.Background(), AcceptedConfigMap, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return m.Data[config.ConfigMapKey]
}

// storedWrites counts how often the accepted document was written.
func storedWrites(c *fake.Clientset) int {
	n := 0
	for _, a := range c.Actions() {
		object, ok := a.(clienttesting.CreateAction) // an update has the same methods
		if ok && a.GetResource().Resource == "configmaps" && object.GetObject().(*v1.ConfigMap).Name == AcceptedConfigMap {
			n++
		}
	}
	return n
}

func TestB002RefusedDocumentLeavesTheLastGoodOneInForce(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("default", "gold")))
	r := start(t, c, &target{})
	eventually(t, "the first document is in force", func() bool { return r.target.last() == "default+gold" && stored(c) != "" })

	write(t, c, configMap(UserConfigMap, doc("default", "gold", "default")))
	eventually(t, "the refusal is told", func() bool { return len(r.events.With("Warning ConfigurationRefused kube-system/"+UserConfigMap)) == 1 })
	event := r.events.With("Warning")[0]
	for _, part := range []string{"default", "pools[0]", "pools[2]"} {
		if !strings.Contains(event, part) {
			t.Errorf("the event does not name %s: %s", part, event)
		}
	}
	if r.target.last() != "default+gold" || stored(c) != doc("default", "gold") || !r.isStale() {
		t.Errorf("in force %s, stale %v, stored:\n%s", r.target.last(), r.isStale(), stored(c))
	}

	// The same document by another write is not told again, and a good one ends it.
	again := configMap(UserConfigMap, doc("default", "gold", "default"))
	again.Labels = map[string]string{"touched": "yes"}
	write(t, c, again)
	write(t, c, configMap(UserConfigMap, doc("default", "silver")))
	eventually(t, "the good one is in force", func() bool { return r.target.last() == "default+silver" && !r.isStale() })
	if got := len(r.events.With("Warning")); got != 1 {
		t.Errorf("told %d times", got)
	}
	eventually(t, "that is told", func() bool { return len(r.events.With("Normal ConfigurationAccepted")) == 1 })
}

func TestEventOfARefusalIsOneLine(t *testing.T) {
	c := newClient(configMap(UserConfigMap, "apiVersion: "+config.APIVersion+"\nkind: Nonsense\nbogus: 1\n"))
	r := start(t, c, &target{})
	eventually(t, "it is told", func() bool { return len(r.events.With("Warning")) == 1 })
	event := r.events.With("Warning")[0]
	if strings.Contains(event, "\n") || !strings.Contains(event, "kind") || !strings.Contains(event, "bogus") {
		t.Errorf("not all faults in one line: %q", event)
	}
}

func TestRestartBeginsWithTheAcceptedDocument(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("bad", "bad")), configMap(AcceptedConfigMap, doc("good")))
	r := start(t, c, &target{})
	eventually(t, "the bad one is told", func() bool { return len(r.events.With("Warning")) == 1 })
	if r.target.last() != "good" || !r.isStale() || storedWrites(c) != 0 {
		t.Errorf("in force %q, stale %v, %d writes", r.target.last(), r.isStale(), storedWrites(c))
	}
}

func TestDocumentEditedWhileNobodyLedIsTheOnlyOneThatDecides(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("new")), configMap(AcceptedConfigMap, doc("old")))
	r := start(t, c, &target{})
	eventually(t, "the edited one is in force", func() bool { return r.target.last() == "new" && stored(c) == doc("new") })
	eventually(t, "that is told", func() bool { return len(r.events.With("Normal ConfigurationAccepted")) == 1 })
	r.stop()
	if !slices.Equal(r.target.resumed, []string{"old"}) || !slices.Equal(r.target.applied, []string{"new"}) {
		t.Errorf("resumed %q, applied %q", r.target.resumed, r.target.applied)
	}
}

func TestEditedDocumentThatCannotBeStoredLeavesTheAcceptedOneInForce(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("new")), configMap(AcceptedConfigMap, doc("old")))
	c.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
	r := start(t, c, &target{})
	eventually(t, "the accepted one is in force", func() bool { return r.target.last() == "old" })
	r.stop()
	if !slices.Equal(r.target.applied, []string{"old"}) {
		t.Errorf("applied %q", r.target.applied)
	}
}

func TestEditedDocumentThatCannotBeJudgedLeavesTheAcceptedOneInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(configMap(UserConfigMap, doc("new")), configMap(AcceptedConfigMap, doc("old")))
		r := start(t, c, &target{waits: true})
		time.Sleep(time.Minute)
		if got := r.target.last(); got != "" {
			t.Errorf("%q is in force before the edited one could be judged", got)
		}
		time.Sleep(2 * time.Minute)
		r.stop()
		if !slices.Equal(r.target.applied, []string{"old"}) || len(r.events.With("")) != 0 {
			t.Errorf("applied %q, told %q", r.target.applied, r.events.With(""))
		}
	})
}

func TestRestartOfAnUnchangedWorldWritesNothing(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a")), configMap(AcceptedConfigMap, doc("a")))
	r := start(t, c, &target{})
	eventually(t, "it is in force", func() bool { return r.target.last() == "a" })
	write(t, c, configMap(UserConfigMap, doc("a", "b")))
	eventually(t, "a change is in force", func() bool { return r.target.last() == "a+b" && stored(c) == doc("a", "b") })
	if got := storedWrites(c); got != 1 {
		t.Errorf("%d writes, want one for the change", got)
	}
	if len(r.target.applied) != 2 {
		t.Errorf("applied: %q", r.target.applied)
	}
}

func TestMassChangeIsRefusedUnlessAllowed(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a", "b")))
	r := start(t, c, &target{inUse: map[string]int{"a": 20, "b": 6}})
	eventually(t, "the first is in force", func() bool { return r.target.last() == "a+b" })
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "it is refused", func() bool { return len(r.events.With("Warning ConfigurationRefused")) == 1 })
	if event := r.events.With("Warning")[0]; !strings.Contains(event, "6 of 26") || !strings.Contains(event, "services.allowMassChange: true") {
		t.Errorf("told as %q", event)
	}
	write(t, c, configMap(UserConfigMap, doc("a")+"services: {allowMassChange: true}\n"))
	eventually(t, "it is in force when allowed", func() bool { return r.target.last() == "a" })
}

func TestMassChange(t *testing.T) {
	lost := func(n int) []string { return make([]string, n) }
	for _, c := range []struct {
		lost, inUse int
		allowed     bool
		refused     bool
	}{
		{0, 0, false, false}, {0, 100, false, false}, {5, 5, false, false}, {6, 6, false, true},
		{6, 30, false, false}, {6, 29, false, true}, {20, 100, false, false}, {21, 100, false, true}, {100, 100, true, false},
	} {
		if err := MassChange(lost(c.lost), c.inUse, c.allowed); (err != nil) != c.refused {
			t.Errorf("%d of %d, allowed %v: %v", c.lost, c.inUse, c.allowed, err)
		}
	}
}

func TestMassChangeStaysRefusedWhoeverLeads(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a", "b")))
	r := start(t, c, &target{inUse: map[string]int{"a": 20, "b": 6}})
	eventually(t, "the first is in force", func() bool { return r.target.last() == "a+b" })
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "it is refused", func() bool { return len(r.events.With("Warning ConfigurationRefused")) == 1 })
	eventually(t, "that is written down", func() bool { return refusedHash(c) != "" })
	r.stop()

	// Now it would look harmless, and yet nobody has touched it.
	writes := storedWrites(c)
	r = start(t, c, &target{inUse: map[string]int{"a": 100, "b": 6}})
	eventually(t, "the accepted one is in force", func() bool { return r.target.last() == "a+b" && r.isStale() })
	if told := r.events.With("Warning"); len(told) != 0 || storedWrites(c) != writes {
		t.Errorf("told again: %q, written: %d", told, storedWrites(c)-writes)
	}
	write(t, c, configMap(UserConfigMap, doc("a")+"# once more\n"))
	eventually(t, "it is judged anew when edited", func() bool { return r.target.last() == "a" && !r.isStale() })
	if got := refusedHash(c); got != "" || stored(c) != doc("a")+"# once more\n" {
		t.Errorf("refused %q, stored:\n%s", got, stored(c))
	}
}

func TestGoingBackForgetsTheRefusal(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a", "b")))
	g := &target{inUse: map[string]int{"b": 6}}
	r := start(t, c, g)
	eventually(t, "the first is in force", func() bool { return r.target.last() == "a+b" })
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "it is refused", func() bool { return refusedHash(c) != "" })
	write(t, c, configMap(UserConfigMap, doc("a", "b")))
	eventually(t, "the refusal is forgotten", func() bool { return refusedHash(c) == "" && !r.isStale() })
	g.mu.Lock()
	g.inUse = nil
	g.mu.Unlock()
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "it is in force", func() bool { return r.target.last() == "a" })
}

// A document with faults is judged anew by the next leader: that may be of a
// release which understands it.
func TestDocumentWithFaultsIsNotWrittenDown(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("bad", "bad")), configMap(AcceptedConfigMap, doc("good")))
	r := start(t, c, &target{})
	eventually(t, "it is told", func() bool { return len(r.events.With("Warning")) == 1 })
	r.stop()
	if got := refusedHash(c); got != "" || storedWrites(c) != 0 {
		t.Errorf("refused %q, %d writes", got, storedWrites(c))
	}
}

func TestFirstDocumentIsJudgedByWhatTheServicesHold(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a")))
	r := start(t, c, &target{inUse: map[string]int{"b": 6}})
	eventually(t, "it is refused", func() bool { return len(r.events.With("Warning ConfigurationRefused")) == 1 })
	if r.target.last() != "" || storedWrites(c) != 0 || r.HealthChecker().Check(nil) == nil {
		t.Errorf("in force %q, %d writes", r.target.last(), storedWrites(c))
	}
}

// refusedHash returns what is written down of a refusal.
func refusedHash(c *fake.Clientset) string {
	m, err := c.CoreV1().ConfigMaps("kube-system").Get(context.Background(), AcceptedConfigMap, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return m.Annotations["ccm-baremetal.io/refused"]
}

func TestDeletedConfigMapKeepsTheLastDocument(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a")))
	r := start(t, c, &target{})
	eventually(t, "it is in force", func() bool { return r.target.last() == "a" && stored(c) != "" })
	if err := c.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), UserConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r = start(t, c, &target{})
	eventually(t, "it is in force after a restart", func() bool { return r.target.last() == "a" })
	if err := r.HealthChecker().Check(nil); err != nil {
		t.Errorf("not healthy: %v", err)
	}
}

func TestDeletedConfigMapTakesItsRefusalAlong(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a", "b")))
	r := start(t, c, &target{inUse: map[string]int{"b": 6}})
	eventually(t, "the first is in force", func() bool { return r.target.last() == "a+b" })
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "it is refused", func() bool { return refusedHash(c) != "" && r.isStale() })
	if err := c.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), UserConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refusal is forgotten", func() bool { return refusedHash(c) == "" && !r.isStale() })
	if r.target.last() != "a+b" {
		t.Errorf("%s is in force", r.target.last())
	}
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "the same is told again", func() bool { return len(r.events.With("Warning ConfigurationRefused")) == 2 && r.isStale() })
}

func TestAcceptedDocumentIsPutBack(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a")))
	r := start(t, c, &target{})
	eventually(t, "it is stored", func() bool { return stored(c) == doc("a") })
	write(t, c, configMap(AcceptedConfigMap, "tampered"))
	eventually(t, "it is put back", func() bool { return stored(c) == doc("a") })
	if err := c.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), AcceptedConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is made again", func() bool { return stored(c) == doc("a") })
	if len(r.target.applied) != 1 {
		t.Errorf("applied: %q", r.target.applied)
	}
	m, _ := c.CoreV1().ConfigMaps("kube-system").Get(context.Background(), AcceptedConfigMap, metav1.GetOptions{})
	if m.Labels[ManagedByLabel] != ManagedBy {
		t.Errorf("labels: %v", m.Labels)
	}
}

func TestWithoutAnyDocumentItWaitsAndIsNotReady(t *testing.T) {
	c := newClient()
	r := start(t, c, &target{})
	eventually(t, "it has looked", func() bool { return len(c.Actions()) >= 5 })
	err := r.HealthChecker().Check(nil)
	if err == nil || !strings.Contains(err.Error(), "kube-system/ccm-baremetal") {
		t.Errorf("health: %v", err)
	}
	if r.target.last() != "" || storedWrites(c) != 0 {
		t.Errorf("in force %q, %d writes", r.target.last(), storedWrites(c))
	}
	m := configMap(UserConfigMap, "")
	m.Data = map[string]string{"wrong-key": doc("a")}
	write(t, c, m)
	eventually(t, "the missing key is told", func() bool {
		told := r.events.With("Warning")
		return len(told) == 1 && strings.Contains(told[0], "there is no key config.yaml")
	})
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "a document ends the wait", func() bool { return r.HealthChecker().Check(nil) == nil })
}

func TestDocumentThatCannotBeStoredIsNotInForceYet(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a")))
	var mu sync.Mutex
	down := true
	c.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return down, nil, errors.New("connection refused")
	})
	r := start(t, c, &target{})
	eventually(t, "it was tried", func() bool { return storedWrites(c) > 0 })
	if r.target.last() != "" {
		t.Errorf("in force: %s", r.target.last())
	}
	mu.Lock()
	down = false
	mu.Unlock()
	eventually(t, "it is in force at last", func() bool { return r.target.last() == "a" })
	if got := r.events.With("Warning"); len(got) != 0 {
		t.Errorf("the user is blamed: %q", got)
	}
}

func TestWhoOnlyObservesGoesOnAsIfItHadStored(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a")))
	for _, verb := range []string{"create", "update"} {
		c.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, fmt.Errorf("%s configmap: %w", verb, rehearse.ErrWithheld)
		})
	}
	r := start(t, c, &target{})
	eventually(t, "it is in force", func() bool { return r.target.last() == "a" })
	if err := c.Tracker().Update(v1.SchemeGroupVersion.WithResource("configmaps"), configMap(UserConfigMap, doc("a", "b")), "kube-system"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an edit is in force", func() bool { return r.target.last() == "a+b" })
	if stored(c) != "" || r.isStale() {
		t.Errorf("stored %q, stale %v", stored(c), r.isStale())
	}
}

func TestB148StaleEndsWithTheGoodDocumentByteForByte(t *testing.T) {
	c := newClient(configMap(UserConfigMap, doc("a")))
	r := start(t, c, &target{})
	eventually(t, "it is in force", func() bool { return r.target.last() == "a" && stored(c) != "" })
	write(t, c, configMap(UserConfigMap, "broken"))
	eventually(t, "the broken one is told", func() bool { return len(r.events.With("Warning ConfigurationRefused")) == 1 && r.isStale() })
	write(t, c, configMap(UserConfigMap, doc("a")))
	eventually(t, "it is stale no more", func() bool { return !r.isStale() })
	if err := c.CoreV1().ConfigMaps("kube-system").Delete(context.Background(), UserConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	write(t, c, configMap(UserConfigMap, doc("a", "b")))
	eventually(t, "what is made again counts", func() bool { return r.target.last() == "a+b" && !r.isStale() })
	if !slices.Equal(r.target.applied, []string{"a", "a+b"}) {
		t.Errorf("applied: %q", r.target.applied)
	}
}
