package service

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// counts are the things that only counting can tell.
type counts struct {
	duplicates, repairs, restored atomic.Int64

	mu        sync.Mutex
	patches   map[outcome]int
	decisions map[ipam.Reason]int
}

func (c *counts) decided(r ipam.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decisions == nil {
		c.decisions = map[ipam.Reason]int{}
	}
	c.decisions[r]++
}

func (c *counts) decisionsByReason() map[ipam.Reason]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.decisions)
}

func (c *counts) patch(o outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.patches == nil {
		c.patches = map[outcome]int{}
	}
	c.patches[o]++
}

func (c *counts) patched(o outcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.patches[o]
}

// metric describes one metric. Changing a name or a label is an API change.
func metric(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc("ccm_baremetal_"+name, help, labels, nil, metrics.ALPHA, "")
}

// A collector renders the state of a controller at scrape.
type collector struct {
	metrics.BaseStableCollector

	controller *Controller

	size, used, cooling, waiting, moving, decisions, patches, duplicates, repairs, restored *metrics.Desc
}

// newLatency counts in buckets that tell a quick answer from one that had to
// wait for the API server, or for an address.
func newLatency() *metrics.Histogram {
	return metrics.NewHistogram(&metrics.HistogramOpts{
		Name:           "ccm_baremetal_allocation_latency_seconds",
		Help:           "From the creation of a Service, or from its becoming a LoadBalancer, to the writing of its first address.",
		Buckets:        []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300},
		StabilityLevel: metrics.ALPHA,
	})
}

// Latency returns what counts how long Services wait for their first address;
// the caller registers it, once.
func (c *Controller) Latency() metrics.Registerable { return c.latency }

// Collector returns what renders the controller's metrics; the caller
// registers it, once.
func (c *Controller) Collector() metrics.StableCollector {
	return &collector{
		controller: c,
		size:       metric("pool_addresses", "Addresses of a pool that can be given out or are held.", "pool", "family"),
		used:       metric("pool_addresses_used", "Addresses of a pool that Services hold, or that a status still shows.", "pool", "family"),
		cooling:    metric("pool_addresses_cooling", "Addresses of a pool that were freed so recently that they are given out last.", "pool", "family"),
		waiting:    metric("services_waiting", "Services that do not have what they ask for, by the reason in their condition.", "reason"),
		moving:     metric("services_moving", "Services that wait for their turn to be moved by onMismatch: reassign."),
		decisions:  metric("decisions_total", "How often it was decided about a Service, by the reason of the outcome.", "reason"),
		patches:    metric("service_patches_total", "Patches of a Service's status, by what became of them.", "result"),
		duplicates: metric("duplicate_addresses_total", "Addresses found in the status of a Service although another one holds them."),
		repairs:    metric("status_repairs_total", "Writes that put right what something else had changed."),
		restored:   metric("restored_services", "Services that were found holding an address when this process became leader."),
	}
}

// DescribeWithStability names the metrics.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{c.size, c.used, c.cooling, c.waiting, c.moving, c.decisions, c.patches, c.duplicates, c.repairs, c.restored} {
		ch <- d
	}
}

// CollectWithStability reads the state.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	gauge := func(d *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, labels...)
	}
	counter := func(d *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.CounterValue, value, labels...)
	}
	state := c.controller.balancer.State(time.Now())
	for _, u := range state.Usage {
		gauge(c.size, float64(u.Size), u.Pool, string(u.Family))
		gauge(c.used, float64(u.Held), u.Pool, string(u.Family))
		gauge(c.cooling, float64(u.Cooling), u.Pool, string(u.Family))
	}
	for _, reason := range sortedReasons(state.Waiting) {
		gauge(c.waiting, float64(state.Waiting[reason]), string(reason))
	}
	gauge(c.moving, float64(c.controller.turns.waiting(time.Now())))
	counts := &c.controller.counts
	decisions := counts.decisionsByReason()
	for _, reason := range sortedReasons(decisions) {
		counter(c.decisions, float64(decisions[reason]), string(reason))
	}
	for _, o := range outcomes() {
		counter(c.patches, float64(counts.patched(o)), string(o))
	}
	counter(c.duplicates, float64(counts.duplicates.Load()))
	counter(c.repairs, float64(counts.repairs.Load()))
	gauge(c.restored, float64(counts.restored.Load()))
}

func sortedReasons(counted map[ipam.Reason]int) []ipam.Reason {
	return slices.Sorted(maps.Keys(counted))
}
