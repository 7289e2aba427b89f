package instances

import (
	"sync"

	"k8s.io/component-base/metrics"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
)

// counts are the things that only counting can tell.
type counts struct {
	mu       sync.Mutex
	verdicts map[decide.Verdict]int
	labels   int
}

func (c *counts) existence(v decide.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verdicts == nil {
		c.verdicts = map[decide.Verdict]int{}
	}
	c.verdicts[v]++
}

func (c *counts) labelled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.labels++
}

func metric(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc("ccm_baremetal_"+name, help, labels, nil, metrics.ALPHA, "")
}

// A collector renders the state of Instances at scrape. Changing the name or a
// label of a metric is an API change.
type collector struct {
	metrics.BaseStableCollector

	instances *Instances

	verdicts, suspects, held, labels, up, hosts *metrics.Desc
}

// Collector returns what renders the metrics; the caller registers it, once.
func (i *Instances) Collector() metrics.StableCollector {
	return &collector{
		instances: i,
		verdicts:  metric("node_existence_total", "Questions whether the machine of a Node that is not Ready exists, by the verdict.", "verdict"),
		suspects:  metric("nodes_possibly_gone", "Nodes that are not Ready and whose machine seems to be gone."),
		held:      metric("nodes_deletion_held", "Nodes that are kept although their machine is gone, because too many are, or because the control plane needs them."),
		labels:    metric("node_label_patches_total", "Patches of the labels of Nodes."),
		up:        metric("metal3_up", "Whether the BareMetalHosts of the management cluster are known. Absent without nodes.source: metal3."),
		hosts:     metric("metal3_hosts", "BareMetalHosts that are known. Absent without nodes.source: metal3."),
	}
}

// DescribeWithStability names the metrics.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{c.verdicts, c.suspects, c.held, c.labels, c.up, c.hosts} {
		ch <- d
	}
}

// CollectWithStability reads the state.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	gauge := func(d *metrics.Desc, value int) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, float64(value))
	}
	suspects, held := c.instances.doubtful()
	gauge(c.suspects, suspects)
	gauge(c.held, held)
	if wanted, up, hosts := c.instances.hosts.state(); wanted {
		gauge(c.up, map[bool]int{true: 1}[up])
		gauge(c.hosts, hosts)
	}
	counts := &c.instances.counts
	counts.mu.Lock()
	defer counts.mu.Unlock()
	for _, v := range []decide.Verdict{decide.Exists, decide.Gone, decide.Unknown} {
		ch <- metrics.NewLazyConstMetric(c.verdicts, metrics.CounterValue, float64(counts.verdicts[v]), string(v))
	}
	ch <- metrics.NewLazyConstMetric(c.labels, metrics.CounterValue, float64(counts.labels))
}

// doubtful counts the Nodes whose machine seems to be gone, and those among
// them that are kept to be on the safe side.
func (i *Instances) doubtful() (suspects, held int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.memories {
		if m.gone.Times > 0 {
			suspects++
		}
		if m.held {
			held++
		}
	}
	return suspects, held
}
