package source

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// bigService and the like are of the size that real clusters show.
func bigService(i int) *corev1.Service {
	o := balancer(fmt.Sprint("namespace-", i%100), fmt.Sprint("service-", i), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
	o.Labels = map[string]string{"app.kubernetes.io/name": o.Name, "app.kubernetes.io/instance": o.Namespace, "helm.sh/chart": "chart-1.2.3"}
	o.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: strings.Repeat("x", 1500)}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 2000))}}
	return o
}

func bigSlice(i, endpoints, nodes int) *discoveryv1.EndpointSlice {
	o := endpointSlice(fmt.Sprint("namespace-", i%100), fmt.Sprint("service-", i), fmt.Sprint("service-", i, "-abcde"))
	for e := range endpoints {
		o.Endpoints = append(o.Endpoints, endpoint(fmt.Sprint("node-", (i*7+e*13)%nodes), isReady))
	}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 1500))}}
	return o
}

func bigNode(i int) *corev1.Node {
	o := machine(fmt.Sprint("node-", i), fmt.Sprintf("10.200.%d.%d", i>>8, i&255))
	for l := range 20 {
		o.Labels[fmt.Sprint("example.org/label-", l)] = fmt.Sprint("value-", i%7)
	}
	for l := range 50 {
		o.Status.Images = append(o.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprint("registry.example.org/image-", l, strings.Repeat("0", 64))}})
	}
	return o
}

func TestBigClusterFitsIntoLittleMemory(t *testing.T) {
	const services, endpointsEach, nodes = 5000, 4, 500
	api := newFakeAPI(t) // never asked: the stores are filled directly
	w := New(Options{
		Node: "node-0", API: api.client(), Namespace: "kube-system", Kick: func() {},
		Links: &Links{table: &linkTable{}}, Log: (&journal{}).logger(),
	})
	before := heap()
	for _, store := range []interface{ Replace([]any, string) error }{&w.services, &w.slices, &w.nodes, &w.api} {
		if err := store.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.document.offer([]byte(documentFor("10.0.0.0/8")), nil)
	for i := range services {
		must(t, w.services.Add(bigService(i)))
		must(t, w.slices.Add(bigSlice(i, endpointsEach, nodes)))
	}
	for i := range nodes {
		must(t, w.nodes.Add(bigNode(i)))
	}
	s, err := w.With(members{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	used := heap() - before
	t.Logf("%d Services, %d endpoints and %d Nodes take %.1f MiB", len(s.Services), services*endpointsEach, len(s.Nodes), float64(used)/(1<<20))
	if used > 20<<20 {
		t.Errorf("%d bytes, want at most 20 MiB", used)
	}
	if len(s.Services) != services || len(s.Services[4711].Endpoints.Ready) != endpointsEach {
		t.Errorf("%d Services, one with endpoints on %v", len(s.Services), s.Services[4711].Endpoints.Ready)
	}
	runtime.KeepAlive(w)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkOneChange is a pass's share of the source when one Service of many
// has changed.
func BenchmarkOneChange(b *testing.B) {
	w := New(Options{Node: "node-0", Namespace: "kube-system", Kick: func() {}, Links: &Links{table: &linkTable{}}, Log: (&journal{}).logger()})
	for _, store := range []interface{ Replace([]any, string) error }{&w.services, &w.slices, &w.nodes, &w.api} {
		if err := store.Replace(nil, ""); err != nil {
			b.Fatal(err)
		}
	}
	w.document.offer([]byte(documentFor("10.0.0.0/8")), nil)
	for i := range 10000 {
		w.services.Add(bigService(i))
		w.slices.Add(bigSlice(i, 4, 1000))
	}
	var last plan.Snapshot
	for i := 0; b.Loop(); i++ {
		w.slices.Add(bigSlice(4711, 1+i%2, 1000))
		last, _ = w.With(members{}).Snapshot()
	}
	if len(last.Services) != 10000 {
		b.Fatal(len(last.Services))
	}
}
