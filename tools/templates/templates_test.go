package templates

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1beta1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var update = flag.Bool("update", false, "rewrite generated manifests")

const manifests = "../../manifests"

// values are what clusterctl would put into the templates.
var values = map[string]string{
	"CLUSTER_NAME": "prod", "NAMESPACE": "hosts", "KUBERNETES_VERSION": "v1.37.2",
	"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
	"POD_CIDR": "10.244.0.0/16", "SERVICE_CIDR": "10.96.0.0/16",
	"CONTROL_PLANE_ENDPOINT": "192.0.2.5", "CONTROL_PLANE_INTERFACE": "eth0", "KUBE_VIP_IMAGE": "kube-vip:v1.0.0",
	"IMAGE_URL": "http://192.0.2.2/node.raw", "IMAGE_CHECKSUM": "http://192.0.2.2/node.raw.sha256sum",
	"NODE_INTERFACE": "eth0", "NODE_IP_START": "192.0.2.11", "NODE_IP_END": "192.0.2.40", "NODE_NETWORK_PREFIX": "24", "NODE_GATEWAY": "192.0.2.1",
	"NODE_IP": "192.0.2.11", "NODE_NAME": "n1", "INFRASTRUCTURE_GROUP": "infrastructure.cluster.x-k8s.io", "MACHINE_TEMPLATE_KIND": "SomeMachineTemplate",
	"CHART_REPOSITORY": "https://charts.invalid", "SERVICE_ADDRESSES": "192.0.2.100-192.0.2.150",
	"MANAGEMENT_SERVER": "https://192.0.2.3:6443", "MANAGEMENT_CA": "Y2E=", "MANAGEMENT_TOKEN": "token",
}

var variable = regexp.MustCompile(`\$\{[A-Z_]+\}`)

// objects returns what a template says, one text for each object.
func objects(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, path))
	if err != nil {
		t.Fatal(err)
	}
	filled := variable.ReplaceAllStringFunc(string(text), func(v string) string {
		value, ok := values[strings.Trim(v, "${}")]
		if !ok {
			t.Errorf("%s: nobody knows %s", path, v)
		}
		return value
	})
	return strings.Split(filled, "\n---\n")
}

// The kinds of CAPM3 and its IPAM, as far as templates use them: their own
// types are in no module that can be imported. Field names are those of
// CAPM3 1.14.
type (
	metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	}
	object struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
	}
	metal3Cluster struct {
		object `json:",inline"`
		Spec   struct {
			ControlPlaneEndpoint struct {
				Host string `json:"host"`
				Port int32  `json:"port"`
			} `json:"controlPlaneEndpoint"`
			CloudProviderEnabled *bool `json:"cloudProviderEnabled"`
		} `json:"spec"`
	}
	metal3MachineTemplate struct {
		object `json:",inline"`
		Spec   struct {
			Template struct {
				Spec struct {
					DataTemplate struct {
						Name string `json:"name"`
					} `json:"dataTemplate"`
					Image struct {
						URL          string `json:"url"`
						Checksum     string `json:"checksum"`
						ChecksumType string `json:"checksumType"`
						DiskFormat   string `json:"diskFormat"` // v1beta2
						Format       string `json:"format"`     // v1beta1
					} `json:"image"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	fromPool struct {
		Key      string `json:"key"`
		Name     string `json:"name"`
		APIGroup string `json:"apiGroup"`
		Kind     string `json:"kind"`
	}
	metal3DataTemplate struct {
		object `json:",inline"`
		Spec   struct {
			ClusterName string `json:"clusterName"`
			MetaData    struct {
				ObjectNames []struct {
					Key    string `json:"key"`
					Object string `json:"object"`
				} `json:"objectNames"`
				IPAddressesFromPool   []fromPool `json:"ipAddressesFromPool"`   // v1beta2
				IPAddressesFromIPPool []fromPool `json:"ipAddressesFromIPPool"` // v1beta1
			} `json:"metaData"`
			NetworkData struct {
				Links struct {
					Ethernets []struct {
						Type       string            `json:"type"`
						ID         string            `json:"id"`
						MACAddress map[string]string `json:"macAddress"`
					} `json:"ethernets"`
				} `json:"links"`
				Networks struct {
					IPv4 []struct {
						ID                  string `json:"id"`
						Link                string `json:"link"`
						IPAddressFromIPPool string `json:"ipAddressFromIPPool"`
						Routes              []struct {
							Network string            `json:"network"`
							Prefix  int               `json:"prefix"`
							Gateway map[string]string `json:"gateway"`
						} `json:"routes"`
					} `json:"ipv4"`
				} `json:"networks"`
			} `json:"networkData"`
		} `json:"spec"`
	}
	ipPool struct {
		object `json:",inline"`
		Spec   struct {
			ClusterName string              `json:"clusterName"`
			NamePrefix  string              `json:"namePrefix"`
			Prefix      int                 `json:"prefix"`
			Gateway     string              `json:"gateway"`
			Pools       []map[string]string `json:"pools"`
		} `json:"spec"`
	}
)

// typeOf returns a value of the Go type of a kind.
func typeOf(apiVersion, kind string) any {
	switch apiVersion + " " + kind {
	case "cluster.x-k8s.io/v1beta2 Cluster":
		return &clusterv1.Cluster{}
	case "cluster.x-k8s.io/v1beta1 Cluster":
		return &clusterv1beta1.Cluster{}
	case "cluster.x-k8s.io/v1beta2 MachineDeployment":
		return &clusterv1.MachineDeployment{}
	case "cluster.x-k8s.io/v1beta1 MachineDeployment":
		return &clusterv1beta1.MachineDeployment{}
	case "cluster.x-k8s.io/v1beta2 MachineHealthCheck":
		return &clusterv1.MachineHealthCheck{}
	case "cluster.x-k8s.io/v1beta1 MachineHealthCheck":
		return &clusterv1beta1.MachineHealthCheck{}
	case "controlplane.cluster.x-k8s.io/v1beta2 KubeadmControlPlane":
		return &controlplanev1.KubeadmControlPlane{}
	case "controlplane.cluster.x-k8s.io/v1beta1 KubeadmControlPlane":
		return &controlplanev1beta1.KubeadmControlPlane{}
	case "bootstrap.cluster.x-k8s.io/v1beta2 KubeadmConfigTemplate":
		return &bootstrapv1.KubeadmConfigTemplate{}
	case "bootstrap.cluster.x-k8s.io/v1beta1 KubeadmConfigTemplate":
		return &bootstrapv1beta1.KubeadmConfigTemplate{}
	case "addons.cluster.x-k8s.io/v1beta2 ClusterResourceSet":
		return &addonsv1.ClusterResourceSet{}
	case "addons.cluster.x-k8s.io/v1alpha1 HelmChartProxy":
		return &helmChartProxy{}
	case "infrastructure.cluster.x-k8s.io/v1beta2 Metal3Cluster", "infrastructure.cluster.x-k8s.io/v1beta1 Metal3Cluster":
		return &metal3Cluster{}
	case "infrastructure.cluster.x-k8s.io/v1beta2 Metal3MachineTemplate", "infrastructure.cluster.x-k8s.io/v1beta1 Metal3MachineTemplate":
		return &metal3MachineTemplate{}
	case "infrastructure.cluster.x-k8s.io/v1beta2 Metal3DataTemplate", "infrastructure.cluster.x-k8s.io/v1beta1 Metal3DataTemplate":
		return &metal3DataTemplate{}
	case "ipam.metal3.io/v1alpha1 IPPool":
		return &ipPool{}
	case "v1 Pod":
		return &corev1.Pod{}
	case "v1 Secret":
		return &corev1.Secret{}
	case "v1 ConfigMap":
		return &corev1.ConfigMap{}
	case "v1 ServiceAccount":
		return &corev1.ServiceAccount{}
	case "rbac.authorization.k8s.io/v1 Role":
		return &rbacv1.Role{}
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return &rbacv1.RoleBinding{}
	}
	return nil
}

// decode reads the objects of a template strictly into their Go types.
func decode(t *testing.T, path string) []any {
	t.Helper()
	var out []any
	for _, text := range objects(t, path) {
		var head object
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatalf("%s: %v in\n%s", path, err, text)
		}
		typed := typeOf(head.APIVersion, head.Kind)
		if typed == nil {
			t.Fatalf("%s: no type for %s %s", path, head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(text), typed); err != nil {
			t.Errorf("%s: %s %s: %v", path, head.Kind, head.Metadata.Name, err)
		}
		out = append(out, typed)
	}
	return out
}

// one returns the only object of a type.
func one[T any](t *testing.T, all []any) T {
	t.Helper()
	found := each[T](all)
	if len(found) != 1 {
		t.Fatalf("%d objects are %T", len(found), *new(T))
	}
	return found[0]
}

func each[T any](all []any) []T {
	var found []T
	for _, o := range all {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

func TestEverythingDecodesStrictly(t *testing.T) {
	found := 0
	err := filepath.WalkDir(filepath.Join(manifests, "capi"), func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			relative, _ := filepath.Rel(manifests, path)
			found += len(decode(t, relative))
		}
		return err
	})
	if err != nil || found < 30 {
		t.Errorf("%d objects, %v", found, err)
	}
}

// kubelets returns the arguments of all kubelets in a template.
func kubelets(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	list := func(name string, args []bootstrapv1.Arg) {
		out[name] = map[string]string{}
		for _, a := range args {
			if _, twice := out[name][a.Name]; twice {
				t.Errorf("%s: %s has %s twice", path, name, a.Name)
			}
			out[name][a.Name] = *a.Value
		}
	}
	all := decode(t, path)
	for _, k := range each[*controlplanev1.KubeadmControlPlane](all) {
		list("init", k.Spec.KubeadmConfigSpec.InitConfiguration.NodeRegistration.KubeletExtraArgs)
		list("join", k.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.KubeletExtraArgs)
		noCloudFlags(t, path, fmt.Sprint(k.Spec.KubeadmConfigSpec.ClusterConfiguration))
	}
	for _, k := range each[*controlplanev1beta1.KubeadmControlPlane](all) {
		out["init"] = k.Spec.KubeadmConfigSpec.InitConfiguration.NodeRegistration.KubeletExtraArgs
		out["join"] = k.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.KubeletExtraArgs
		noCloudFlags(t, path, fmt.Sprint(k.Spec.KubeadmConfigSpec.ClusterConfiguration))
	}
	for _, k := range each[*bootstrapv1.KubeadmConfigTemplate](all) {
		list("worker", k.Spec.Template.Spec.JoinConfiguration.NodeRegistration.KubeletExtraArgs)
	}
	for _, k := range each[*bootstrapv1beta1.KubeadmConfigTemplate](all) {
		out["worker"] = k.Spec.Template.Spec.JoinConfiguration.NodeRegistration.KubeletExtraArgs
	}
	return out
}

// noCloudFlags: the API server has no such flag, and would not start.
func noCloudFlags(t *testing.T, path, clusterConfiguration string) {
	t.Helper()
	if strings.Contains(clusterConfiguration, "cloud-provider") {
		t.Errorf("%s: a flag about clouds in clusterConfiguration: %s", path, clusterConfiguration)
	}
}

func TestEveryKubeletAsksForItsNodeToBeInitialized(t *testing.T) {
	metal3 := map[string]string{
		"cloud-provider": "external", "provider-id": "metal3://{{ ds.meta_data.providerid }}",
		"node-ip": "{{ ds.meta_data.nodeIP }}", "node-labels": "metal3.io/uuid={{ ds.meta_data.uuid }}",
	}
	generic := map[string]string{"cloud-provider": "external", "node-ip": "192.0.2.11"}
	for path, want := range map[string]map[string]string{
		"capi/metal3/cluster-template.yaml":         metal3,
		"capi/metal3/cluster-template-v1beta1.yaml": metal3,
		"capi/generic/kubeadm.yaml":                 generic,
		"capi/generic/kubeadm-v1beta1.yaml":         generic,
	} {
		got := kubelets(t, path)
		for _, who := range []string{"init", "join", "worker"} {
			if fmt.Sprint(got[who]) != fmt.Sprint(want) {
				t.Errorf("%s: %s has %v, want %v", path, who, got[who], want)
			}
		}
	}
}

// Both versions of the template make the same cluster.
func TestTemplatesOfBothVersionsHaveTheSameObjects(t *testing.T) {
	names := func(path string) []string {
		var out []string
		for _, text := range objects(t, path) {
			var head object
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				t.Fatal(err)
			}
			out = append(out, head.Kind+" "+head.Metadata.Name)
		}
		return out
	}
	if a, b := names("capi/metal3/cluster-template.yaml"), names("capi/metal3/cluster-template-v1beta1.yaml"); !slices.Equal(a, b) {
		t.Errorf("%q and %q", a, b)
	}
}

func TestStaticPodInTheTemplatesIsTheOneBesideThem(t *testing.T) {
	pod := strings.TrimSpace(strings.Join(objects(t, "capi/static-pods/kube-vip.yaml"), "\n---\n"))
	k := one[*controlplanev1.KubeadmControlPlane](t, decode(t, "capi/metal3/cluster-template.yaml"))
	old := one[*controlplanev1beta1.KubeadmControlPlane](t, decode(t, "capi/metal3/cluster-template-v1beta1.yaml"))
	for _, got := range []string{k.Spec.KubeadmConfigSpec.Files[0].Content, old.Spec.KubeadmConfigSpec.Files[0].Content} {
		if strings.TrimSpace(got) != pod {
			t.Errorf("got\n%s\nwant\n%s", got, pod)
		}
	}
	if !strings.Contains(pod, `name: svc_enable, value: "false"`) {
		t.Error("kube-vip would serve Services too")
	}
}

func TestProviderIDDoesNotWaitForTheCCM(t *testing.T) {
	for _, path := range []string{"capi/metal3/cluster-template.yaml", "capi/metal3/cluster-template-v1beta1.yaml"} {
		all := decode(t, path)
		if c := one[*metal3Cluster](t, all); c.Spec.CloudProviderEnabled == nil || *c.Spec.CloudProviderEnabled {
			t.Errorf("%s: cloudProviderEnabled is not false", path)
		}
		for _, d := range each[*metal3DataTemplate](all) {
			pools := append(d.Spec.MetaData.IPAddressesFromPool, d.Spec.MetaData.IPAddressesFromIPPool...)
			if len(pools) != 1 || pools[0].Key != "nodeIP" || d.Spec.MetaData.ObjectNames[0].Object != "machine" {
				t.Errorf("%s: %s: %+v", path, d.Metadata.Name, d.Spec.MetaData)
			}
		}
	}
}

func TestResourceSetIsForTheClustersOfTheTemplates(t *testing.T) {
	addons := decode(t, "capi/addons/crs.yaml")
	set := one[*addonsv1.ClusterResourceSet](t, addons)
	selected := labels.SelectorFromSet(set.Spec.ClusterSelector.MatchLabels)
	cluster := one[*clusterv1.Cluster](t, decode(t, "capi/metal3/cluster-template.yaml"))
	old := one[*clusterv1beta1.Cluster](t, decode(t, "capi/metal3/cluster-template-v1beta1.yaml"))
	if !selected.Matches(labels.Set(cluster.Labels)) || !selected.Matches(labels.Set(old.Labels)) {
		t.Errorf("%s does not select %v", selected, cluster.Labels)
	}
	secret := one[*corev1.Secret](t, addons)
	install := one[*corev1.ConfigMap](t, decode(t, "capi/addons/install.yaml"))
	if secret.Type != addonsv1.ClusterResourceSetSecretType {
		t.Errorf("the Secret is of type %s", secret.Type)
	}
	want := []addonsv1.ResourceRef{{Kind: "ConfigMap", Name: install.Name}, {Kind: "Secret", Name: secret.Name}}
	if !slices.Equal(set.Spec.Resources, want) {
		t.Errorf("resources %v, want %v", set.Spec.Resources, want)
	}
}

func TestConfigurationInTheResourceSetIsValid(t *testing.T) {
	secret := one[*corev1.Secret](t, decode(t, "capi/addons/crs.yaml"))
	var user corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(secret.StringData["configuration.yaml"]), &user); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]byte(user.Data[config.ConfigMapKey]))
	if err != nil {
		t.Fatal(err)
	}
	if w := config.Warnings(c); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	var kubeconfig corev1.Secret
	if err := yaml.UnmarshalStrict([]byte(secret.StringData["management.yaml"]), &kubeconfig); err != nil {
		t.Fatal(err)
	}
	if kubeconfig.Name != c.Nodes.Metal3.KubeconfigSecret || kubeconfig.StringData["value"] == "" {
		t.Errorf("the kubeconfig is in %s, not in %s", kubeconfig.Name, c.Nodes.Metal3.KubeconfigSecret)
	}
	pool := one[*ipPool](t, decode(t, "capi/metal3/cluster-template.yaml"))
	for _, text := range []string{values["CONTROL_PLANE_ENDPOINT"], pool.Spec.Pools[0]["start"], pool.Spec.Pools[0]["end"]} {
		if in(t, c, text) {
			t.Errorf("%s is in a pool for Services", text)
		}
	}
}

// The install manifest is generated: go test . -update.
func TestInstallManifestIsThatOfTheRepository(t *testing.T) {
	var whole bytes.Buffer
	for i, overlay := range []string{"base", "metal3"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(manifests, overlay))
		if err != nil {
			t.Fatal(err)
		}
		text, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			whole.WriteString("---\n")
		}
		whole.Write(text)
	}
	var b strings.Builder
	b.WriteString("# Generated from manifests/base and manifests/metal3 by: (cd tools/templates && go test . -update)\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ccm-baremetal-install\n  namespace: ${NAMESPACE}\ndata:\n  install.yaml: |\n")
	for line := range strings.Lines(whole.String()) {
		if line != "\n" {
			line = "    " + line
		}
		b.WriteString(line)
	}
	path := filepath.Join(manifests, "capi", "addons", "install.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s is not what manifests/base and manifests/metal3 make: (cd tools/templates && go test . -update) rewrites it", path)
	}
}

// What may be read in the management cluster is what is read.
func TestManagementRoleIsExact(t *testing.T) {
	role := one[*rbacv1.Role](t, decode(t, "capi/management/rbac.yaml"))
	want := []rbacv1.PolicyRule{{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts", "hardwaredata"}, Verbs: []string{"list", "watch"}}}
	if fmt.Sprint(role.Rules) != fmt.Sprint(want) {
		t.Errorf("got %v", role.Rules)
	}
}

// A host is read as its own Go type writes it.
func TestHostsAreReadAsMetal3WritesThem(t *testing.T) {
	typed := v1alpha1.BareMetalHost{}
	typed.Namespace, typed.Name, typed.UID = "hosts", "host-1", "u-1"
	typed.Labels = map[string]string{"rack": "a7"}
	typed.Annotations = map[string]string{v1alpha1.PausedAnnotation: ""}
	typed.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "hosts", Name: "m-1"}
	typed.Status.OperationalStatus = v1alpha1.OperationalStatusOK
	typed.Status.PoweredOn = true
	typed.Status.Provisioning.State = v1alpha1.StateExternallyProvisioned
	typed.Status.Provisioning.ID = "ironic-1"
	typed.Status.HardwareDetails = &v1alpha1.HardwareDetails{
		SystemVendor: v1alpha1.HardwareSystemVendor{ProductName: "R650"},
		NIC:          []v1alpha1.NIC{{IP: "203.0.113.7"}, {IP: "fe80::1"}},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if err != nil {
		t.Fatal(err)
	}
	h, err := instances.HostFrom(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	want := "{hosts host-1 u-1 map[rack:a7] Metal3Machine hosts/m-1 externally provisioned true true OK paused R650 [203.0.113.7 fe80::1]}"
	if got := fmt.Sprint(h); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
