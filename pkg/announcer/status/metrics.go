package status

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// Gossip is what the membership counts.
type Gossip struct {
	Joins, JoinFailures, Rejected, Garbled, Updates int
	HealthScore                                     int // 0 is healthy
}

// counters are the metrics that count what happens. All others show what is.
type counters struct {
	passes   *prometheus.CounterVec
	duration prometheus.Histogram
	moves    *prometheus.CounterVec
	takeover prometheus.Histogram
}

// register makes the registry. Names and labels are part of the API.
func (s *Status) register() {
	s.counters = counters{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "announcer_passes_total",
			Help: "Passes of the loop, by result.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "announcer_pass_duration_seconds",
			Help:    "How long passes of the loop took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "announcer_moves_total",
			Help: "Addresses that were seen to lose their node, by why it does not announce them any more.",
		}, []string{"cause"}),
		takeover: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "announcer_takeover_duration_seconds",
			Help:    "From the beginning of the pass that found this node to be the owner of another one's address until it answered.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
	}
	for _, result := range []string{"ok", "failed"} {
		s.counters.passes.WithLabelValues(result)
	}
	s.registry = prometheus.NewRegistry()
	s.registry.MustRegister(s.counters.passes, s.counters.duration, s.counters.moves, s.counters.takeover, state{s},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

func (c counters) count(p Pass) {
	result := "ok"
	if p.Err != nil {
		result = "failed"
	}
	c.passes.WithLabelValues(result).Inc()
	c.duration.Observe(p.Took.Seconds())
	for _, change := range p.Changes {
		if change.From != "" && change.From != change.To {
			c.moves.WithLabelValues(string(change.Cause)).Inc()
		}
	}
}

// state renders what is in force at each scrape, so that a series is gone as
// soon as what it is about.
type state struct{ *Status }

// Describe describes nothing: which series there are depends on the state.
func (state) Describe(chan<- *prometheus.Desc) {}

// Collect renders the state.
func (s state) Collect(ch chan<- prometheus.Metric) {
	p := s.last.Load()
	s.collectConfig(ch, p)
	s.collectPlan(ch, p)
	s.collectAnswering(ch)
	s.collectGossip(ch, p)
	s.collectLayer2(ch)
	s.collectBGP(ch)
}

// emit sends samples of one metric.
func emit(ch chan<- prometheus.Metric, kind prometheus.ValueType, name, help string, labels []string, samples ...sample) {
	desc := prometheus.NewDesc("announcer_"+name, help, labels, nil)
	for _, x := range samples {
		ch <- prometheus.MustNewConstMetric(desc, kind, x.value, x.labels...)
	}
}

type sample struct {
	value  float64
	labels []string
}

func value[N int | uint64](n N, labels ...string) sample { return sample{float64(n), labels} }

func truth(set bool, labels ...string) sample {
	if set {
		return value(1, labels...)
	}
	return value(0, labels...)
}

func (s state) collectConfig(ch chan<- prometheus.Metric, p *Pass) {
	emit(ch, prometheus.GaugeValue, "ready", "Whether the announcer takes part, as /readyz says.", nil, truth(s.Ready() == nil))
	emit(ch, prometheus.GaugeValue, "observe_only", "Whether the announcer only observes: what it decides is not announced.", nil, truth(s.o.ObserveOnly))
	emit(ch, prometheus.GaugeValue, "config_refused", "Whether the newest configuration document was refused.", nil, truth(s.o.ConfigFault() != nil))
	if p.known() {
		emit(ch, prometheus.GaugeValue, "config_info", "The hash of the configuration in force.", []string{"hash"}, value(1, p.Snapshot.Config.Hash))
	}
	emit(ch, prometheus.GaugeValue, "api_unreachable", "Kinds of object that cannot be read from the API server at the moment.", nil, value(len(s.o.Unreachable())))
}

func (s state) collectPlan(ch chan<- prometheus.Metric, p *Pass) {
	reasons, excluded := map[plan.Reason]int{}, map[plan.Reason]int{}
	for _, v := range p.Verdicts {
		reasons[v.Reason]++
		for reason, n := range v.LeftOut {
			excluded[reason] += n
		}
	}
	emit(ch, prometheus.GaugeValue, "addresses", "Addresses that Services hold, by why this node announces them or does not.",
		[]string{"reason"}, byReason(reasons)...)
	emit(ch, prometheus.GaugeValue, "excluded_candidates", "Nodes that are left out, summed over all addresses, by the first filter that they fail.",
		[]string{"reason"}, byReason(excluded)...)
	emit(ch, prometheus.GaugeValue, "services", "Services of ours.", nil, value(len(p.Snapshot.Services)))
	emit(ch, prometheus.GaugeValue, "nodes", "Node objects.", nil, value(len(p.Snapshot.Nodes)))
}

func byReason(counts map[plan.Reason]int) []sample {
	var samples []sample
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		samples = append(samples, value(counts[reason], string(reason)))
	}
	return samples
}

func (s state) collectAnswering(ch chan<- prometheus.Metric) {
	var announced []sample
	var yielding int
	for _, a := range s.o.Answering() {
		if a.Yield {
			yielding++
			continue
		}
		for _, l := range a.Links {
			announced = append(announced, value(1, a.Address.String(), l.Name))
		}
	}
	emit(ch, prometheus.GaugeValue, "announced", "An address that this node announces, and the link.", []string{"address", "link"}, announced...)
	emit(ch, prometheus.GaugeValue, "handing_over", "Addresses that this node still answers for until their new owner is heard.", nil, value(yielding))
}

func (s state) collectGossip(ch chan<- prometheus.Metric, p *Pass) {
	g := s.o.Gossip()
	emit(ch, prometheus.GaugeValue, "members", "Live announcers, this one included.", nil, value(len(p.Snapshot.Members)))
	emit(ch, prometheus.GaugeValue, "member_states", "Live announcers by what keeps them from owning addresses as others do; one may count for several.",
		[]string{"state"}, states(p.Snapshot.Members)...)
	emit(ch, prometheus.GaugeValue, "member_returns", "How often a member came back that had been alive meanwhile.", nil, value(p.Snapshot.Returns))
	emit(ch, prometheus.GaugeValue, "gossip_health_score", "How badly this process keeps up with the gossip; 0 is healthy.", nil, value(g.HealthScore))
	for _, c := range []struct {
		name, help string
		n          int
	}{
		{"gossip_joins_total", "Attempts to join a member that had answered.", g.Joins},
		{"gossip_join_failures_total", "Such attempts that failed.", g.JoinFailures},
		{"gossip_rejected_total", "Packets and streams refused: wrong key, other cluster, or unreadable.", g.Rejected},
		{"gossip_garbled_total", "Authentic messages refused: unreadable or out of bounds.", g.Garbled},
		{"gossip_updates_total", "Updates of this announcer's state that were handed to the gossip.", g.Updates},
	} {
		emit(ch, prometheus.CounterValue, c.name, c.help, nil, value(c.n))
	}
}

// states counts the members in each state that is not the normal one.
func states(members []plan.Member) []sample {
	counts := map[string]int{"passive": 0, "draining": 0, "settling": 0, "stale": 0, "unfit": 0}
	for i := range members {
		m := &members[i]
		for state, is := range map[string]bool{
			"passive": m.Passive, "draining": m.Draining, "settling": m.Settling, "stale": m.Stale, "unfit": m.Unfit != "",
		} {
			if is {
				counts[state]++
			}
		}
	}
	var samples []sample
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		samples = append(samples, value(counts[state], state))
	}
	return samples
}
