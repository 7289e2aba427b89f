// Package monitoring holds the alerts and the dashboard in manifests/monitoring
// to the metrics that the programs have, and the alerts to what they are for. It
// is a module of its own, because nobody else needs Prometheus.
package monitoring
