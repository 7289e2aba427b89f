package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/version"
)

// execute runs a command line that ends by itself.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(context.Background(), args, &out, &errs)
	return out.String(), err
}

func TestRefusedCommandLinesSayWhatToDo(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(broken, []byte(config.Smallest+"bogus: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--cloud-provider=external"}, []string{"is for the kubelet", "leave the flag out"}},
		{[]string{"--cloud-provider=aws"}, []string{"the only provider here is baremetal"}},
		{[]string{"--cloud-provider="}, []string{"the only provider here is baremetal"}},
		{[]string{"--controllers=cloud-node,service"}, []string{"--controllers=cloud-node,service", "add it", "configuration-controller"}},
		{[]string{"--controllers=*,-configuration-controller"}, []string{"nobody reads the configuration"}},
		{[]string{"--cloud-config", "/no/such/file"}, []string{"read --cloud-config", "no such file"}},
		{[]string{"--cloud-config", broken}, []string{broken, "bogus"}},
		{[]string{"--bogus"}, []string{"unknown flag: --bogus", "ccm-baremetal --help"}},
		{[]string{"bogus"}, []string{"bogus"}},
	} {
		_, err := execute(t, c.args...)
		if err == nil {
			t.Errorf("%v: accepted", c.args)
			continue
		}
		for _, text := range c.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%v: %q does not say %q", c.args, err, text)
			}
		}
	}
}

func TestHelpBeginsWithWhatIsOurs(t *testing.T) {
	text, err := execute(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	screen := strings.Join(strings.Split(text, "\n")[:50], "\n")
	for _, want := range []string{
		"ccm-baremetal makes bare metal behave like a cloud provider", "- addresses: [192.0.2.100-192.0.2.150]",
		"--cloud-config FILE", "/healthz?exclude=configuration-controller", "Examples:", "check-config", "Baremetal flags:", "--namespace",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("the first screen does not say %q:\n%s", want, screen)
		}
	}
	if !strings.Contains(text, "--leader-elect") || strings.Contains(text, "cloud-controller-manager [flags]") {
		t.Errorf("the framework's flags are missing, or its name is not:\n%s", text)
	}
	for i, line := range strings.Split(screen, "\n") {
		if len(line) > 100 {
			t.Errorf("line %d is too wide: %s", i+1, line)
		}
	}
}

func TestHelpOfCommandsIsTheirOwn(t *testing.T) {
	text, err := execute(t, "help", "check-config")
	if err != nil || !strings.Contains(text, "check-config FILE...") || strings.Contains(text, "--leader-elect") {
		t.Errorf("%v:\n%s", err, text)
	}
}

func TestVersionIsOurs(t *testing.T) {
	text, err := execute(t, "--version")
	if err != nil || text != "ccm-baremetal "+version.String()+"\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestDefaultsAreOurs(t *testing.T) {
	cmd, err := newCommand(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cloud-provider":             "baremetal",
		"leader-elect-resource-name": "ccm-baremetal",
		"concurrent-service-syncs":   "8",
		"kube-api-qps":               "100",
		"kube-api-burst":             "200",
		"authentication-skip-lookup": "true",
		"namespace":                  "kube-system",
		"secure-port":                "10258",
	} {
		if flag := cmd.Flags().Lookup(name); flag == nil || flag.DefValue != want {
			t.Errorf("--%s: %v, want %s", name, flag, want)
		}
	}
}

func TestWhatFollowsFromTheCommandLine(t *testing.T) {
	o, err := newOptions()
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := newCommand(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	o.Generic.ClientConnection.Kubeconfig = "admin.conf"
	o.Authorization.RemoteKubeConfigFile = "other.conf"
	if err := prepare(cmd, o, &flags{namespace: "metal"}); err != nil {
		t.Fatal(err)
	}
	if got := o.Generic.LeaderElection.ResourceNamespace; got != "metal" {
		t.Errorf("the lease is in %s", got)
	}
	if o.Authentication.RemoteKubeConfigFile != "admin.conf" || o.Authorization.RemoteKubeConfigFile != "other.conf" {
		t.Errorf("reviews by %s and %s", o.Authentication.RemoteKubeConfigFile, o.Authorization.RemoteKubeConfigFile)
	}
	if err := cmd.Flags().Set("leader-elect-resource-namespace", "kube-system"); err != nil {
		t.Fatal(err)
	}
	o.Generic.LeaderElection.ResourceNamespace = "kube-system"
	if err := prepare(cmd, o, &flags{namespace: "metal"}); err != nil {
		t.Fatal(err)
	}
	if got := o.Generic.LeaderElection.ResourceNamespace; got != "kube-system" {
		t.Errorf("the flag is overruled by %s", got)
	}
}
