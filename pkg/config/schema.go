package config

import (
	"encoding/json"
	"maps"
)

// Schema returns a JSON schema (draft 2020-12) of the document, for editors
// and pipelines. It knows keys, types, words and bounds; what takes a look at
// several values (overlaps, names of pools) only Load checks.
func Schema() []byte {
	schema := documentShape.json()
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "Configuration of ccm-baremetal, " + APIVersion
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		panic(err) // a shape holds nothing that JSON cannot
	}
	return append(text, '\n')
}

// json returns the schema of a value.
func (s spec) json() map[string]any {
	schema := map[string]any{}
	maps.Copy(schema, s.schema)
	if s.item != nil {
		schema["items"] = s.item.json()
	}
	if s.keys == nil {
		return schema
	}
	properties := map[string]any{}
	var required []string
	for _, k := range s.keys {
		properties[k.name] = k.json()
		if k.required {
			required = append(required, k.name)
		}
	}
	schema["properties"] = properties
	schema["additionalProperties"] = false
	if required != nil {
		schema["required"] = required
	}
	return schema
}

// json returns the schema of a key's value.
func (k keySpec) json() map[string]any {
	schema := k.spec.json()
	schema["description"] = k.doc
	if k.initial != nil {
		schema["default"] = k.initial
	}
	return schema
}
