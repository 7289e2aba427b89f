package kubeadm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubernetes/cmd/kubeadm/app/util/config"
)

const examples = "../../../manifests/kubeadm"

// kubeadm config validate has nothing to say about the examples.
func TestKubeadmAcceptsTheExamples(t *testing.T) {
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := config.ValidateConfig(text, false, false); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

func TestKubeadmRefusesFaultsInTheExamples(t *testing.T) {
	for _, fault := range []struct{ file, was, is string }{
		{"init.yaml", "advertiseAddress: 192.0.2.11", "advertiseAddress: 192.0.2.311"},
		{"init.yaml", "serviceSubnet: 10.96.0.0/16,fd00:96::/112", "serviceSubnet: 10.96.0.0/16,10.97.0.0/16"},
		{"init.yaml", "kubeletExtraArgs:", "kubeletArgs:"},
		{"join-control-plane.yaml", "advertiseAddress: 192.0.2.12", "advertiseAddress: node-2"},
		{"join-worker.yaml", "token: abcdef.0123456789abcdef", "token: abcdef"},
	} {
		text, err := os.ReadFile(filepath.Join(examples, fault.file))
		if err != nil {
			t.Fatal(err)
		}
		wrong := strings.Replace(string(text), fault.was, fault.is, 1)
		if wrong == string(text) {
			t.Fatalf("%s has no %q", fault.file, fault.was)
		}
		if err := config.ValidateConfig([]byte(wrong), false, false); err == nil {
			t.Errorf("%s with %q is accepted", fault.file, fault.is)
		}
	}
}
