package config

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ConfigMapKey is the key of the ConfigMap under which the document is.
// Changing it is an API change.
const ConfigMapKey = "config.yaml"

// Unwrap returns the document inside of a manifest that has a ConfigMap with
// one, and how many lines of the manifest come before it: line n of the
// document is line before+n of the manifest, if it is a literal block as
// usual. A text without any ConfigMap is returned as it is. The error is an
// Errors that says why there is not exactly one document.
func Unwrap(manifest []byte) (document []byte, before int, err error) {
	maps := configMaps(manifest)
	if len(maps) == 0 {
		return manifest, 0, nil
	}
	var texts []node
	var others []string
	for _, m := range maps {
		for _, data := range m.under("data") {
			texts = append(texts, data.under(ConfigMapKey)...)
			others = append(others, data.names()...)
		}
	}
	f := &faults{}
	switch {
	case len(texts) == 0:
		f.fail(maps[0].place(), "the ConfigMap has no data under the key %s, where the document would be; its keys are: %s",
			ConfigMapKey, strings.Join(others, ", "))
	case len(texts) > 1:
		f.fail(texts[1].place(), "a second text under the key %s: the first is in line %d", ConfigMapKey, texts[0].Line)
	case !texts[0].isText():
		f.fail(texts[0].place(), "expected the document as text (%s: |), got %s", ConfigMapKey, texts[0].describe())
	default:
		return []byte(texts[0].Value), linesBefore(texts[0]), nil
	}
	return nil, 0, f.sorted()
}

// linesBefore counts the lines before a text's first. That of a block is the
// one after its mark.
func linesBefore(text node) int {
	if text.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return text.Line
	}
	return text.Line - 1
}

// configMaps returns the ConfigMaps among the YAML documents of a text;
// nothing if the text is not valid.
func configMaps(text []byte) []node {
	var maps []node
	yamls := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var root yaml.Node
		if err := yamls.Decode(&root); errors.Is(err, io.EOF) {
			return maps
		} else if err != nil {
			return nil
		}
		object := root.Content[0]
		if scalarUnder(object, "apiVersion") == "v1" && scalarUnder(object, "kind") == "ConfigMap" {
			maps = append(maps, node{Node: object})
		}
	}
}

// under returns the values that a mapping has under a key: more than one if
// the key is doubled.
func (n node) under(key string) []node {
	return slices.DeleteFunc(n.entries(), func(child node) bool { return child.name != key })
}

// names returns the keys of a mapping.
func (n node) names() []string {
	var names []string
	for _, child := range n.entries() {
		names = append(names, quote(child.name))
	}
	return names
}
