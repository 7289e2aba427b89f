package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// manifests/bgp, and with it manifests/base, is what this installation was made by; the example is only
// asked whether the API server would take it, as it would replace the document.
func TestExampleManifestsAreValid(t *testing.T) {
	root, err := product.Root(t.Context())
	must(t, err)
	out, err := cluster.Kubectl(bounded(t), "apply", "--dry-run=server", "--validate=strict", "-k", filepath.Join(root, "manifests", "example"))
	must(t, err)
	for _, object := range []string{"deployment.apps/ccm-baremetal", "daemonset.apps/announcer", "configmap/ccm-baremetal"} {
		if !strings.Contains(out, object) {
			t.Errorf("no %s in:\n%s", object, out)
		}
	}
}
