package main

import (
	"encoding/json"
	"net/url"
	"runtime/debug"
	"time"
)

// A bill of materials in the form of CycloneDX 1.6, as far as we use it.
type bill struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// materials lists what a program was built of, as the linker noted it in the
// program itself: its modules, Go's standard library, and how it was built.
func (b builder) materials(name string, info *debug.BuildInfo) ([]byte, error) {
	program := newComponent("application", info.Main.Path, b.version)
	program.Name = name
	program.Properties = []property{{"commit", b.commit}}
	for _, s := range info.Settings {
		program.Properties = append(program.Properties, property{"go:build:" + s.Key, s.Value})
	}
	list := bill{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata:   metadata{Timestamp: b.created.Format(time.RFC3339), Component: program},
		Components: []component{newComponent("library", "stdlib", info.GoVersion)},
	}
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		list.Components = append(list.Components, newComponent("library", m.Path, m.Version))
	}
	return json.MarshalIndent(list, "", "  ")
}

func newComponent(kind, path, version string) component {
	p := purl(path, version)
	return component{Type: kind, Ref: p, Name: path, Version: version, PURL: p}
}

// purl returns the package URL of a Go module. What it must escape of a version
// is the plus of +incompatible.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}
