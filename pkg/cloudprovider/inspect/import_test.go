package inspect

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/migrate"
	"github.com/ccm-baremetal/ccm-baremetal/test/fakeapi"
)

// importRun runs import with a standard input.
func importRun(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := NewImportCommand(Options{Program: "ccm-baremetal", Cluster: func() Cluster { return &Connection{} }})
	var out, errs bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

const kubeVIP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kubevip}\ndata: {range-global: 192.0.2.1-192.0.2.9}\n"

func TestImportExitCodes(t *testing.T) {
	lossy := strings.Replace(kubeVIP, "range-global", "allow-share-x: \"true\", range-global", 1)
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
		say   string
	}{
		"whole":    {kubeVIP, []string{"-"}, 0, "note: -: ConfigMap kubevip"},
		"loss":     {lossy, []string{"-"}, 3, "loss: -: ConfigMap kubevip: data.allow-share-x"},
		"allowed":  {lossy, []string{"--allow-loss", "-"}, 0, "loss: "},
		"fault":    {"- 1", []string{"-"}, 1, "fault: "},
		"nothing":  {"", []string{"-"}, 1, "there is nothing in it"},
		"no file":  {"", []string{"/no/such/file"}, 2, ""},
		"no args":  {"", nil, 2, ""},
		"bad flag": {kubeVIP, []string{"-", "-o", "wide"}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := importRun(t, c.stdin, c.args...)
			if ExitCode(err) != c.code || !strings.Contains(stderr, c.say) {
				t.Errorf("exit code %d (%v), want %d; %q", ExitCode(err), err, c.code, stderr)
			}
			if _, wrong := config.Load([]byte(stdout)); (wrong == nil) != (c.code == 0 || c.code == 3) {
				t.Errorf("document: %v\n%s", wrong, stdout)
			}
		})
	}
}

func TestImportReportGoesToItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	_, stderr, err := importRun(t, kubeVIP, "--report", path, "-")
	text, _ := os.ReadFile(path)
	if err != nil || stderr != "" || !strings.HasPrefix(string(text), "note: ") {
		t.Errorf("%v, %q, %q", err, stderr, text)
	}
}

// A live cluster with MetalLB: one Service keeps its address, one has another
// class and would not be ours, and one kind may not be read.
func TestImportFromAClusterSaysWhoKeepsItsAddress(t *testing.T) {
	keeps, theirs := *fakeapi.Held("keeps", "192.0.2.1"), *fakeapi.Held("theirs", "192.0.2.2")
	keeps.Status.Conditions, theirs.Status.Conditions = nil, nil
	class := "example.com/other"
	theirs.Spec.LoadBalancerClass = &class
	list := func(kind, name string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": "metallb.io/v1beta1", "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "1"},
			"items": []any{map[string]any{"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}}
	}
	kubeconfig := fakeapi.Serve(t, map[string]any{
		"/api/v1/services":                          v1.ServiceList{Items: []v1.Service{keeps, theirs}},
		"/api/v1/nodes":                             v1.NodeList{Items: []v1.Node{{}}},
		"/api/v1/namespaces":                        v1.NamespaceList{},
		"/apis/metallb.io/v1beta1/ipaddresspools":   list("IPAddressPool", "lan", map[string]any{"addresses": []string{"192.0.2.0/29"}}),
		"/apis/metallb.io/v1beta1/l2advertisements": list("L2Advertisement", "lan", map[string]any{}),
		"/apis/metallb.io/v1beta1/bfdprofiles":      apierrors.NewForbidden(v1.Resource("bfdprofiles"), "", nil).Status(),
	})
	stdout, _, err := importRun(t, "", "--cluster", "--kubeconfig", kubeconfig, "-o", "json")
	var got imported
	if wrong := json.Unmarshal([]byte(stdout), &got); wrong != nil {
		t.Fatalf("%v: %s", wrong, stdout)
	}
	if ExitCode(err) != exitLosses || got.InUse != 2 || len(got.Services) != 1 || got.Services[0].Service != "shop/theirs" {
		t.Errorf("exit code %d (%v): %s", ExitCode(err), err, stdout)
	}
	if c, wrong := config.Load([]byte(got.Document)); wrong != nil || c.Pools[0].Name != "lan" {
		t.Errorf("%v: %s", wrong, got.Document)
	}
	if len(got.Losses) != 1 || !strings.Contains(got.Losses[0].Path, "bfdprofiles") || !strings.Contains(got.Losses[0].Message, "no right") {
		t.Errorf("losses %v", got.Losses)
	}
	absent := func(r migrate.Remark) bool {
		return r.Path == "metallb.io" && strings.HasSuffix(r.Message, ": addresspools, bgpadvertisements, bgppeers, communities")
	}
	if !slices.ContainsFunc(got.Notes, absent) {
		t.Errorf("notes %v", got.Notes)
	}
	if strings.Contains(stdout, "null") {
		t.Errorf("a null in %s", stdout)
	}
}

// What MetalLB's speakers run with is read too: it decides which backend has BFD.
func TestImportFromAClusterSeesWhichFRRMetalLBUses(t *testing.T) {
	list := func(kind string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": "metallb.io/v1beta1", "kind": kind + "List",
			"items": []any{map[string]any{"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": map[string]any{"name": "one"}, "spec": spec}}}
	}
	env := []any{map[string]any{"name": "METALLB_NODE_NAME"}, map[string]any{"name": "METALLB_BGP_TYPE", "value": "frr-k8s"}}
	kubeconfig := fakeapi.Serve(t, map[string]any{
		"/api/v1/services":                           v1.ServiceList{},
		"/api/v1/nodes":                              v1.NodeList{Items: []v1.Node{{}}},
		"/api/v1/namespaces":                         v1.NamespaceList{},
		"/apis/metallb.io/v1beta1/ipaddresspools":    list("IPAddressPool", map[string]any{"addresses": []string{"192.0.2.0/29"}}),
		"/apis/metallb.io/v1beta1/bgpadvertisements": list("BGPAdvertisement", map[string]any{}),
		"/apis/metallb.io/v1beta2/bgppeers":          list("BGPPeer", map[string]any{"myASN": 64500, "peerASN": 64501, "peerAddress": "198.51.100.1", "bfdProfile": "one"}),
		"/apis/metallb.io/v1beta1/bfdprofiles":       list("BFDProfile", map[string]any{"receiveInterval": 100}),
		"/apis/apps/v1/namespaces/metallb-system/daemonsets/metallb-speaker": map[string]any{
			"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"name": "metallb-speaker", "namespace": "metallb-system"},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "speaker", "env": env}}}}},
		},
	})
	stdout, stderr, err := importRun(t, "", "--cluster", "--kubeconfig", kubeconfig)
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	c, err := config.Load([]byte(stdout))
	if err != nil || c.BGP.Backend != config.FRRK8s || c.BGP.Peers[0].BFD == nil || c.BGP.Peers[0].BFD.ReceiveInterval != 100*time.Millisecond {
		t.Errorf("%v: %s", err, stdout)
	}
	if !strings.Contains(stderr, "note: the new document: bgp.backend: frr-k8s, for BFD") {
		t.Errorf("the report does not say why:\n%s", stderr)
	}
}

func TestImportSaysWhenTheClusterCannotBeRead(t *testing.T) {
	kubeconfig := fakeapi.Serve(t, nil)
	if _, _, err := importRun(t, "", "--cluster", "--kubeconfig", kubeconfig); ExitCode(err) != ExitUnreadable {
		t.Errorf("%v", err)
	}
}
