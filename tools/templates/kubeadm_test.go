package templates

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// kubeadmFile is what kubeadm's configuration files of version v1beta4 have
// that the examples use. Its Go types are in Kubernetes itself.
type kubeadmFile struct {
	APIVersion           string              `json:"apiVersion"`
	Kind                 string              `json:"kind"`
	BootstrapTokens      []map[string]string `json:"bootstrapTokens"`
	LocalAPIEndpoint     map[string]string   `json:"localAPIEndpoint"`
	KubernetesVersion    string              `json:"kubernetesVersion"`
	ControlPlaneEndpoint string              `json:"controlPlaneEndpoint"`
	Networking           map[string]string   `json:"networking"`
	Discovery            struct {
		BootstrapToken struct {
			APIServerEndpoint string   `json:"apiServerEndpoint"`
			Token             string   `json:"token"`
			CACertHashes      []string `json:"caCertHashes"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	ControlPlane struct {
		LocalAPIEndpoint map[string]string `json:"localAPIEndpoint"`
		CertificateKey   string            `json:"certificateKey"`
	} `json:"controlPlane"`
	NodeRegistration struct {
		Name             string `json:"name"`
		KubeletExtraArgs []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"kubeletExtraArgs"`
	} `json:"nodeRegistration"`
}

func TestKubeadmExamplesAskForInitialization(t *testing.T) {
	kinds := map[string][]string{
		"init.yaml":               {"InitConfiguration", "ClusterConfiguration"},
		"join-control-plane.yaml": {"JoinConfiguration"},
		"join-worker.yaml":        {"JoinConfiguration"},
	}
	for name, want := range kinds {
		text, err := os.ReadFile(filepath.Join(manifests, "kubeadm", name))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			var f kubeadmFile
			if err := yaml.UnmarshalStrict([]byte(part), &f); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got = append(got, f.Kind)
			if f.APIVersion != "kubeadm.k8s.io/v1beta4" {
				t.Errorf("%s: %s", name, f.APIVersion)
			}
			if args := f.NodeRegistration.KubeletExtraArgs; f.Kind != "ClusterConfiguration" &&
				(len(args) != 2 || args[0].Name != "cloud-provider" || args[0].Value != "external" || args[1].Name != "node-ip" || args[1].Value == "") {
				t.Errorf("%s: the kubelet gets %v", name, args)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
