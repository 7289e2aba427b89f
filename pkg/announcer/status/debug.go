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

// shownExclusions is how many excluded nodes /debug/plan shows of an address.
// In a big cluster with few announcers all of them would be millions. Who needs
// them decides again from the snapshot.
const shownExclusions = 16

// Plan is what /debug/plan shows: all that the last pass was decided from, and
// what came of it. Changing a name in it is an API change.
type Plan struct {
	Time  time.Time // of the last pass
	Error string    // what was wrong with it

	// Document and World are the snapshot: the configuration as its text, and
	// everything else.
	Document string
	World    World

	Verdicts  []Verdict
	Answering []plan.Announcement // what is really answered for, those being handed over included
	LeftOut   map[string]string   // links of this node that never carry an announcement, with the cause
}

// Verdict is a verdict with only the first of its excluded nodes.
type Verdict struct {
	plan.Verdict
	MoreExcluded int // how many are not shown
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
		Departed: w.Departed, Links: w.Links, Reserved: w.Reserved, Returns: w.Returns,
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
			Departed: from.Departed, Links: from.Links, Reserved: from.Reserved, Returns: from.Returns,
		},
		LeftOut: s.o.LeftOut(),
	}
	for _, v := range last.Verdicts {
		p.Verdicts = append(p.Verdicts, shorten(v))
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

func shorten(v plan.Verdict) Verdict {
	more := len(v.Excluded) - shownExclusions
	if more <= 0 {
		return Verdict{Verdict: v}
	}
	v.Excluded = v.Excluded[:shownExclusions]
	return Verdict{Verdict: v, MoreExcluded: more}
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
	if p.Error != "" {
		fmt.Fprintf(w, "the last pass failed: %s\n", p.Error)
	}
	for _, v := range p.Verdicts {
		fmt.Fprint(w, plan.Table([]plan.Verdict{v.Verdict}))
		if v.MoreExcluded > 0 {
			fmt.Fprintf(w, "  and %d more left out\n", v.MoreExcluded)
		}
	}
}
