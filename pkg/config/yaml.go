package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// node is a value of the document and the way to it.
type node struct {
	*yaml.Node
	path string
	name string // the key that it stands under; empty: the document itself, or an item of a list
}

func (n node) place() place {
	return place{path: n.path, line: n.Line, column: n.Column}
}

// entries returns the values of a mapping with their keys as names, in the
// order of the document; nothing if n is no mapping.
func (n node) entries() []node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	var out []node
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := keyOf(n.Content[i])
		out = append(out, node{Node: n.Content[i+1], path: join(n.path, name), name: name})
	}
	return out
}

// keyOf returns a key as text. The value of an alias is the name of its anchor,
// which must not be taken for the key.
func keyOf(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		return "*" + n.Value
	}
	return n.Value
}

// items returns the items of a list. The path of one that has a name shows it.
func (n node) items() []node {
	out := make([]node, len(n.Content))
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", n.path, i)
		if label := labelOf(item); label != "" {
			path += " (" + label + ")"
		}
		out[i] = node{Node: item, path: path}
	}
	return out
}

func (n node) isNull() bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func (n node) isText() bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}

// describe says what stands there, to follow "got".
func (n node) describe() string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "the text " + quote(n.Value)
	case "!!int", "!!float":
		return "the number " + shorten(n.Value)
	default:
		return shorten(n.Value)
	}
}

func join(path, name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == utf8.RuneError }) {
		name = quote(name)
	}
	name = shorten(name)
	if path == "" {
		return name
	}
	return path + "." + name
}

// labelOf returns what an item of a list is called.
func labelOf(item *yaml.Node) string {
	for _, key := range []string{"name", "service"} {
		if label := scalarUnder(item, key); label != "" {
			return shorten(strings.Trim(quote(label), `"`))
		}
	}
	return ""
}

// scalarUnder returns the scalar under a key of a mapping, "" if there is none.
func scalarUnder(n *yaml.Node, key string) string {
	if n.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if keyOf(n.Content[i]) == key && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// quote quotes what the user wrote, shortened.
func quote(text string) string {
	return strconv.Quote(shorten(text))
}

// shorten keeps a message readable when a whole document got into one value.
func shorten(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "..."
}

// parse returns the only YAML document in the text, or records why there is
// none.
func (d *decoder) parse(document []byte) (node, bool) {
	lines := &lineReader{rest: bytes.TrimPrefix(document, []byte("\ufeff"))}
	yamls := yaml.NewDecoder(lines)
	var first, second yaml.Node
	switch err := yamls.Decode(&first); {
	case errors.Is(err, io.EOF) || err == nil && (node{Node: first.Content[0]}).isNull():
		d.fail(place{line: 1}, "the document is empty; the smallest useful one is:\n%s", Smallest)
		return node{}, false
	case err != nil:
		d.reject(err, lines)
		return node{}, false
	}
	switch err := yamls.Decode(&second); {
	case err == nil:
		d.fail(place{line: second.Line}, "a second YAML document begins here: the configuration is a single one")
		return node{}, false
	case !errors.Is(err, io.EOF):
		d.reject(err, lines)
		return node{}, false
	}
	return node{Node: first.Content[0]}, true
}

// lineReader gives out a text line by line. How far a parser has read when it
// gives up is where the fault is: more exact than the line in the parser's
// message, which may be that of the construct around it, the one before, or
// missing.
type lineReader struct {
	rest  []byte
	last  []byte // the line given out last
	count int
}

func (l *lineReader) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		return 0, io.EOF
	}
	if len(l.last) == 0 || bytes.HasSuffix(l.last, []byte("\n")) {
		l.last = nil
		l.count++
	}
	end := len(l.rest)
	if i := bytes.IndexByte(l.rest, '\n'); i >= 0 {
		end = i + 1
	}
	n := copy(p, l.rest[:end])
	l.last = append(l.last, l.rest[:n]...)
	l.rest = l.rest[n:]
	return n, nil
}

var yamlError = regexp.MustCompile(`(?s)^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// reject records the parser's complaint.
func (d *decoder) reject(err error, lines *lineReader) {
	at := place{line: max(lines.count, 1)}
	indent := lines.last[:len(lines.last)-len(bytes.TrimLeft(lines.last, " \t"))]
	if bytes.ContainsRune(indent, '\t') {
		d.fail(at, "a tab in the indentation: YAML takes blanks only")
		return
	}
	parts := yamlError.FindStringSubmatch(err.Error())
	if line, err := strconv.Atoi(parts[1]); err == nil && parts[2] == missingColon {
		at.line = line
	}
	d.fail(at, "no valid YAML: %s", parts[2])
}

// missingColon is the complaint that comes up only lines after what it is
// about, but has the right line in its text.
const missingColon = "could not find expected ':'"
