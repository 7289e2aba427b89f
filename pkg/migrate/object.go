package migrate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// object is a mapping of a source. It knows which of its keys have been asked
// for: the others are losses. A nil object has no keys.
type object struct {
	im     *importer
	source string
	path   string
	node   *yaml.Node
	asked  map[string]bool
	spare  bool // nothing of it goes into the document: what cannot be understood is a loss, no fault

	// Of a Kubernetes object; empty inside of one.
	group, kind, namespace, name string
	labels                       map[string]string
}

// object returns a mapping; nil, with a fault, if n is none.
func (im *importer) object(source, path string, n *yaml.Node) *object {
	return (&object{im: im, source: source}).inner(path, n)
}

// inner returns a mapping inside of o; nil, with a fault, if n is none.
func (o *object) inner(path string, n *yaml.Node) *object {
	n = resolved(n)
	o = &object{im: o.im, source: o.source, path: path, node: n, asked: map[string]bool{}, spare: o.spare}
	if n.Kind != yaml.MappingNode || isMark(n) {
		o.fault("", "expected a mapping, got %s", describe(n))
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if seen[key] {
			o.fault(key, "this key is there twice: only one of them could be meant")
		}
		seen[key] = true
	}
	return o
}

// sortedObjects brings objects into an order that does not depend on that of
// the sources.
func sortedObjects(objects []*object) []*object {
	slices.SortStableFunc(objects, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.source, b.source))
	})
	return objects
}

// of returns the objects of a kind in an API group, and marks their frame as
// read.
func (im *importer) of(group string, kinds ...string) []*object {
	var out []*object
	for _, o := range im.objects {
		if o.group == group && slices.Contains(kinds, o.kind) {
			out = append(out, o)
		}
	}
	return out
}

// resolved returns what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	for range deepest {
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}

// isMark tells whether n is what YAML makes of {{ ... }}.
func isMark(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode
}

// describe says what stands there, to follow "got". It quotes no text, which
// may be a password.
func describe(n *yaml.Node) string {
	switch {
	case isMark(n):
		return "the mark of a template that was not filled in, {{ ... }}"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isText(n):
		return "a text"
	}
	return n.Value
}

// get returns the value of a key, nil if there is none, and marks it as read.
func (o *object) get(key string) *yaml.Node {
	if o == nil {
		return nil
	}
	o.asked[key] = true
	for i := 0; i+1 < len(o.node.Content); i += 2 {
		if o.node.Content[i].Value == key {
			if n := resolved(o.node.Content[i+1]); !isNull(n) {
				return n
			}
		}
	}
	return nil
}

// has tells whether a key has a value.
func (o *object) has(key string) bool { return o.get(key) != nil }

// keys returns the keys in the order of the source.
func (o *object) keys() []string {
	var out []string
	if o == nil {
		return nil
	}
	for i := 0; i+1 < len(o.node.Content); i += 2 {
		out = append(out, o.node.Content[i].Value)
	}
	return out
}

func (o *object) at(key string) Remark {
	path := o.path
	switch {
	case key == "":
	case path == "":
		path = key
	case o.kind != "":
		path += ": " + key
	default:
		path += "." + key
	}
	return Remark{Source: o.source, Path: path}
}

func (o *object) remark(key, format string, args ...any) Remark {
	r := o.at(key)
	r.Message = fmt.Sprintf(format, args...)
	return r
}

func (o *object) lose(key, format string, args ...any) { o.im.lose(o.remark(key, format, args...)) }
func (o *object) note(key, format string, args ...any) { o.im.note(o.remark(key, format, args...)) }

func (o *object) fault(key, format string, args ...any) {
	if o.spare {
		o.lose(key, format, args...)
		return
	}
	o.im.fault(o.remark(key, format, args...))
}

// drop reports keys that have a value as losses, all for one reason.
func (o *object) drop(why string, keys ...string) {
	for _, key := range keys {
		if o.has(key) {
			o.lose(key, "%s", why)
		}
	}
}

// skip marks keys as read that need not be carried over.
func (o *object) skip(keys ...string) {
	for _, key := range keys {
		o.get(key)
	}
}

// done reports the keys that nobody has asked for.
func (o *object) done() {
	if o == nil {
		return
	}
	known := make([]string, 0, len(o.asked))
	for key := range o.asked {
		known = append(known, key)
	}
	slices.Sort(known)
	for _, key := range o.keys() {
		if o.asked[key] {
			continue
		}
		hint := ""
		if near := config.Suggest(key, known); near != "" {
			hint = fmt.Sprintf("; was %s meant?", near)
		}
		o.lose(key, "unknown key, not carried over%s", hint)
	}
}

var template = regexp.MustCompile(`\$\{[^}]*\}|\{\{|^<[^<>]*>$`)

// scalar returns a value as it was written; "" if there is none.
func (o *object) scalar(key string) string {
	n := o.get(key)
	switch {
	case n == nil:
		return ""
	case n.Kind != yaml.ScalarNode:
		o.fault(key, "expected a text, got %s", describe(n))
		return ""
	case template.MatchString(n.Value):
		o.fault(key, "the mark of a template that was not filled in: %s", template.FindString(n.Value))
		return ""
	}
	return strings.TrimSpace(n.Value)
}

func (o *object) text(key string) string { return o.scalar(key) }

// boolean returns a truth value; without one, what is given.
func (o *object) boolean(key string, without bool) bool {
	n := o.get(key)
	switch {
	case n == nil:
		return without
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool":
		o.fault(key, "expected true or false without quotes, got %s", describe(n))
		return without
	}
	return n.Value == "true"
}

// number returns a whole number from 0 to most; 0 if there is none.
func (o *object) number(key string, most uint64) uint64 {
	text := o.scalar(key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > most {
		o.fault(key, "expected a whole number from 0 to %d", most)
		return 0
	}
	return n
}

// object returns the mapping under a key, nil if there is none.
func (o *object) object(key string) *object {
	n := o.get(key)
	if n == nil {
		return nil
	}
	return o.inner(o.at(key).Path, n)
}

// part returns the mapping under a key, an empty one if there is none.
func (o *object) part(key string) *object {
	if m := o.object(key); m != nil {
		return m
	}
	return o.inner(o.at(key).Path, &yaml.Node{Kind: yaml.MappingNode})
}

// sequence returns the items of a list and their paths below o.
func (o *object) sequence(key string) ([]*yaml.Node, []string) {
	n := o.get(key)
	if n == nil {
		return nil, nil
	}
	if n.Kind != yaml.SequenceNode {
		o.fault(key, "expected a list, got %s", describe(n))
		return nil, nil
	}
	var nodes []*yaml.Node
	var paths []string
	for i, item := range n.Content {
		item = resolved(item)
		path := fmt.Sprintf("%s[%d]", key, i)
		if label := labelOf(item); label != "" {
			path += " (" + label + ")"
		}
		nodes, paths = append(nodes, item), append(paths, path)
	}
	return nodes, paths
}

// labelOf returns the name of an item of a list.
func labelOf(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// items returns the mappings of a list.
func (o *object) items(key string) []*object {
	nodes, paths := o.sequence(key)
	var out []*object
	for i, n := range nodes {
		if item := o.inner(o.at(paths[i]).Path, n); item != nil {
			out = append(out, item)
		}
	}
	return out
}

// words returns the texts of a list.
func (o *object) words(key string) []string {
	nodes, paths := o.sequence(key)
	var out []string
	for i, n := range nodes {
		switch {
		case n.Kind != yaml.ScalarNode:
			o.fault(paths[i], "expected a text, got %s", describe(n))
		case template.MatchString(n.Value):
			o.fault(paths[i], "the mark of a template that was not filled in: %s", template.FindString(n.Value))
		default:
			out = append(out, strings.TrimSpace(n.Value))
		}
	}
	return out
}

// texts returns the texts of a mapping.
func (o *object) texts(key string) map[string]string {
	m := o.object(key)
	out := map[string]string{}
	for _, k := range m.keys() {
		out[k] = m.scalar(k)
	}
	return out
}
