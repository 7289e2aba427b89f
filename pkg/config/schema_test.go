package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const references = "../../docs/reference"

func TestSchemaFileIsUpToDate(t *testing.T) {
	name := filepath.Join(references, "configuration.schema.json")
	want, err := os.ReadFile(name)
	if err != nil && !*update {
		t.Fatal(err)
	}
	golden(t, name, string(want), string(config.Schema()), config.Schema())
}

// Whatever Load accepts is right by the schema too; what the schema knows to
// be wrong, Load refuses.
func TestSchemaAgreesWithLoad(t *testing.T) {
	knows := []string{
		"empty-lists-that-do-not", "head", "no-pools", "no-values", "other-product", "unknown-keys",
		"wrong-types", "wrong-words", "not-a-mapping", "old-format", "unquoted-ipv6", "nodes-wrong", "nodes-metal3-wrong",
	}
	for name, archive := range goldens(t) {
		name = strings.TrimSuffix(filepath.Base(name), ".txtar")
		t.Run(name, func(t *testing.T) {
			document := archive.Files[0].Data
			_, err := config.Load(document)
			fault := schemaFault(document)
			if err == nil && fault != "" {
				t.Errorf("Load accepts it, the schema does not: %s", fault)
			}
			if slices.Contains(knows, name) && fault == "" {
				t.Error("the schema finds nothing wrong")
			}
		})
	}
}

// schemaFault validates a document by the schema. It returns the first fault,
// "" if there is none.
func schemaFault(document []byte) string {
	var value any
	if err := yaml.Unmarshal(bytes.TrimPrefix(document, []byte("\ufeff")), &value); err != nil {
		return err.Error()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return err.Error()
	}
	return validate(schema(), value, "document")
}

var schema = sync.OnceValue(func() map[string]any {
	var schema map[string]any
	if err := json.Unmarshal(config.Schema(), &schema); err != nil {
		panic(err)
	}
	return schema
})

// validate knows those keywords of JSON Schema that ours uses, and refuses
// others.
func validate(schema map[string]any, value any, path string) string {
	known := keywords()
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		check, ok := known[keyword]
		if !ok {
			return "unknown keyword " + keyword
		}
		if fault := check(schema, schema[keyword], value, path); fault != "" {
			return fault
		}
	}
	return ""
}

type keyword func(schema map[string]any, argument, value any, path string) string

func keywords() map[string]keyword {
	annotation := func(map[string]any, any, any, string) string { return "" }
	return map[string]keyword{
		"$schema": annotation, "title": annotation, "description": annotation, "default": annotation,
		"type": validateType,
		"const": func(_ map[string]any, want, value any, path string) string {
			return unless(value == want, "%s is not %v", path, want)
		},
		"enum": func(_ map[string]any, words, value any, path string) string {
			return unless(slices.Contains(words.([]any), value), "%s is none of %v", path, words)
		},
		"minimum": number(func(value, bound float64) bool { return value >= bound }),
		"maximum": number(func(value, bound float64) bool { return value <= bound }),
		"maxLength": text(func(value string, most any) bool {
			return float64(utf8.RuneCountInString(value)) <= most.(float64)
		}),
		"minLength": text(func(value string, least any) bool {
			return float64(utf8.RuneCountInString(value)) >= least.(float64)
		}),
		"pattern": text(func(value string, pattern any) bool {
			return regexp.MustCompile(pattern.(string)).MatchString(value)
		}),
		"items": validateItems,
		"minItems": func(_ map[string]any, least, value any, path string) string {
			list, ok := value.([]any)
			return unless(!ok || float64(len(list)) >= least.(float64), "%s has too few items", path)
		},
		"uniqueItems": func(_ map[string]any, _, value any, path string) string {
			list, _ := value.([]any)
			for i, item := range list {
				for _, other := range list[:i] {
					if reflect.DeepEqual(item, other) {
						return path + " has an item twice"
					}
				}
			}
			return ""
		},
		"required": func(_ map[string]any, names, value any, path string) string {
			object, _ := value.(map[string]any)
			for _, name := range names.([]any) {
				if _, ok := object[name.(string)]; !ok {
					return fmt.Sprintf("%s has no %s", path, name)
				}
			}
			return ""
		},
		"properties": validateProperties,
		"additionalProperties": func(_ map[string]any, schema, value any, path string) string {
			values, open := schema.(map[string]any)
			object, _ := value.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(object)) {
				if !open {
					break // false, which goes with properties
				}
				if fault := validate(values, object[name], path+"."+name); fault != "" {
					return fault
				}
			}
			return ""
		},
		"anyOf": func(_ map[string]any, schemas, value any, path string) string {
			var last string
			for _, schema := range schemas.([]any) {
				if last = validate(schema.(map[string]any), value, path); last == "" {
					return ""
				}
			}
			return last
		},
	}
}

func unless(right bool, format string, args ...any) string {
	if right {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func number(right func(value, bound float64) bool) keyword {
	return func(_ map[string]any, bound, value any, path string) string {
		n, ok := value.(float64)
		return unless(!ok || right(n, bound.(float64)), "%s is out of bounds", path)
	}
}

func text(right func(value string, argument any) bool) keyword {
	return func(_ map[string]any, argument, value any, path string) string {
		s, ok := value.(string)
		return unless(!ok || right(s, argument), "%s: %q against %v", path, s, argument)
	}
}

func validateType(_ map[string]any, want, value any, path string) string {
	var got string
	switch v := value.(type) {
	case string:
		got = "string"
	case bool:
		got = "boolean"
	case []any:
		got = "array"
	case map[string]any:
		got = "object"
	case float64:
		got = "number"
		if v == float64(int64(v)) {
			got = "integer"
		}
	default:
		got = "null"
	}
	several, ok := want.([]any)
	if !ok {
		several = []any{want}
	}
	return unless(slices.Contains(several, any(got)), "%s is a %s, not %v", path, got, want)
}

func validateItems(_ map[string]any, item, value any, path string) string {
	list, _ := value.([]any)
	for i, v := range list {
		if fault := validate(item.(map[string]any), v, fmt.Sprintf("%s[%d]", path, i)); fault != "" {
			return fault
		}
	}
	return ""
}

func validateProperties(schema map[string]any, properties, value any, path string) string {
	object, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		property, known := properties.(map[string]any)[name]
		if !known {
			return unless(schema["additionalProperties"] != false, "%s has an unknown %s", path, name)
		}
		if fault := validate(property.(map[string]any), object[name], path+"."+name); fault != "" {
			return fault
		}
	}
	return ""
}
