package config

import (
	"crypto/sha256"
	"encoding/hex"

	"go.yaml.in/yaml/v3"
)

// Smallest is the smallest useful document: one pool, which gets the name
// default and is announced by layer 2 from all eligible nodes.
const Smallest = `apiVersion: ` + APIVersion + `
kind: ` + Kind + `
pools:
- addresses: [192.0.2.100-192.0.2.150]
`

// Load reads a document: strictly, with defaults filled in. The error is an
// Errors with everything that is wrong, in the order of the document.
func Load(document []byte) (Config, error) {
	d := &decoder{root: &documentShape.spec}
	root, ok := d.parse(document)
	if !ok || d.foreign(root) {
		return Config{}, d.sorted()
	}
	doc, _ := documentShape.from(d, root)
	c := d.assemble(doc)
	if errs := d.sorted(); errs != nil {
		return Config{}, errs
	}
	sum := sha256.Sum256(document)
	c.Hash = hex.EncodeToString(sum[:])[:12]
	return c, nil
}

// foreign reports a document that is written in another language than ours.
// Looking for faults in the rest of it would only bury that one.
func (d *decoder) foreign(root node) bool {
	if scalarUnder(root.Node, "apiVersion") == APIVersion {
		return false
	}
	for _, child := range root.entries() {
		if child.name != "apiVersion" || child.Kind != yaml.ScalarNode || child.ShortTag() != "!!str" {
			continue
		}
		hint := ""
		if scalarUnder(root.Node, "kind") == "ConfigMap" {
			hint = "; this is a ConfigMap: the document is the text under its key " + ConfigMapKey
		}
		d.fail(child.place(), "%s is no document of ours: this release reads %s%s", quote(child.Value), APIVersion, hint)
		return true
	}
	return false
}
