package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
		documented(t, page, "announcer_")
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
					documented(t, page, "ccm_baremetal_")
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

// documented looks up every metric of ours on a page in the reference, which is
// made from texts of tests and not from running programs.
func documented(t *testing.T, page, prefix string) {
	t.Helper()
	root, err := product.Root(bounded(t))
	must(t, err)
	reference, err := os.ReadFile(filepath.Join(root, "docs", "reference", "metrics.md"))
	must(t, err)
	named := 0
	for line := range strings.Lines(page) {
		name, ok := strings.CutPrefix(line, "# HELP "+prefix)
		if !ok {
			continue
		}
		named++
		name, _, _ = strings.Cut(prefix+name, " ")
		if !strings.Contains(string(reference), "`"+name+"`") {
			t.Errorf("%s is served, and not in docs/reference/metrics.md", name)
		}
	}
	if named == 0 {
		t.Errorf("no metric begins with %s in:\n%s", prefix, page)
	}
}

func ccmMetrics(ctx context.Context, i int, token string) (string, error) {
	return cluster.Run(ctx, lab.ControlPlane, "curl", "--silent", "--show-error", "--fail", "--insecure", "--header", "Authorization: Bearer "+token,
		fmt.Sprintf("https://127.0.0.1:%d/metrics", product.CCMPort+i))
}
