package cloudprovider

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

func TestWithheldWritesAreCounted(t *testing.T) {
	rehearsal := rehearse.New(slog.New(slog.DiscardHandler))
	for range 2 {
		r, err := http.NewRequest(http.MethodPatch, "https://api/api/v1/namespaces/a/services/b/status", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rehearsal.Wrap(http.DefaultTransport).RoundTrip(r); err == nil {
			t.Fatal("it was sent")
		}
	}
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(&withheldCollector{rehearsal: rehearsal})
	const want = `# HELP ccm_baremetal_withheld_writes_total [ALPHA] Writes that were not made because this process only observes; there are no series otherwise.
# TYPE ccm_baremetal_withheld_writes_total counter
ccm_baremetal_withheld_writes_total{resource="services/status",verb="patch"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
