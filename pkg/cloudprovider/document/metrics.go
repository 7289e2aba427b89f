package document

import "k8s.io/component-base/metrics"

// A collector renders the state of a Keeper at scrape.
type collector struct {
	metrics.BaseStableCollector

	keeper      *Keeper
	stale, info *metrics.Desc
}

// Collector returns what renders the Keeper's metrics; the caller registers
// it, once. Changing a name is an API change.
func (k *Keeper) Collector() metrics.StableCollector {
	return &collector{
		keeper: k,
		stale: metrics.NewDesc("ccm_baremetal_config_stale",
			"Whether the document that is wanted was refused, and an older one is in force.", nil, nil, metrics.ALPHA, ""),
		info: metrics.NewDesc("ccm_baremetal_config_info",
			"Hash of the document in force; absent without one.", []string{"hash"}, nil, metrics.ALPHA, ""),
	}
}

// DescribeWithStability names the metrics.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.stale
	ch <- c.info
}

// CollectWithStability reads the state.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	c.keeper.mu.Lock()
	stale, hash, some := c.keeper.stale, c.keeper.hash, c.keeper.document != nil
	c.keeper.mu.Unlock()
	value := 0.0
	if stale {
		value = 1
	}
	ch <- metrics.NewLazyConstMetric(c.stale, metrics.GaugeValue, value)
	if some {
		ch <- metrics.NewLazyConstMetric(c.info, metrics.GaugeValue, 1, hash)
	}
}
