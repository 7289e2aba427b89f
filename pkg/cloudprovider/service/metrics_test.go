package service

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

var stable = []string{"ccm_baremetal_pool_addresses", "ccm_baremetal_pool_addresses_used", "ccm_baremetal_pool_addresses_cooling",
	"ccm_baremetal_services_waiting", "ccm_baremetal_services_moving", "ccm_baremetal_service_patches_total",
	"ccm_baremetal_duplicate_addresses_total", "ccm_baremetal_status_repairs_total", "ccm_baremetal_restored_services"}

// The two metrics whose samples depend on time or on what came together.
const (
	latencyText = `# HELP ccm_baremetal_allocation_latency_seconds [ALPHA] From the creation of a Service, or from its becoming a LoadBalancer, to the writing of its first address.
# TYPE ccm_baremetal_allocation_latency_seconds histogram
`
	decisionsText = `# HELP ccm_baremetal_decisions_total [ALPHA] How often it was decided about a Service, by the reason of the outcome.
# TYPE ccm_baremetal_decisions_total counter
`
)

// described fails unless a metric is gathered with this help and of this kind.
func described(t *testing.T, registry metrics.KubeRegistry, want string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		all = append(all, fmt.Sprintf("# HELP %s %s\n# TYPE %[1]s %[3]s\n", f.GetName(), f.GetHelp(), strings.ToLower(f.GetType().String())))
	}
	if !slices.Contains(all, want) {
		t.Errorf("no\n%samong\n%s", want, strings.Join(all, ""))
	}
}

func TestLatencyIsThatOfTheFirstAddress(t *testing.T) {
	api := newAPIServer()
	created := func(ago time.Duration) func(*v1.Service) {
		return func(svc *v1.Service) {
			svc.CreationTimestamp = metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second))
		}
	}
	api.create(lb("old", created(time.Hour))) // before anybody led
	api.create(lb("served", given(time.Hour, "192.0.2.12")))
	l := lead(t, api, pool(3))
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(l.Latency())
	api.awaitAddress(t, "web/old")
	api.create(lb("new", created(0)))
	api.awaitAddress(t, "web/new")
	l.settle(t)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	if n, sum := h.GetSampleCount(), h.GetSampleSum(); n != 2 || sum < 3598 || sum > 3600+patience.Seconds() {
		t.Errorf("an hour and next to nothing: %d samples make %v s", n, sum)
	}
	described(t, registry, latencyText)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
}

func TestMetrics(t *testing.T) {
	api := newAPIServer()
	api.create(lb("restored", given(time.Hour, "192.0.2.10")))
	api.create(lb("late", given(time.Minute, "192.0.2.10")))
	l := lead(t, api, "pools:\n- name: public\n  addresses: [192.0.2.10-192.0.2.11]\n- name: six\n  addresses: [\"2001:db8::/64\"]\n")
	api.awaitAddress(t, "web/late")
	api.create(lb("waiting"))
	api.awaitReason(t, "web/waiting", "PoolExhausted")
	api.create(lb("astray", func(svc *v1.Service) { svc.Annotations = map[string]string{wish.AnnotationPool: "six"} }))
	api.awaitReason(t, "web/astray", "FamilyUnavailable")
	eventually(t, "all is counted", func() bool { return l.counts.patched(written) == 3 && l.counts.duplicates.Load() == 1 })
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(l.Collector())
	golden, err := os.Open("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	// How often it was decided depends on what came together.
	if err := testutil.GatherAndCompare(registry, golden, stable...); err != nil {
		t.Error(err)
	}
	described(t, registry, decisionsText)
	decided := l.counts.decisionsByReason()
	if decided[ipam.Allocated] < 2 || decided[ipam.PoolExhausted] < 1 || decided[ipam.FamilyUnavailable] < 1 || len(decided) != 3 {
		t.Errorf("decisions: %v", decided)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
}
