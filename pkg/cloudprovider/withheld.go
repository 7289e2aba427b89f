package cloudprovider

import (
	"k8s.io/component-base/metrics"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

// withheldWrites describes the metric of a process that only observes.
// Changing its name or a label is an API change.
var withheldWrites = metrics.NewDesc("ccm_baremetal_withheld_writes_total",
	"Writes that were not made because this process only observes; there are no series otherwise.", []string{"verb", "resource"}, nil, metrics.ALPHA, "")

// A withheldCollector renders what a rehearsal has withheld.
type withheldCollector struct {
	metrics.BaseStableCollector

	rehearsal *rehearse.Rehearsal
}

// DescribeWithStability names the metric.
func (w *withheldCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- withheldWrites }

// CollectWithStability reads the counts.
func (w *withheldCollector) CollectWithStability(ch chan<- metrics.Metric) {
	for _, c := range w.rehearsal.Withheld() {
		ch <- metrics.NewLazyConstMetric(withheldWrites, metrics.CounterValue, float64(c.N), c.Verb, c.Resource)
	}
}
