package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"
)

// boolean is true or false. A quoted "false" is refused: products that take it
// as text have read it as true.
func boolean() shape[bool] {
	s := spec{
		what: "true or false, without quotes", example: "true",
		schema: map[string]any{"type": "boolean"},
	}
	return shape[bool]{
		spec:  s,
		plain: func(b bool) any { return b },
		read: func(d *decoder, n node) (bool, bool) {
			if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
				switch strings.ToLower(n.Value) {
				case "true":
					return true, true
				case "false":
					return false, true
				}
			}
			meant := s
			if slices.Contains([]string{"false", "no", "off", "0"}, strings.ToLower(n.Value)) {
				meant.example = "false"
			}
			d.mismatch(n, meant)
			return false, false
		},
	}
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// integer is a decimal number from least to most. Octal, hexadecimal and
// grouped digits are refused, because YAML versions differ about them.
func integer(least, most int, example string) shape[int] {
	s := spec{
		what: fmt.Sprintf("a whole number from %d to %d", least, most), example: example,
		schema: map[string]any{"type": "integer", "minimum": least, "maximum": most},
	}
	return shape[int]{
		spec:  s,
		plain: func(i int) any { return i },
		read: func(d *decoder, n node) (int, bool) {
			value, err := strconv.Atoi(n.Value)
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || !decimal.MatchString(n.Value) ||
				err != nil || value < least || value > most {
				d.mismatch(n, s)
				return 0, false
			}
			return value, true
		},
	}
}

// text is a string for which check finds nothing wrong: it returns "", or what
// follows the quoted string in the message. A wrong string is of use all the
// same: whoever refers to a pool by its wrong name makes no second fault.
func text(what, example string, check func(string) string, schema map[string]any) shape[string] {
	s := spec{what: what, example: example, schema: map[string]any{"type": "string"}}
	maps.Copy(s.schema, schema)
	return shape[string]{
		spec: s,
		plain: func(value string) any {
			if value == "" {
				return nil
			}
			return value
		},
		read: func(d *decoder, n node) (string, bool) {
			if !n.isText() {
				d.mismatch(n, s.quoting(n, check))
			} else if fault := check(n.Value); fault != "" {
				d.fail(n.place(), "%s %s", quote(n.Value), fault)
			}
			return n.Value, n.Kind == yaml.ScalarNode
		},
	}
}

// quoting makes the example of s the very value of n in quotes, if all that is
// wrong with it is that YAML does not take it for text.
func (s spec) quoting(n node, check func(string) string) spec {
	if n.Kind == yaml.ScalarNode && check(n.Value) == "" {
		s.example = strconv.Quote(n.Value)
	}
	return s
}

// exactly is one given string.
func exactly(value string) shape[string] {
	s := spec{what: value, example: value, schema: map[string]any{"const": value}}
	return shape[string]{spec: s, read: func(d *decoder, n node) (string, bool) {
		if !n.isText() || n.Value != value {
			d.mismatch(n, s)
			return "", false
		}
		return value, true
	}}
}

// oneOf is one of a few words.
func oneOf[T ~string](values ...T) shape[T] {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = string(value)
	}
	s := spec{
		what: "one of " + strings.Join(words, ", "), example: words[0],
		schema: map[string]any{"type": "string", "enum": words},
	}
	return shape[T]{
		spec:  s,
		plain: func(value T) any { return string(value) },
		read: func(d *decoder, n node) (T, bool) {
			for _, value := range values {
				if n.isText() && n.Value == string(value) {
					return value, true
				}
			}
			d.mismatch(n, s.nearest(n, words))
			return "", false
		},
	}
}

// nearest makes the example of s the word that was most likely meant by n. An
// unquoted off is turned into false by tools that write an older YAML.
func (s spec) nearest(n node, words []string) spec {
	if n.ShortTag() == "!!bool" && n.Value == "false" && slices.Contains(words, "off") {
		s.example = `"off"`
	} else if word := Suggest(n.Value, words); word != "" {
		s.example = word
	}
	return s
}

// duration is a time.Duration from least to most, written as Go writes it.
func duration(least, most time.Duration, example string) shape[time.Duration] {
	s := spec{
		what: fmt.Sprintf("a duration from %s to %s", seconds(least), seconds(most)), example: example,
		schema: map[string]any{"type": "string", "pattern": `^\+?[0-9.]+(h|m|s|ms|us|µs|μs|ns)[0-9.hmsuµμn]*$`},
	}
	return shape[time.Duration]{
		spec:  s,
		plain: func(value time.Duration) any { return seconds(value) },
		read: func(d *decoder, n node) (time.Duration, bool) {
			value, err := time.ParseDuration(n.Value)
			if !n.isText() || err != nil || value < least || value > most {
				d.mismatch(n, s)
				return 0, false
			}
			return value, true
		},
	}
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// selector is a label selector as a string, or a list of them of which any may
// match. The empty string selects everything, but not as one of several.
func selector() shape[Selector] {
	one := singleSelector()
	several := list(one.what, one.example, one, listRules{empty: "remove the key to select everything"})
	s := spec{
		what: "a label selector, or a list of them of which any may match", example: one.example,
		schema: map[string]any{
			"type": []string{"string", "array"}, "minItems": 1,
			"items": map[string]any{"type": "string", "minLength": 1},
		},
	}
	return shape[Selector]{spec: s, read: func(d *decoder, n node) (Selector, bool) {
		switch {
		case n.isText() && strings.TrimSpace(n.Value) == "":
			return nil, true
		case n.isText():
			only, ok := one.from(d, n)
			return Selector{only}, ok
		case n.Kind == yaml.SequenceNode:
			return several.from(d, n)
		default:
			d.mismatch(n, s)
			return nil, false
		}
	}}
}

// singleSelector is one label selector that says something.
func singleSelector() shape[labels.Selector] {
	s := spec{what: "a label selector", example: `"tier in (web, edge)"`}
	return shape[labels.Selector]{spec: s, read: func(d *decoder, n node) (labels.Selector, bool) {
		if !n.isText() {
			d.mismatch(n, s)
			return nil, false
		}
		if strings.TrimSpace(n.Value) == "" {
			d.fail(n.place(), "is empty and would select everything: remove it, or the whole list")
			return nil, false
		}
		parsed, err := labels.Parse(n.Value)
		if err != nil {
			d.fail(n.place(), "%s is no label selector: %v; for example %s", quote(n.Value), err, s.example)
			return nil, false
		}
		return parsed, true
	}}
}
