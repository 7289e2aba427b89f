// Package frrk8s holds the FRRConfigurations that the announcer writes to
// frr-k8s's own types, and to the schema by which an API server judges them. It
// is a module of its own, because nobody else needs those. Its tools are frr-k8s
// itself, for the lab.
package frrk8s
