package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite docs/reference/chart.md")

const reference = "../../docs/reference/chart.md"

type schema struct {
	Description string
	Properties  map[string]schema
}

// leaves returns the descriptions of all values, by path.
func leaves(t *testing.T) map[string]string {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, "chart", "values.schema.json")))
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	delete(root.Properties, "global") // Helm's, not ours
	out := map[string]string{}
	var walk func(prefix string, s schema)
	walk = func(prefix string, s schema) {
		for name, property := range s.Properties {
			if len(property.Properties) > 0 {
				walk(prefix+name+".", property)
				continue
			}
			out[prefix+name] = property.Description
		}
	}
	walk("", root)
	return out
}

// defaults returns the value of each path in values.yaml, as JSON.
func defaults(t *testing.T, paths []string) map[string]string {
	t.Helper()
	values := must[map[string]any](t)(readValues(filepath.Join(manifests, "chart", "values.yaml")))
	out := map[string]string{}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		if !slices.Contains(paths, prefix) {
			if m, ok := v.(map[string]any); ok {
				for name, below := range m {
					walk(strings.TrimPrefix(prefix+"."+name, "."), below)
				}
				return
			}
		}
		out[prefix] = string(must[[]byte](t)(json.Marshal(v)))
	}
	walk("", values)
	return out
}

func TestValuesAreDocumented(t *testing.T) {
	described := leaves(t)
	paths := slices.Sorted(maps.Keys(described))
	given := defaults(t, paths)
	if has := slices.Sorted(maps.Keys(given)); !slices.Equal(paths, has) {
		t.Errorf("the schema has %v, values.yaml %v", paths, has)
	}
	var b bytes.Buffer
	fmt.Fprint(&b, "# Values of the Helm chart\n\nGenerated from `manifests/chart` by `make update`. The defaults make the objects of `manifests/base`.\n\n| value | default | what it does |\n|---|---|---|\n")
	for _, path := range paths {
		if described[path] == "" {
			t.Errorf("%s has no description", path)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", path, given[path], described[path])
	}
	if *update {
		if err := os.WriteFile(reference, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(reference); err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is not what the chart says (%v): (cd tools/install && go test . -update) rewrites it", reference, err)
	}
}

// effects has for each value one setting, and what is in the objects with it and
// not without it (after "not ": the other way around).
var effects = map[string]struct{ values, text string }{
	"announcer.extraArgs":           {"announcer: {extraArgs: [--log-level=debug]}", "- --log-level=debug"},
	"announcer.maxUnavailable":      {"announcer: {maxUnavailable: 3}", "maxUnavailable: 3"},
	"announcer.nodeSelector":        {`announcer: {nodeSelector: {edge: "true"}}`, `edge: "true"`},
	"announcer.resources":           {"announcer: {resources: {limits: {memory: 96Mi}}}", "memory: 96Mi"},
	"bgp.frrK8s.enabled":            {"bgp: {frrK8s: {enabled: true}}", "name: announcer-frr-k8s"},
	"bgp.frrK8s.namespace":          {"bgp: {frrK8s: {enabled: true, namespace: metallb-system}}", "- --frr-k8s-namespace=metallb-system"},
	"bgp.frrK8s.passwordSecrets":    {"bgp: {frrK8s: {enabled: true, passwordSecrets: [tor-c]}}", "- tor-c"},
	"bgp.backend":                   {"bgp: {backend: frr}", "image: frr:8.4.4"},
	"bgp.frr.image":                 {"bgp: {backend: frr, frr: {image: mine:9}}", "image: mine:9"},
	"bgp.frr.resources":             {"bgp: {backend: frr, frr: {resources: {limits: {memory: 77Mi}}}}", "memory: 77Mi"},
	"bgp.passwordSecrets":           {"bgp: {passwordSecrets: [tor-a, tor-b]}", "- tor-b"},
	"ccm.extraArgs":                 {"ccm: {extraArgs: [--v=4]}", "- --v=4"},
	"ccm.hostNetwork":               {"ccm: {hostNetwork: false}", "not hostNetwork: true\n      nodeSelector:\n        kubernetes.io/os: linux\n      priorityClassName: system-cluster-critical"},
	"ccm.replicas":                  {"ccm: {replicas: 3}", "replicas: 3"},
	"ccm.resources":                 {"ccm: {resources: {limits: {cpu: 321m}}}", "cpu: 321m"},
	"config":                        {"config: \"apiVersion: ccm-baremetal.io/v1alpha1\\nkind: CloudConfig\\n\"", "kind: CloudConfig"},
	"image.pullPolicy":              {"image: {pullPolicy: Always}", "imagePullPolicy: Always"},
	"image.pullSecrets":             {"image: {pullSecrets: [pull]}", "- name: pull"},
	"image.registry":                {"image: {registry: registry.test/a}", "image: registry.test/a/announcer:v0.1.0"},
	"image.tag":                     {"image: {tag: v9}", "image: ccm-baremetal:v9"},
	"networkPolicy":                 {"networkPolicy: false", "not kind: NetworkPolicy"},
	"nodes.delete":                  {"nodes: {delete: true}", "name: ccm-baremetal-delete-nodes"},
	"nodes.manage":                  {"nodes: {manage: false}", "- --controllers=configuration-controller,"},
	"nodes.metal3.enabled":          {"nodes: {metal3: {enabled: true}}", "name: ccm-baremetal-metal3"},
	"nodes.metal3.kubeconfigSecret": {"nodes: {metal3: {enabled: true, kubeconfigSecret: mine}}", "- mine"},
	"observeOnly":                   {"observeOnly: true", "- --observe-only"},
	"podDisruptionBudget":           {"podDisruptionBudget: false", "not kind: PodDisruptionBudget"},
}

// print writes objects in one form, without the comments of templates.
func print(t *testing.T, all map[string]map[string]any) string {
	t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		b.Write(must[[]byte](t)(yaml.Marshal(all[key])))
	}
	return b.String()
}

func TestEveryValueHasItsEffect(t *testing.T) {
	plain := print(t, charted(t, "kube-system", ""))
	for path := range leaves(t) {
		e, ok := effects[path]
		if !ok {
			t.Errorf("nobody tests %s", path)
			continue
		}
		changed := print(t, charted(t, "kube-system", e.values))
		text, gone := strings.CutPrefix(e.text, "not ")
		if strings.Contains(changed, text) == gone || strings.Contains(plain, text) != gone {
			t.Errorf("%s: %s does not do it:\n%s", path, e.values, changed)
		}
	}
}

func TestSchemaRefusesWhatItDoesNotKnow(t *testing.T) {
	for values, place := range map[string]string{
		"imgae: {tag: v1}":                    "imgae",
		"ccm: {replicas: 0}":                  "/ccm/replicas",
		"ccm: {replica: 2}":                   "replica",
		"ccm: {extraArgs: [v=4]}":             "/ccm/extraArgs/0",
		"announcer: {maxUnavailable: 0%}":     "/announcer/maxUnavailable",
		"image: {registry: registry.test/a/}": "/image/registry",
		"image: {pullPolicy: Sometimes}":      "/image/pullPolicy",
		"config: {pools: []}":                 "/config",
		"bgp: {backend: bird}":                "/bgp/backend",
		"bgp: {passwordSecrets: [a, a]}":      "/bgp/passwordSecrets",
		"nodes: {metal3: {namespace: hosts}}": "namespace",
		"observeOnly: maybe":                  "/observeOnly",
	} {
		given := map[string]any{}
		if err := yaml.Unmarshal([]byte(values), &given); err != nil {
			t.Fatal(err)
		}
		_, err := chart(filepath.Join(manifests, "chart"), "kube-system", given)
		if err == nil || !strings.Contains(err.Error(), place) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestChartIsClean(t *testing.T) {
	linted := lint.RunAll(filepath.Join(manifests, "chart"), map[string]any{}, "kube-system")
	for _, m := range linted.Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
}
