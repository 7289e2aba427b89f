package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// indented puts the smallest document into a block of a manifest.
var indented = strings.ReplaceAll("    "+strings.TrimSuffix(config.Smallest, "\n"), "\n", "\n    ") + "\n"

func TestUnwrapFindsTheDocumentAndItsLines(t *testing.T) {
	mapHead := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ccm-baremetal}\ndata:\n"
	for name, test := range map[string]struct {
		manifest string
		before   int
	}{
		"literal block":    {mapHead + "  config.yaml: |\n" + indented, 5},
		"with a comment":   {mapHead + "  # ours\n  config.yaml: | # here\n" + indented, 6},
		"key before kind":  {"data:\n  config.yaml: |\n" + indented + "kind: ConfigMap\napiVersion: v1\n", 2},
		"quoted":           {mapHead + fmt.Sprintf("  config.yaml: %q\n", config.Smallest), 4},
		"other documents":  {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n" + mapHead + "  config.yaml: |\n" + indented, 9},
		"other ConfigMap":  {mapHead + "  other: a\n---\n" + mapHead + "  config.yaml: |\n" + indented, 11},
		"an other key too": {mapHead + "  other: |\n    a\n  config.yaml: |\n" + indented, 7},
		"Windows":          {strings.ReplaceAll(mapHead+"  config.yaml: |\n"+indented, "\n", "\r\n"), 5},
	} {
		t.Run(name, func(t *testing.T) {
			document, before, err := config.Unwrap([]byte(test.manifest))
			if err != nil || string(document) != config.Smallest || before != test.before {
				t.Errorf("got %q, %d, %v, want %d", document, before, err, test.before)
			}
		})
	}
}

func TestUnwrapLeavesOtherTextsAlone(t *testing.T) {
	for _, text := range []string{"", config.Smallest, "- a\n", "a: [\n", "apiVersion: v1\nkind: Secret\n", "\tx", "---\n---\n"} {
		document, before, err := config.Unwrap([]byte(text))
		if err != nil || string(document) != text || before != 0 {
			t.Errorf("%q: got %q, %d, %v", text, document, before, err)
		}
	}
}

func TestUnwrapSaysWhyThereIsNoDocument(t *testing.T) {
	mapHead := "apiVersion: v1\nkind: ConfigMap\n"
	for name, test := range map[string]struct{ manifest, want string }{
		"other key": {mapHead + "data:\n  config: |\n    a\n  b: c\n",
			`line 1: the ConfigMap has no data under the key config.yaml, where the document would be; its keys are: "config", "b"`},
		"no data": {mapHead,
			`line 1: the ConfigMap has no data under the key config.yaml, where the document would be; its keys are: `},
		"doubled key": {mapHead + "data:\n  config.yaml: a\n  config.yaml: b\n",
			`line 5: data.config.yaml: a second text under the key config.yaml: the first is in line 4`},
		"two of them": {mapHead + "data: {config.yaml: a}\n---\n" + mapHead + "data: {config.yaml: b}\n",
			`line 7: data.config.yaml: a second text under the key config.yaml: the first is in line 3`},
		"not as text": {mapHead + "data:\n  config.yaml:\n    pools: []\n",
			`line 5: data.config.yaml: expected the document as text (config.yaml: |), got a mapping`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := config.Unwrap([]byte(test.manifest))
			var faults config.Errors
			if !errors.As(err, &faults) || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}
