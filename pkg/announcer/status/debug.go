package status

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Plan is what /debug/plan shows: all that the last pass was decided from, and
// what came of it. Changing a name in it is an API change.
type Plan struct {
	Time  time.Time // of the last pass
	Error string    // what was wrong with it

	// Document and World are the snapshot: the configuration as its text, and
	// everything else.
	Document string
	World    World

	// Verdicts name the first of many candidates and excluded nodes. Who needs
	// all of them asks plan.Explain with the snapshot.
	Verdicts  []plan.Verdict
	Answering []plan.Announcement // what is really answered for, those being handed over included
	LeftOut   map[string]string   // links of this node that never carry an announcement, with the cause
	Layer2    Layer2
	BGP       []BGPSession // with routers, by the peer's name

	ObserveOnly bool       // nothing is announced: all this is what would be
	Moves       []Move     // the last that this announcer has seen, newest first
	Host        []HostLink // what is set on this node, by the name of the link
}

// Move is a change of the node that announces an address, or of whether any does.
type Move struct {
	Time     time.Time // of the pass that saw it
	Address  netip.Addr
	From, To string      // Nodes; empty: nobody
	Cause    plan.Reason // why From announces it no more, or nobody does
	Services []string    // that hold it, sorted
}

// HostLink is a link that may carry announcements, as the node has set it up.
type HostLink struct {
	Name string
	MTU  int // bytes

	// ReversePath is the greater of net.ipv4.conf.all.rp_filter and the link's
	// own, which is what counts: 0 off, 1 strict, 2 loose; -1 if it is not known.
	ReversePath int
}

// World is a snapshot without its configuration.
type World struct {
	Node     string
	Self     plan.Standing
	Services []plan.Service
	Nodes    []plan.Node
	Members  []plan.Member
	Departed []plan.Member
	Links    []plan.Link
	Reserved []netip.Addr
	Returns  int
	Isolated bool
}

// Snapshot puts together what the decisions were made from, so that they can
// be made again anywhere.
func (p Plan) Snapshot() (plan.Snapshot, error) {
	c, err := config.Load([]byte(p.Document))
	if err != nil {
		return plan.Snapshot{}, fmt.Errorf("load the configuration of the plan: %w", err)
	}
	w := p.World
	return plan.Snapshot{
		Node: w.Node, Self: w.Self, Config: c, Services: w.Services, Nodes: w.Nodes, Members: w.Members,
		Departed: w.Departed, Links: w.Links, Reserved: w.Reserved, Returns: w.Returns, Isolated: w.Isolated,
	}, nil
}

// Plan returns the decisions in force.
func (s *Status) Plan() Plan {
	last := s.last.Load()
	from := last.Snapshot
	p := Plan{
		Time:     last.Started,
		Document: s.o.Document(),
		World: World{
			Node: s.o.Node, Self: from.Self, Services: from.Services, Nodes: from.Nodes, Members: from.Members,
			Departed: from.Departed, Links: from.Links, Reserved: from.Reserved, Returns: from.Returns, Isolated: from.Isolated,
		},
		Verdicts: last.Verdicts,
		LeftOut:  s.o.LeftOut(),
		Layer2:   s.o.Layer2(),
		BGP:      s.o.BGP(),

		ObserveOnly: s.o.ObserveOnly,
		Moves:       s.moves.newest(),
		Host:        s.o.Host(),
	}
	for _, a := range s.o.Answering() {
		a.Peers = nil // the same for all of them, and to be seen at the members
		p.Answering = append(p.Answering, a)
	}
	if last.Err != nil {
		p.Error = last.Err.Error()
	}
	return p
}

// servePlan writes the plan as JSON, or with ?format=text as a table.
func (s *Status) servePlan(w http.ResponseWriter, r *http.Request) {
	p := s.Plan()
	out := bufio.NewWriter(w)
	switch format := r.FormValue("format"); format {
	case "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		p.writeText(out)
	case "", "json":
		w.Header().Set("Content-Type", "application/json")
		p.writeJSON(out)
	default:
		http.Error(w, fmt.Sprintf("unknown format %q: json or text", format), http.StatusBadRequest)
		return
	}
	if err := out.Flush(); err != nil {
		s.o.Log.Debug("debug page not written", "err", err)
	}
}

// writeText renders the plan for people.
func (p Plan) writeText(w io.Writer) {
	if p.ObserveOnly {
		fmt.Fprintln(w, "only observing: this is what would be announced; nothing is")
	}
	if p.Error != "" {
		fmt.Fprintf(w, "the last pass failed: %s\n", p.Error)
	}
	fmt.Fprint(w, plan.Table(p.Verdicts))
	p.Layer2.writeText(w)
}
