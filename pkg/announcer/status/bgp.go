package status

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// BGPSession is a session with a router. The names in it are part of
// /debug/plan; changing one is an API change.
type BGPSession struct {
	Peer     string
	Address  string // of the router
	Port     int
	ASN      uint32 // the router's, 0 before it has said it
	LocalASN uint32
	RouterID string // ours
	Local    string // the node's end of the connection; empty: there has been none

	State string    // Idle, Connecting, Opening, Established, Leaving or Left
	Since time.Time // when it came into this state
	Why   string    // what keeps it from coming up, or ended it; empty: nothing

	Families   []config.Family          // that are sent
	Mute       map[config.Family]string // that are configured and not sent, with the reason
	Advertised []plan.Route             // what the router has been told, by prefix
	Wanted     int                      // how many routes it should be told
	BFD        string                   // up, down or another word; empty: there is none
	Restarting bool                     // the router keeps the routes while the announcer restarts

	Times           uint64 // how often it has come up
	UpdatesSent     uint64
	UpdatesReceived uint64 // all dropped
	Uncounted       bool   `json:",omitempty"` // what speaks BGP does not count them
}

// up tells whether routes are advertised.
func (b BGPSession) up() bool { return b.State == "Established" || b.State == "Leaving" }

const sessionUp = "Whether the session with a router is established. No value where the node has taken leave of the router, nor in a rehearsal."

// due tells whether a session should be up: a node that is drained or left out
// has none, and nor has one that only observes.
func (s state) due(b BGPSession) bool { return b.State != "Left" && !s.o.ObserveOnly }

func (s state) collectBGP(ch chan<- prometheus.Metric) {
	emit(ch, prometheus.CounterValue, "bgp_reloads_total", "How often FRR has been given another configuration; 0 with other backends.", nil, value(s.o.Reloads()))
	for _, b := range s.o.BGP() {
		gauge := func(name, help string, labels []string, x sample) {
			emit(ch, prometheus.GaugeValue, "bgp_"+name, help, labels, x)
		}
		peer := []string{"peer"}
		if s.due(b) {
			gauge("session_up", sessionUp, peer, truth(b.up(), b.Peer))
		}
		if b.up() {
			gauge("session_established_timestamp_seconds", "When the session came up, or began to take leave.", peer, sample{float64(b.Since.Unix()), []string{b.Peer}})
		}
		if b.BFD != "" {
			gauge("bfd_up", "Whether BFD says that a router is alive.", peer, truth(b.BFD == "up", b.Peer))
		}
		told := map[config.Family]int{}
		for _, r := range b.Advertised {
			told[config.FamilyOf(r.Prefix.Addr())]++
		}
		for _, f := range b.Families {
			gauge("advertised_prefixes", "Prefixes that a router has been told.", []string{"peer", "family"}, value(told[f], b.Peer, string(f)))
		}
		gauge("wanted_prefixes", "Prefixes that a router should be told.", peer, value(b.Wanted, b.Peer))
		counters := []struct {
			name, help string
			n          uint64
		}{
			{"sessions_total", "How often the session with a router has come up.", b.Times},
			{"updates_sent_total", "UPDATE messages to a router.", b.UpdatesSent},
			{"updates_received_total", "UPDATE messages of a router, all of which are dropped.", b.UpdatesReceived},
		}
		if b.Uncounted {
			counters = counters[:1]
		}
		for _, c := range counters {
			emit(ch, prometheus.CounterValue, "bgp_"+c.name, c.help, peer, value(c.n, b.Peer))
		}
	}
}
