package templates

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const proxyFile = "capi/addons/helmchartproxy.yaml"

// helmChartProxy is what a HelmChartProxy of version v1alpha1 has that is used
// here: its own type is in no module that can be imported.
type helmChartProxy struct {
	object `json:",inline"`
	Spec   struct {
		ClusterSelector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"clusterSelector"`
		RepoURL           string `json:"repoURL"`
		ChartName         string `json:"chartName"`
		Version           string `json:"version"`
		ReleaseName       string `json:"releaseName"`
		Namespace         string `json:"namespace"`
		ReconcileStrategy string `json:"reconcileStrategy"`
		Options           struct {
			Wait    bool `json:"wait"`
			Install struct {
				CreateNamespace bool `json:"createNamespace"`
			} `json:"install"`
		} `json:"options"`
		ValuesTemplate string `json:"valuesTemplate"`
	} `json:"spec"`
}

// chartFile reads a file of the chart.
func chartFile(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, "chart", name))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestHelmChartProxyInstallsTheChart(t *testing.T) {
	all := decode(t, proxyFile)
	proxy := one[*helmChartProxy](t, all)
	chart := chartFile(t, "Chart.yaml")
	if proxy.Spec.ChartName != chart["name"] || proxy.Spec.Version != chart["version"] || proxy.Spec.Namespace != "kube-system" {
		t.Errorf("%+v is not %v in kube-system", proxy.Spec, chart)
	}
	cluster := one[*clusterv1.Cluster](t, decode(t, "capi/metal3/cluster-template.yaml"))
	if !labels.SelectorFromSet(proxy.Spec.ClusterSelector.MatchLabels).Matches(labels.Set(cluster.Labels)) {
		t.Errorf("%v does not select %v", proxy.Spec.ClusterSelector, cluster.Labels)
	}
	set, secret := one[*addonsv1.ClusterResourceSet](t, all), one[*corev1.Secret](t, all)
	if len(set.Spec.Resources) != 1 || set.Spec.Resources[0].Name != secret.Name || secret.Type != addonsv1.ClusterResourceSetSecretType {
		t.Errorf("the resource set has %v, the Secret is %s of type %s", set.Spec.Resources, secret.Name, secret.Type)
	}
	other := one[*corev1.Secret](t, decode(t, "capi/addons/crs.yaml"))
	if secret.StringData["management.yaml"] != other.StringData["management.yaml"] {
		t.Error("the way to the management cluster is another than in crs.yaml")
	}
}

func TestValuesOfTheHelmChartProxyAreValid(t *testing.T) {
	values := renderedValues(t)
	unknownKeys(t, "", values, chartFile(t, "values.yaml"))
	document, _ := values["config"].(string)
	c, err := config.Load([]byte(document))
	if err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	if w := config.Warnings(c); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	secret := one[*corev1.Secret](t, decode(t, proxyFile))
	var delivered corev1.Secret
	if err := yaml.UnmarshalStrict([]byte(secret.StringData["management.yaml"]), &delivered); err != nil {
		t.Fatal(err)
	}
	metal3 := values["nodes"].(map[string]any)["metal3"].(map[string]any)
	if metal3["kubeconfigSecret"] != delivered.Name || c.Nodes.Metal3.KubeconfigSecret != delivered.Name {
		t.Errorf("the kubeconfig is in %s; the chart lets %v be read, the configuration names %s", delivered.Name, metal3["kubeconfigSecret"], c.Nodes.Metal3.KubeconfigSecret)
	}
}

// renderedValues are those for the Cluster of the template.
func renderedValues(t *testing.T) map[string]any {
	t.Helper()
	var cluster map[string]any
	for _, text := range objects(t, "capi/metal3/cluster-template.yaml") {
		var read map[string]any
		if err := yaml.Unmarshal([]byte(text), &read); err != nil {
			t.Fatal(err)
		}
		if read["kind"] == "Cluster" {
			cluster = read
		}
	}
	// Cluster API copies it from the infrastructure's object.
	host := one[*metal3Cluster](t, decode(t, "capi/metal3/cluster-template.yaml")).Spec.ControlPlaneEndpoint.Host
	cluster["spec"].(map[string]any)["controlPlaneEndpoint"] = map[string]any{"host": host}
	parsed, err := template.New("values").Option("missingkey=error").Parse(one[*helmChartProxy](t, decode(t, proxyFile)).Spec.ValuesTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := parsed.Execute(&text, map[string]any{"Cluster": cluster}); err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text.String()), &values); err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	return values
}

// unknownKeys fails the test for keys that the chart does not have.
func unknownKeys(t *testing.T, path string, values, known map[string]any) {
	t.Helper()
	for key, value := range values {
		its, ok := known[key]
		if !ok {
			t.Errorf("the chart has no value %s%s", path, key)
		}
		if inner, ok := value.(map[string]any); ok {
			below, _ := its.(map[string]any)
			unknownKeys(t, path+key+".", inner, below)
		}
	}
}
