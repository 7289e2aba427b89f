package document

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/component-base/metrics"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const info = `# HELP ccm_baremetal_config_info [ALPHA] Hash of the document in force; absent without one.
# TYPE ccm_baremetal_config_info gauge
ccm_baremetal_config_info{hash="0123456789ab"} 1
`

const stale = `# HELP ccm_baremetal_config_stale [ALPHA] Whether the document that is wanted was refused, and an older one is in force.
# TYPE ccm_baremetal_config_stale gauge
ccm_baremetal_config_stale `

func TestMetrics(t *testing.T) {
	k := NewKeeper(&File{}, &target{}, slog.New(slog.DiscardHandler))
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(k.Collector())
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, stale + "0\n"},
		{func() { k.apply(config.Config{Hash: "0123456789ab"}, []byte("x")) }, info + stale + "0\n"},
		{func() { k.refused(errors.New("no")) }, info + stale + "1\n"},
		{func() { k.fresh() }, info + stale + "0\n"},
	} {
		step.do()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(step.want)); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
	}
}
