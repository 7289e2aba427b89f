package instances

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var update = flag.Bool("update", false, "rewrite what scenarios want")

// TestScenarios reads each scenario in testdata: a configuration, Nodes and
// BareMetalHosts, and what Services hold, where that is known. What is answered about each Node, over a quarter of an hour
// in which nothing changes, is compared with what stands below.
func TestScenarios(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, archive) })
			last := &archive.Files[len(archive.Files)-1]
			if *update {
				last.Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(last.Data), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("-want +got (go test ./pkg/cloudprovider/instances -update rewrites it):\n%s", diff)
			}
		})
	}
}

// play asks about all Nodes of a scenario, every five seconds.
func play(t *testing.T, archive *txtar.Archive) string {
	w := newWorld(t, archive)
	var out strings.Builder
	for _, node := range w.nodes {
		fmt.Fprintf(&out, "%s\n", node.Name)
		w.describe(&out, node)
	}
	stories := map[string][]string{}
	tell := func(key, now string) {
		story := stories[key]
		if len(story) == 0 || !strings.HasSuffix(story[len(story)-1], ": "+now) {
			stories[key] = append(story, fmt.Sprintf("%s: %s", time.Since(w.began), now))
		}
	}
	for time.Since(w.began) <= 15*time.Minute {
		for _, node := range w.nodes {
			exists, err := w.InstanceExists(context.Background(), node)
			tell(node.Name+" exists", verdict(exists, err))
			off, err := w.InstanceShutdown(context.Background(), node)
			tell(node.Name+" is off", verdict(off, err))
		}
		time.Sleep(5 * time.Second)
	}
	for _, key := range slices.Sorted(maps.Keys(stories)) {
		fmt.Fprintf(&out, "%s\n  %s\n", key, strings.Join(stories[key], "\n  "))
	}
	for _, e := range w.told() {
		fmt.Fprintf(&out, "event: %s\n", e)
	}
	return out.String()
}

func verdict(yes bool, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprint(yes)
}

// A world is Instances together with what they know.
type world struct {
	*Instances
	nodes  []*v1.Node
	events *record.FakeRecorder
	began  time.Time
}

func newWorld(t *testing.T, archive *txtar.Archive) *world {
	t.Helper()
	files := map[string][]byte{}
	for _, f := range archive.Files {
		files[f.Name] = f.Data
	}
	w := &world{events: record.NewFakeRecorder(1000), began: time.Now()}
	client := fake.NewClientset()
	shared := informers.NewSharedInformerFactory(client, 0)
	text, known := files["held"]
	services := holders{known: known, held: strings.Fields(string(text))}
	w.Instances = New(Options{
		Client: client, Config: &rest.Config{}, Namespace: "kube-system", Shared: shared, Services: services, Events: w.events, Log: slog.New(slog.DiscardHandler),
	})
	for _, doc := range documents(files["nodes.yaml"]) {
		w.nodes = append(w.nodes, nodeFrom(t, doc))
		if err := w.shared.GetIndexer().Add(w.nodes[len(w.nodes)-1]); err != nil {
			t.Fatal(err)
		}
	}
	c := configOf(t, string(files["config.yaml"]))
	w.Apply(c)
	if text, ok := files["hosts.yaml"]; ok && c.Nodes.Source == config.SourceMetal3 {
		w.begin(hostsFrom(t, text))
	}
	return w
}

// holders are the Services of a scenario.
type holders struct {
	known bool
	held  []string
}

func (h holders) Holds(a netip.Addr) (bool, error) {
	if !h.known {
		return false, errors.New("not all Services have been read")
	}
	return slices.Contains(h.held, a.String()), nil
}

// configOf reads a document that has pools already.
func configOf(t testing.TB, nodes string) config.Config {
	t.Helper()
	c, err := config.Load([]byte(config.Smallest + nodes))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func documents(text []byte) [][]byte {
	return slices.DeleteFunc(bytes.Split(text, []byte("---\n")), func(d []byte) bool { return len(bytes.TrimSpace(d)) == 0 })
}

// nodeFrom reads a Node that was created long ago and has not been Ready since.
func nodeFrom(t *testing.T, text []byte) *v1.Node {
	t.Helper()
	node := &v1.Node{}
	if err := yaml.UnmarshalStrict(text, node); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	node.UID = types.UID("uid-" + node.Name)
	if node.CreationTimestamp.IsZero() {
		node.CreationTimestamp = metav1.NewTime(time.Now().Add(-24 * time.Hour))
	}
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].LastTransitionTime.IsZero() {
			node.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
		}
	}
	return node
}

func hostsFrom(t *testing.T, text []byte) hosts {
	t.Helper()
	h := hosts{
		hosts:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, hostIndexers),
		hardware: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
	}
	for _, doc := range documents(text) {
		object := objectFrom(t, doc)
		keep, store := keepHost, h.hosts
		if object.GetKind() == "HardwareData" {
			keep, store = keepHardware, h.hardware
		}
		reduced, err := keep(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Add(reduced); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func objectFrom(t testing.TB, text []byte) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return object
}

// describe writes what a Node is initialized with, and what its labels become.
func (w *world) describe(out *strings.Builder, node *v1.Node) {
	m, err := w.InstanceMetadata(context.Background(), node)
	if err != nil {
		fmt.Fprintf(out, "  metadata: error: %v\n", err)
	} else {
		fmt.Fprintf(out, "  providerID %s, zone %q, region %q, type %q, labels %v\n", m.ProviderID, m.Zone, m.Region, m.InstanceType, m.AdditionalLabels)
		fmt.Fprintf(out, "  addresses %v\n", m.NodeAddresses)
	}
	change, wanted := w.labelChange(node)
	if wanted {
		fmt.Fprintf(out, "  labels set %v, removed %v, owned %v\n", change.Set, change.Remove, change.Owned)
	}
}

// told returns the events so far.
func (w *world) told() []string {
	var out []string
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}
