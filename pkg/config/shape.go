package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A shape says what may stand at one place of the document. The decoder reads
// it by that, and schema and reference describe it by the same: they cannot
// disagree about keys, values and defaults.
type shape[T any] struct {
	spec

	// read turns n, which is neither null nor an alias, into a T. ok is false
	// if the value is of no use; then the reason has been recorded.
	read func(d *decoder, n node) (value T, ok bool)

	// plain returns the value as JSON knows it, for showing it as a default;
	// nil if there is nothing to show. A nil func shows nothing.
	plain func(T) any
}

// spec is what can be said about a shape without its Go type.
type spec struct {
	what    string         // follows "expected"
	example string         // in YAML's flow style
	schema  map[string]any // JSON Schema keywords besides those of item and keys
	item    *spec          // of a list
	keys    []keySpec      // of a mapping, in the order of the reference
}

// keySpec is what can be said about one key of a mapping.
type keySpec struct {
	name     string
	doc      string // sentences for the reference
	spec     *spec
	required bool
	initial  any // the default, as JSON knows it; nil: none to show
}

// key is one key of a mapping that is read into a T.
type key[T any] struct {
	keySpec
	read func(d *decoder, n node, into *T)
	show func(T) any // the default out of a T full of defaults
}

// decoder reads a document by its shape and records what is wrong.
type decoder struct {
	faults
	root *spec // of the whole document, to tell where a misplaced key belongs
}

// from reads n, which may be anything.
func (s shape[T]) from(d *decoder, n node) (T, bool) {
	var none T
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n.place(), "aliases are not read: write the value out")
		return none, false
	case n.isNull():
		d.fail(n.place(), "has no value: give it one, for example %s, or remove it", s.sample(n))
		return none, false
	}
	return s.read(d, n)
}

// mismatch reports a value of the wrong type.
func (d *decoder) mismatch(n node, s spec) {
	d.fail(n.place(), "expected %s, got %s; for example %s", s.what, n.describe(), s.sample(n))
}

// sample shows a right value at the place of n.
func (s spec) sample(n node) string {
	if n.name == "" {
		return s.example
	}
	return n.name + ": " + s.example
}

// field is a key that is read into what of returns.
func field[T, F any](name string, s shape[F], of func(*T) *F, doc string) key[T] {
	return key[T]{
		keySpec: keySpec{name: name, doc: doc, spec: &s.spec},
		read: func(d *decoder, n node, into *T) {
			if value, ok := s.from(d, n); ok {
				*of(into) = value
			}
		},
		show: func(defaults T) any {
			if s.plain == nil {
				return nil
			}
			return s.plain(*of(&defaults))
		},
	}
}

// checked is a key whose value is checked and not kept.
func checked[T, F any](name string, s shape[F], doc string) key[T] {
	return key[T]{
		keySpec: keySpec{name: name, doc: doc, spec: &s.spec},
		read:    func(d *decoder, n node, _ *T) { s.from(d, n) },
		show:    func(T) any { return nil },
	}
}

// required makes a key one that must be there.
func required[T any](k key[T]) key[T] {
	k.required = true
	return k
}

// object is a mapping that is read into a T which begins as defaults returns
// it.
func object[T any](what, example string, defaults func() T, keys ...key[T]) shape[T] {
	s := spec{what: what, example: example, schema: map[string]any{"type": "object"}}
	for _, k := range keys {
		k.initial = k.show(defaults())
		s.keys = append(s.keys, k.keySpec)
	}
	return shape[T]{spec: s, read: func(d *decoder, n node) (T, bool) {
		value := defaults()
		if n.Kind != yaml.MappingNode {
			d.mismatch(n, s)
			return value, false
		}
		given := d.given(n, s)
		for _, k := range keys {
			switch child, ok := given[k.name]; {
			case !ok && k.required:
				d.missing(n, k.keySpec)
			case ok && child.Node != nil:
				k.read(d, child, &value)
			}
		}
		return value, true
	}}
}

func (d *decoder) missing(n node, k keySpec) {
	at := n.place()
	at.path = join(n.path, k.name)
	d.fail(at, "is missing; for example %s: %s", k.name, k.spec.example)
}

// given returns the values of a mapping by key, and reports keys that are
// unknown or given twice. A key that was most likely meant by an unknown one
// is there without a node, so that it is not reported as missing too.
func (d *decoder) given(n node, s spec) map[string]node {
	first := map[string]node{}
	meant := map[string]node{}
	for i, child := range n.entries() {
		at := child.place()
		at.line, at.column = n.Content[2*i].Line, n.Content[2*i].Column
		if before, twice := first[child.name]; twice {
			d.fail(at, "the key %s is given twice: first in line %d", quote(child.name), before.Line)
			continue
		}
		first[child.name] = node{Node: n.Content[2*i]}
		if s.has(child.name) {
			meant[child.name] = child
			continue
		}
		suggestion, why := d.unknown(n.Content[2*i], s)
		if _, ok := meant[suggestion]; !ok && suggestion != "" {
			meant[suggestion] = node{}
		}
		d.fail(at, "unknown key %s%s", quote(child.name), why)
	}
	return meant
}

// unknown finds words for a key that s does not have, and the key that was
// most likely meant.
func (d *decoder) unknown(key *yaml.Node, s spec) (suggestion, why string) {
	switch {
	case key.ShortTag() == "!!merge":
		return "", ": merge keys are not read, write the values out"
	case key.Kind == yaml.AliasNode:
		return "", ": aliases are not read, write the key out"
	}
	names := s.names()
	if suggestion = Suggest(key.Value, names); suggestion != "" {
		return suggestion, fmt.Sprintf("; did you mean %q?", suggestion)
	}
	if owner, found := d.root.find(key.Value, ""); found {
		return "", "; it is a key of " + cmp.Or(owner, "the document itself")
	}
	return "", "; known here: " + strings.Join(names, ", ")
}

func (s spec) has(name string) bool {
	return slices.ContainsFunc(s.keys, func(k keySpec) bool { return k.name == name })
}

// names returns the keys.
func (s spec) names() []string {
	var names []string
	for _, k := range s.keys {
		names = append(names, k.name)
	}
	return names
}

// find returns the path of the first mapping that has a key.
func (s *spec) find(name, path string) (string, bool) {
	if s.item != nil {
		return s.item.find(name, path+"[]")
	}
	if slices.Contains(s.names(), name) {
		return path, true
	}
	for _, k := range s.keys {
		if owner, found := k.spec.find(name, join(path, k.name)); found {
			return owner, true
		}
	}
	return "", false
}

// listRules is what a list asks of its items besides their shape.
type listRules struct {
	empty    string // why an empty list is refused; "": it is not
	distinct bool   // no scalar twice
}

// list is a list of items.
func list[T any](what, example string, item shape[T], rules listRules) shape[[]T] {
	s := spec{what: what, example: example, item: &item.spec, schema: map[string]any{"type": "array"}}
	if rules.empty != "" {
		s.schema["minItems"] = 1
	}
	if rules.distinct {
		s.schema["uniqueItems"] = true
	}
	return shape[[]T]{spec: s, plain: plainList(item), read: func(d *decoder, n node) ([]T, bool) {
		switch {
		case n.Kind != yaml.SequenceNode:
			d.mismatch(n, s)
			return nil, false
		case len(n.Content) == 0 && rules.empty != "":
			d.fail(n.place(), "is empty: %s", rules.empty)
			return nil, false
		}
		items := n.items()
		if rules.distinct {
			items = d.distinct(items)
		}
		values := []T{}
		for _, child := range items {
			if value, ok := item.from(d, child); ok {
				values = append(values, value)
			}
		}
		return values, true
	}}
}

// distinct reports scalars that are listed twice, and returns the items
// without them.
func (d *decoder) distinct(items []node) []node {
	var out []node
	first := map[string]node{}
	for _, n := range items {
		if n.Kind == yaml.ScalarNode {
			if before, twice := first[n.Value]; twice {
				d.fail(n.place(), "%s is listed twice: first as %s", quote(n.Value), before.place())
				continue
			}
			first[n.Value] = n
		}
		out = append(out, n)
	}
	return out
}

// plainList shows the items of a list, if they can be shown.
func plainList[T any](item shape[T]) func([]T) any {
	return func(values []T) any {
		if len(values) == 0 || item.plain == nil {
			return nil
		}
		all := make([]any, len(values))
		for i, value := range values {
			all[i] = item.plain(value)
		}
		return all
	}
}

// placed is a value with its place, for checks that come after reading.
type placed[T any] struct {
	place
	value T
}

// withPlace keeps the place of a value.
func withPlace[T any](s shape[T]) shape[placed[T]] {
	return shape[placed[T]]{spec: s.spec, read: func(d *decoder, n node) (placed[T], bool) {
		value, ok := s.from(d, n)
		return placed[T]{place: n.place(), value: value}, ok
	}}
}

// pointer is a value that may be absent, where absence means something.
func pointer[T any](s shape[T]) shape[*T] {
	return shape[*T]{spec: s.spec, read: func(d *decoder, n node) (*T, bool) {
		value, ok := s.from(d, n)
		return &value, ok
	}}
}

// anyOf makes a mapping one that has at least one of some keys. The check is
// the caller's, who has better words for it.
func anyOf[T any](s shape[T], names ...string) shape[T] {
	var each []any
	for _, name := range names {
		each = append(each, map[string]any{"required": []string{name}})
	}
	s.schema["anyOf"] = each
	return s
}
