// Package manifests gives everything that is installed to a real API server: the
// directories for kustomize and what the chart makes of values. It runs the product
// as the chart installs it.
package manifests
