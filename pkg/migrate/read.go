package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// deepest is how many lists of objects may be in one another.
const deepest = 8

// mostAliased is how many values the aliases of one document may stand for. A
// few bytes of aliases of lists of aliases stand for more than anybody can read.
const mostAliased = 100_000

// read takes the sources apart into objects.
func (im *importer) read(sources []Source) {
	for _, s := range sources {
		yamls := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(s.Text, []byte("\ufeff"))))
		found := false
		for {
			var root yaml.Node
			err := yamls.Decode(&root)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				im.fault(Remark{Source: s.Name, Message: invalid(s.Text, err)})
				found = true
				break
			}
			if len(root.Content) > 0 && !isNull(root.Content[0]) {
				found = true
				if fault := overgrown(root.Content[0]); fault != "" {
					im.fault(Remark{Source: s.Name, Message: fault})
					continue
				}
				im.add(s.Name, root.Content[0], 0)
			}
		}
		if !found {
			im.fault(Remark{Source: s.Name, Message: "there is nothing in it"})
		}
	}
}

// overgrown says what is wrong with the aliases of a document; empty: nothing.
func overgrown(root *yaml.Node) string {
	a := aliases{sizes: map[*yaml.Node]int{}}
	a.size(root)
	return a.fault
}

// aliases counts what the aliases of a document stand for.
type aliases struct {
	sizes map[*yaml.Node]int // values below, with aliases followed; 0: on its way
	count int
	fault string // the first
}

// size returns how many values a node stands for, itself included. Each node is
// counted once, however often it is meant.
func (a *aliases) size(n *yaml.Node) int {
	if known, seen := a.sizes[n]; seen {
		return known
	}
	a.sizes[n] = 0
	total := 1
	for _, c := range n.Content {
		if c.Kind == yaml.AliasNode {
			total += a.follow(c)
		} else {
			total += a.size(c)
		}
		total = min(total, mostAliased+1) // more does not matter, and must not overflow
	}
	a.sizes[n] = total
	return total
}

// follow returns how many values an alias stands for.
func (a *aliases) follow(alias *yaml.Node) int {
	size := a.size(alias.Alias)
	a.count = min(a.count+size, mostAliased+1)
	switch {
	case a.fault != "":
	case size == 0:
		a.fault = fmt.Sprintf("line %d: the alias *%s stands for something that it is a part of", alias.Line, alias.Value)
	case a.count > mostAliased:
		a.fault = fmt.Sprintf("line %d: the aliases up to *%s stand for more than %d values: write out what is meant", alias.Line, alias.Value, mostAliased)
	}
	return size
}

// invalid says why a text is no YAML.
func invalid(text []byte, err error) string {
	for i, line := range strings.Split(string(text), "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if strings.Contains(indent, "\t") && strings.TrimSpace(line) != "" {
			return fmt.Sprintf("line %d: a tab in the indentation: YAML takes blanks only", i+1)
		}
	}
	hint := ""
	if strings.Contains(err.Error(), "did not find expected") {
		hint = ", there or further down: is the indentation uneven, or is the key of a list missing?"
	}
	return "no valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ") + hint
}

// add takes in one document, or the items of a list of objects.
func (im *importer) add(source string, n *yaml.Node, depth int) {
	o := im.object(source, "", n)
	if o == nil {
		return
	}
	o.kind = o.text("kind")
	apiVersion := o.text("apiVersion")
	o.group, _, _ = strings.Cut(apiVersion, "/")
	o.spare = o.group == "v1" && o.kind == "Service"
	if strings.HasSuffix(o.kind, "List") && depth < deepest {
		o.skip("metadata")
		for _, item := range o.items("items") {
			im.add(source, item.node, depth+1)
		}
		o.done()
		return
	}
	if meta := o.object("metadata"); meta != nil && o.kind != "" {
		o.name, o.namespace, o.labels = meta.text("name"), meta.text("namespace"), meta.texts("labels")
		o.path = strings.TrimSpace(o.kind + " " + strings.TrimPrefix(o.namespace+"/"+o.name, "/"))
	}
	o.skip("status")
	im.objects = append(im.objects, o)
}
