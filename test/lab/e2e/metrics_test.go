package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

func TestMetricsAreServed(t *testing.T) {
	atRest(t)
	t.Run("Announcer", func(t *testing.T) {
		page, err := cluster.Get(bounded(t), names()[0], fmt.Sprintf("http://127.0.0.1:%d/metrics", product.HTTPPort))
		must(t, err)
		if !strings.Contains(page, "\nannouncer_passes_total{") {
			t.Errorf("no announcer_passes_total in:\n%s", page)
		}
	})
	// The CCM shows its metrics to those only whom the API server knows, and
	// who may see them.
	t.Run("CCM", func(t *testing.T) {
		eventually(t, "the leader to show its metrics", func(ctx context.Context) error {
			for i := range 2 {
				page, err := ccmMetrics(ctx, i, cluster.RESTConfig().BearerToken)
				if err != nil {
					return err
				}
				if strings.Contains(page, "\nccm_baremetal_config_stale 0\n") {
					return nil
				}
			}
			return fmt.Errorf("none has ccm_baremetal_config_stale 0")
		})
		known, err := cluster.Kubectl(bounded(t), "create", "token", "default")
		must(t, err)
		for who, token := range map[string]string{"a stranger": "nobody's", "who has no right to": strings.TrimSpace(known)} {
			if page, err := ccmMetrics(bounded(t), 0, token); err == nil {
				t.Errorf("%s was shown:\n%s", who, page)
			}
		}
	})
}

func ccmMetrics(ctx context.Context, i int, token string) (string, error) {
	return cluster.Run(ctx, lab.ControlPlane, "curl", "--silent", "--show-error", "--fail", "--insecure", "--header", "Authorization: Bearer "+token,
		fmt.Sprintf("https://127.0.0.1:%d/metrics", product.CCMPort+i))
}
