package instances

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"golang.org/x/tools/txtar"
)

// scene is a world out of one of the scenarios.
func scene(t *testing.T, name string) *world {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, archive)
}

func TestNothingIsKnownBeforeThereIsAConfiguration(t *testing.T) {
	w := scene(t, "steady")
	w.config = nil
	ctx, node := context.Background(), w.nodes[0]
	if exists, err := w.InstanceExists(ctx, node); exists || !errors.Is(err, ErrNotReady) {
		t.Errorf("exists: %v, %v", exists, err)
	}
	if off, err := w.InstanceShutdown(ctx, node); off || !errors.Is(err, ErrNotReady) {
		t.Errorf("off: %v, %v", off, err)
	}
	if m, err := w.InstanceMetadata(ctx, node); m != nil || !errors.Is(err, ErrNotReady) {
		t.Errorf("metadata: %v, %v", m, err)
	}
	if _, wanted := w.labelChange(node); wanted {
		t.Error("labels change")
	}
}

func TestAwaitEndsWithTheFirstConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		configured := scene(t, "steady")
		fresh := New(Options{Shared: informers.NewSharedInformerFactory(fake.NewClientset(), 0)})
		took := func(i *Instances) time.Duration {
			began := time.Now()
			i.Await(t.Context(), time.Minute)
			return time.Since(began)
		}
		if d := took(configured.Instances); d != 0 {
			t.Errorf("configured, and yet %s", d)
		}
		if d := took(fresh); d != time.Minute {
			t.Errorf("without a configuration %s", d)
		}
		time.AfterFunc(time.Second, func() { fresh.Apply(*configured.config) })
		if d := took(fresh); d != time.Second {
			t.Errorf("configured after a second: %s", d)
		}
	})
}

// begin lets the management cluster be within reach, with these hosts.
func (w *world) begin(found hosts) {
	w.hosts.begin(w.config.Nodes.Metal3, found, func(context.Context) (hosts, error) { return found, nil })
}

// What is kept may be out of date: the last look at the hosts decides.
func TestLastLookDecidesWhetherANodeIsDeleted(t *testing.T) {
	for _, c := range []struct {
		what   string
		last   func(found hosts) (hosts, error)
		exists bool
		err    string
	}{
		{"the same as before", func(found hosts) (hosts, error) { return found, nil }, false, ""},
		{"out of reach, and nobody has noticed", func(hosts) (hosts, error) { return hosts{}, errors.New("connection refused") }, false, "SourceUnavailable"},
		{"in use again", func(hosts) (hosts, error) { return hostsFrom(t, []byte(hostText)), nil }, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := scene(t, "row-deprovisioning")
			found := w.hosts.hosts
			w.hosts.read = func(context.Context) (hosts, error) { return c.last(found) }
			var exists bool
			var err error
			for end := time.Now().Add(6 * time.Minute); time.Now().Before(end) && err == nil; time.Sleep(5 * time.Second) {
				exists, err = w.InstanceExists(t.Context(), w.nodes[0])
			}
			if exists != c.exists || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: exists %v, %v", c.what, exists, err)
			}
		})
	}
}

// While nobody can be asked, nothing that was seen before counts: after an
// outage all begins anew.
func TestOutageOfTheManagementClusterNeverDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := scene(t, "row-deprovisioning")
		node := w.nodes[0]
		ask := func(d time.Duration) (exists bool, err error) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Second) {
				if exists, err = w.InstanceExists(context.Background(), node); err == nil && !exists {
					return
				}
			}
			return
		}
		if exists, err := ask(4 * time.Minute); !exists || err != nil {
			t.Fatalf("suspect: %v, %v", exists, err)
		}
		w.hosts.end()
		if _, err := ask(time.Hour); err == nil {
			t.Error("out of reach, and yet an answer")
		}
		w.begin(w.hosts.hosts)
		back := time.Now()
		if exists, _ := ask(time.Hour); exists || time.Since(back) < 5*time.Minute {
			t.Errorf("exists %v, %s after the management cluster came back", exists, time.Since(back))
		}
	})
}

func TestMetadataNeverComesWithoutAProviderIDOrAnError(t *testing.T) {
	for _, name := range []string{"row-unavailable", "match-none", "b155-foreign", "b159-malformed", "steady", "static-no-address", "match-no-machine-yet"} {
		synctest.Test(t, func(t *testing.T) {
			w := scene(t, name)
			for _, node := range w.nodes {
				m, err := w.InstanceMetadata(context.Background(), node)
				if err == nil && (m == nil || m.ProviderID == "") || err != nil && m != nil {
					t.Errorf("%s: %+v, %v", name, m, err)
				}
			}
		})
	}
}

func TestRefusedLabelsAreToldOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := scene(t, "labels-in-step")
		client := fake.NewClientset(w.nodes[0])
		refuse := true
		client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refuse {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no right"))
			}
			return false, nil, nil
		})
		w.client = client
		l := NewLabeller(w.Instances)
		defer l.queue.ShutDown()
		for range 3 {
			l.look(t.Context(), "n1")
		}
		if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "NodeLabelsNotWritten") {
			t.Errorf("told %q", told)
		}
		if n := l.queue.NumRequeues("n1"); n != 3 {
			t.Errorf("tried again %d times", n)
		}
		refuse = false
		l.look(t.Context(), "n1")
		n, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || n.Labels["rack"] != "a7" || n.Annotations[AnnotationLabels] != "example.com/disk,rack" {
			t.Errorf("labels %v, annotations %v, %v", n.Labels, n.Annotations, err)
		}
		if _, ok := n.Labels["gone"]; ok || n.Labels["theirs"] != "x" {
			t.Errorf("labels %v", n.Labels)
		}
		if l.queue.NumRequeues("n1") != 0 {
			t.Error("not forgotten")
		}
	})
}

func TestDeletedNodeIsForgotten(t *testing.T) {
	w := scene(t, "row-deprovisioning")
	if _, err := w.InstanceExists(context.Background(), w.nodes[0]); err != nil {
		t.Fatal(err)
	}
	if suspects, _ := w.doubtful(); suspects != 1 {
		t.Errorf("%d suspects", suspects)
	}
	w.forget(w.nodes[0])
	if len(w.memories) != 0 {
		t.Error("still remembered")
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := scene(t, "delete-mass")
		for range 100 {
			for _, node := range w.nodes {
				_, _ = w.InstanceExists(context.Background(), node)
			}
			time.Sleep(5 * time.Second)
		}
		_, _ = w.InstanceExists(context.Background(), &v1.Node{})
		registry := metrics.NewKubeRegistry()
		registry.CustomMustRegister(w.Collector())
		golden, err := os.Open("testdata/metrics.txt")
		if err != nil {
			t.Fatal(err)
		}
		defer golden.Close()
		if err := testutil.GatherAndCompare(registry, golden); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
	})
}
