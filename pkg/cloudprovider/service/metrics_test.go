package service

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
)

func TestMetrics(t *testing.T) {
	api := newAPIServer()
	api.create(lb("restored", given(time.Hour, "192.0.2.10")))
	api.create(lb("late", given(time.Minute, "192.0.2.10")))
	l := lead(t, api, "pools:\n- name: public\n  addresses: [192.0.2.10-192.0.2.11]\n- name: six\n  addresses: [\"2001:db8::/64\"]\n")
	api.awaitAddress(t, "web/late")
	api.create(lb("waiting"))
	api.awaitReason(t, "web/waiting", "PoolExhausted")
	api.create(lb("astray", func(svc *v1.Service) { svc.Annotations = map[string]string{AnnotationPool: "six"} }))
	api.awaitReason(t, "web/astray", "FamilyUnavailable")
	eventually(t, "all is counted", func() bool { return l.counts.patched(written) == 3 && l.counts.duplicates.Load() == 1 })
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(l.Collector())
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
}
