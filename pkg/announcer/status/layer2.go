package status

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Layer2 is what the layer 2 speaker counts and knows.
type Layer2 struct {
	Frames    map[string]Frames // by protocol: arp, ndp
	Links     []Layer2Link
	Conflicts []Conflict
	Withheld  []Withheld
}

// Frames counts the frames of one protocol.
type Frames struct {
	Requests, Replies, Unsent, Gratuitous, Probes, Foreign uint64
	Dropped                                                map[string]uint64 // by cause
}

// Layer2Link is a link that addresses are announced on.
type Layer2Link struct {
	Name                 string
	Open                 bool // every socket of it is open
	Errors, Overflow     uint64
	Broadcasts, Filtered uint64 // ARP frames to all, and those of them that woke nobody
	Deaf                 bool   // it has received no broadcast for half an hour
}

// memberAnnounces is the cause of a Conflict that another announcer makes.
const memberAnnounces = "MemberAnnounces"

// Conflict is a station that claims an address of ours.
type Conflict struct {
	Address, Link, MAC, Node string
	Cause                    string // ForeignStation, KernelAnswers or MemberAnnounces
	Since                    time.Time
	Refused                  bool // the address is not announced because of it
}

// Withheld is an address that this node should announce and does not: it asks
// the wire for it, or has left it to the station that answered.
type Withheld struct {
	Address, Link string
	MAC, Node     string // empty: nobody has answered yet; no member
	Since         time.Time
}

// writeText renders for people what is not as it should be.
func (l Layer2) writeText(w io.Writer) {
	for _, link := range l.Links {
		if link.Deaf {
			fmt.Fprintf(w, "%s has received no broadcast for half an hour: requests may not arrive\n", link.Name)
		}
	}
	for _, c := range l.Conflicts {
		fmt.Fprintf(w, "conflict: %s is claimed on %s by %s (%s) since %s\n",
			c.Address, c.Link, who(c.MAC, c.Node), c.Cause, c.Since.UTC().Format(time.RFC3339))
	}
	for _, h := range l.Withheld {
		what := "is asked for"
		if h.MAC != "" {
			what = "is left to " + who(h.MAC, h.Node)
		}
		fmt.Fprintf(w, "withheld: %s %s on %s since %s\n", h.Address, what, h.Link, h.Since.UTC().Format(time.RFC3339))
	}
}

// who names a station, and the member that it is if it is one.
func who(mac, node string) string {
	if node == "" {
		return mac
	}
	return mac + " of " + node
}

func (s state) collectLayer2(ch chan<- prometheus.Metric) {
	l := s.o.Layer2()
	for _, protocol := range slices.Sorted(maps.Keys(l.Frames)) {
		collectFrames(ch, protocol, l.Frames[protocol])
	}
	for _, link := range l.Links {
		collectLink(ch, link)
	}
	for _, c := range l.Conflicts {
		emit(ch, prometheus.GaugeValue, "layer2_conflict", "A station that claims an address of ours; node is the member whose link it is, cause says what makes it do so.",
			[]string{"address", "link", "mac", "node", "cause"}, value(1, c.Address, c.Link, c.MAC, c.Node, c.Cause))
	}
	for _, h := range l.Withheld {
		emit(ch, prometheus.GaugeValue, "layer2_withheld", "An address that is not announced because the wire is asked for it, or because the station mac has answered.",
			[]string{"address", "link", "mac", "node"}, value(1, h.Address, h.Link, h.MAC, h.Node))
	}
}

func collectFrames(ch chan<- prometheus.Metric, protocol string, f Frames) {
	for _, c := range []struct {
		name, help string
		n          uint64
	}{
		{"layer2_requests_total", "Requests for an address that is answered for.", f.Requests},
		{"layer2_replies_total", "Replies to them.", f.Replies},
		{"layer2_unsent_total", "Frames that the kernel did not take.", f.Unsent},
		{"layer2_gratuitous_total", "Announcements sent unasked.", f.Gratuitous},
		{"layer2_probes_total", "Questions whether somebody else has an address.", f.Probes},
		{"layer2_foreign_total", "Frames by which another station claimed an address of ours.", f.Foreign},
	} {
		emit(ch, prometheus.CounterValue, c.name, c.help, []string{"protocol"}, value(c.n, protocol))
	}
	var dropped []sample
	for _, cause := range slices.Sorted(maps.Keys(f.Dropped)) {
		dropped = append(dropped, value(f.Dropped[cause], protocol, cause))
	}
	emit(ch, prometheus.CounterValue, "layer2_dropped_total", "Frames that were looked at for nothing, by why.", []string{"protocol", "cause"}, dropped...)
}

func collectLink(ch chan<- prometheus.Metric, link Layer2Link) {
	labels := []string{"link"}
	emit(ch, prometheus.GaugeValue, "layer2_link_open", "Whether every socket of the link is open.", labels, truth(link.Open, link.Name))
	emit(ch, prometheus.GaugeValue, "layer2_link_deaf", "Whether the link has received no broadcast of any kind for half an hour.", labels, truth(link.Deaf, link.Name))
	for _, c := range []struct {
		name, help string
		n          uint64
	}{
		{"layer2_link_errors_total", "Sockets that failed, and frames that could not be sent.", link.Errors},
		{"layer2_link_overflow_total", "Frames that the kernel threw away because they were not read in time.", link.Overflow},
		{"layer2_link_broadcasts_total", "Broadcast ARP frames of others, whatever they are about.", link.Broadcasts},
		{"layer2_link_filtered_total", "Those of them that the kernel's filter kept from waking the announcer.", link.Filtered},
	} {
		emit(ch, prometheus.CounterValue, c.name, c.help, labels, value(c.n, link.Name))
	}
}
