package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"
)

const manifests = "../../manifests"

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// objects returns what a YAML text says, by kind, namespace and name.
func objects(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, part := range strings.Split("\n"+string(text), "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		var whole map[string]any
		if err := yaml.Unmarshal([]byte(part), &object); err != nil {
			t.Fatalf("%v in:\n%s", err, part)
		}
		if err := yaml.UnmarshalStrict([]byte(part), &whole); err != nil {
			t.Fatalf("%v in:\n%s", err, part)
		}
		if len(whole) == 0 {
			continue
		}
		key := object.Kind + " " + object.Metadata.Namespace + "/" + object.Metadata.Name
		if out[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		out[key] = whole
	}
	return out
}

func kustomized(t *testing.T, overlays ...string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, o := range overlays {
		maps.Copy(all, objects(t, must[[]byte](t)(overlay(filepath.Join(manifests, o), ""))))
	}
	return all
}

func charted(t *testing.T, namespace, values string) map[string]map[string]any {
	t.Helper()
	given := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	return objects(t, must[[]byte](t)(chart(filepath.Join(manifests, "chart"), namespace, given)))
}

// equivalents are values by which the chart makes exactly the objects of overlays.
var equivalents = []struct {
	values   string
	overlays []string
}{
	{"", []string{"base"}},
	{"bgp: {passwordSecrets: [bgp-tor]}", []string{"bgp"}},
	{"bgp: {frrK8s: {enabled: true, passwordSecrets: [bgp-tor]}}", []string{"bgp-frr-k8s"}},
	{"bgp: {backend: frr}", []string{"bgp-frr"}},
	{"nodes: {manage: false}\nccm: {hostNetwork: false}", []string{"lb-only"}},
	{"nodes: {metal3: {enabled: true}}", []string{"base", "metal3"}},
	{"nodes: {delete: true}", []string{"base", "delete-nodes"}},
	{"observeOnly: true", []string{"example/observe"}},
	{"observeOnly: true\nbgp: {backend: frr}", []string{"example/observe"}}, // a rehearsal takes no FRR
}

func TestChartMakesTheObjectsOfTheOverlays(t *testing.T) {
	for _, e := range equivalents {
		want, got := kustomized(t, e.overlays...), charted(t, "kube-system", e.values)
		if d := diff.Diff(want, got); d != "" {
			t.Errorf("%v and the chart with %q differ:\n%s", e.overlays, e.values, d)
		}
	}
}

func TestChartTakesTheConfigurationOfTheExample(t *testing.T) {
	document := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, "example", "config.yaml")))
	values := must[[]byte](t)(json.Marshal(map[string]string{"config": string(document)}))
	const key = "ConfigMap kube-system/ccm-baremetal"
	want, got := kustomized(t, "example")[key], charted(t, "kube-system", string(values))[key]
	if d := diff.Diff(want["data"], got["data"]); d != "" {
		t.Error(d)
	}
}

// Each directory that kustomize can build is one that somebody has thought of:
// the chart has an equivalent, or it is known why it has none.
func TestEveryOverlayIsKnown(t *testing.T) {
	known := map[string]bool{
		"example": true, // config in the values
	}
	for _, e := range equivalents {
		for _, o := range e.overlays {
			known[o] = true
		}
	}
	for _, path := range must[[]string](t)(filepath.Glob(filepath.Join(manifests, "*", "kustomization.yaml"))) {
		if name := filepath.Base(filepath.Dir(path)); !known[name] {
			t.Errorf("no values of the chart make the objects of manifests/%s", name)
		}
	}
}

// Who installs elsewhere than in kube-system has everything there, the
// programs look there, and the policy is about the account that is there.
func TestChartInAnotherNamespace(t *testing.T) {
	text := string(must[[]byte](t)(chart(filepath.Join(manifests, "chart"), "lb", map[string]any{})))
	for key := range objects(t, []byte(text)) {
		kind, rest, _ := strings.Cut(key, " ")
		namespace, _, _ := strings.Cut(rest, "/")
		cluster := strings.HasPrefix(kind, "Cluster") || strings.HasPrefix(kind, "ValidatingAdmission")
		if want := map[bool]string{true: "", false: "lb"}[cluster]; namespace != want {
			t.Errorf("%s is not in %q", key, want)
		}
	}
	if n := strings.Count(text, "- --namespace=lb\n"); n != 2 {
		t.Errorf("%d programs are told their namespace", n)
	}
	if !strings.Contains(text, "'system:serviceaccount:lb:announcer'") {
		t.Error("the policy is about another account")
	}
	// What is left of kube-system is the namespace whose UID tells clusters apart.
	if n := strings.Count(text, "kube-system"); n != strings.Count(text, "resourceNames: [kube-system]")+strings.Count(text, "# the UID of kube-system") {
		t.Errorf("kube-system is named %d times:\n%s", n, text)
	}
}

func TestLoadBalancersOnlyMeansNoRightToChangeANode(t *testing.T) {
	rules := func(overlay string) []any {
		return kustomized(t, overlay)["ClusterRole /ccm-baremetal"]["rules"].([]any)
	}
	var want []string
	for _, r := range rules("base") {
		text := string(must[[]byte](t)(json.Marshal(r)))
		if strings.Contains(text, `"nodes/status"`) || strings.Contains(text, `"nodes"`) && strings.Contains(text, `"update"`) {
			continue
		}
		want = append(want, text)
	}
	var got []string
	for _, r := range rules("lb-only") {
		got = append(got, string(must[[]byte](t)(json.Marshal(r))))
	}
	if !slices.Equal(want, got) || len(got) == len(rules("base")) {
		t.Errorf("the rules of manifests/base that do not change Nodes:\n%s\nthose of manifests/lb-only:\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

func TestReleaseIsReproducibleAndHasItsVersion(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if err := run([]string{"-version", "v7.8.9", "-out", dir}, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, directory := range released {
		one := must[[]byte](t)(os.ReadFile(filepath.Join(first, name)))
		two := must[[]byte](t)(os.ReadFile(filepath.Join(second, name)))
		if !bytes.Equal(one, two) {
			t.Errorf("%s differs between two runs", name)
		}
		plain := must[[]byte](t)(overlay(filepath.Join(manifests, directory), ""))
		versioned := strings.NewReplacer("image: ccm-baremetal:v0.1.0", "image: ccm-baremetal:v7.8.9", "image: announcer:v0.1.0", "image: announcer:v7.8.9").Replace(string(plain))
		if _, body, _ := strings.Cut(string(one), "\n"); body != versioned {
			t.Errorf("%s is not manifests/%s with the version:\n%s", name, directory, diff.Diff(versioned, body))
		}
	}
}

func TestImagesNameNoRegistry(t *testing.T) {
	for _, e := range equivalents {
		for key, object := range kustomized(t, e.overlays...) {
			for _, line := range strings.Split(string(must[[]byte](t)(yaml.Marshal(object))), "\n") {
				_, image, is := strings.Cut(line, "image: ")
				if name, _, _ := strings.Cut(image, ":"); is && name != "frr" && !slices.Contains(images, name) {
					t.Errorf("%s: image %s", key, image)
				}
			}
		}
	}
}
