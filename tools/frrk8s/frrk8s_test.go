package frrk8s

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	frrk8s "github.com/metallb/frr-k8s/api/v1beta1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const goldens = "../../pkg/announcer/bgp/frrk8s/testdata/*.yaml"

// crd returns the schema of frr-k8s's own FRRConfiguration. Its numbers of 32
// bits have the format int32, of which API servers take notice from some
// version on: half of all AS numbers would not fit.
func crd(t *testing.T) *apiextensions.JSONSchemaProps {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/metallb/frr-k8s").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/bases/frrk8s.metallb.io_frrconfigurations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("format: int32"), []byte("format: int64"))
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == frrk8s.GroupVersion.Version
	})
	if i < 0 {
		t.Fatal("frr-k8s has another version of its API")
	}
	out := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// judge is what an API server with the CRD makes of objects.
type judge struct {
	structure *structural.Structural
	schema    validation.SchemaValidator
	rules     *cel.Validator
}

func newJudge(t *testing.T) judge {
	t.Helper()
	props := crd(t)
	s, err := structural.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	const budget = 10_000_000 // as the API server has
	return judge{s, v, cel.NewValidator(s, true, budget)}
}

// faults returns what is wrong with an object, keys that the schema does not
// have included.
func (j judge) faults(t *testing.T, object map[string]any) []string {
	t.Helper()
	before := copied(t, object)
	pruning.Prune(object, j.structure, true)
	var out []string
	if d := diff.Diff(before, object); d != "" {
		out = append(out, "unknown keys:\n"+d)
	}
	defaulting.Default(object, j.structure)
	errs := validation.ValidateCustomResource(nil, object, j.schema)
	more, _ := j.rules.Validate(t.Context(), field.NewPath(""), j.structure, object, nil, 1<<40)
	for _, err := range append(errs, more...) {
		out = append(out, err.Error())
	}
	return out
}

func copied(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// object reads a golden file as the API server does: whole numbers are integers.
func object(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict(read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func files(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(goldens)
	if err != nil || len(all) < 15 {
		t.Fatalf("%d golden files, %v", len(all), err)
	}
	return all
}

func TestFRRConfigurationsAreAcceptedByTheSchema(t *testing.T) {
	j := newJudge(t)
	for _, path := range files(t) {
		for _, fault := range j.faults(t, object(t, path)) {
			t.Errorf("%s: %s", filepath.Base(path), fault)
		}
	}
}

// The judge refuses what it should, or its word would be worth nothing.
func TestTheSchemaRefuses(t *testing.T) {
	j := newJudge(t)
	for want, change := range map[string]func(neighbor map[string]any){
		"passwort":           func(n map[string]any) { n["passwort"] = "x" },
		"less than or equal": func(n map[string]any) { n["port"] = int64(16385) },
		"between 1 seconds":  func(n map[string]any) { n["connectTime"] = "0s" },
		"whole number":       func(n map[string]any) { n["connectTime"] = "1500ms" },
		"Unsupported value":  func(n map[string]any) { n["dynamicASN"] = "both" },
		"at least 1 items": func(n map[string]any) {
			n["toAdvertise"] = map[string]any{"withCommunity": []any{map[string]any{"prefixes": []any{}}}}
		},
	} {
		o := object(t, filepath.Join(filepath.Dir(goldens), "policy-plain.yaml"))
		router := o["spec"].(map[string]any)["bgp"].(map[string]any)["routers"].([]any)[0].(map[string]any)
		change(router["neighbors"].([]any)[0].(map[string]any))
		if faults := strings.Join(j.faults(t, o), "\n"); !strings.Contains(faults, want) {
			t.Errorf("want %q, got %q", want, faults)
		}
	}
}

// What frr-k8s reads is what is written: nothing is dropped, and nothing has
// another type.
func TestFRRConfigurationsAreReadAsTheyAreWritten(t *testing.T) {
	for _, path := range files(t) {
		text := read(t, path)
		var typed frrk8s.FRRConfiguration
		if err := yaml.UnmarshalStrict(text, &typed); err != nil {
			t.Errorf("%s: %v", filepath.Base(path), err)
			continue
		}
		written := object(t, path)
		again, err := json.Marshal(typed)
		if err != nil {
			t.Fatal(err)
		}
		var reread map[string]any
		if err := utiljson.Unmarshal(again, &reread); err != nil {
			t.Fatal(err)
		}
		if d := diff.Diff(full(written["spec"]), full(reread["spec"])); d != "" {
			t.Errorf("%s: written and read differ:\n%s", filepath.Base(path), d)
		}
	}
}

// full leaves out what is empty: frr-k8s's types show some of it and not other.
func full(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if value := full(value); value != nil {
				out[key] = value
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = full(v[i])
		}
		return out
	case int64:
		if v == 0 {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}
