// Package templates holds what manifests has for Cluster API, Metal3 and
// kustomize to the types and programs that will read it. It is a module of its
// own, because nobody else needs those.
package templates
