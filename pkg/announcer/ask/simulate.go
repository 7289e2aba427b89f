package ask

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Simulation is the output of simulate. The names in it are those of the JSON
// output; changing one is an API change. Lists are never null.
type Simulation struct {
	Addresses int    `json:"addresses"` // that Services hold
	Moves     []Move `json:"moves"`

	// Routes are the addresses that other nodes would tell routers of.
	Routes []Rerouting `json:"routes"`
}

// Rerouting is an address of which some nodes would not tell routers any more,
// or others would.
type Rerouting struct {
	Address  netip.Addr `json:"address"`
	Services []string   `json:"services"`
	Gone     []string   `json:"gone"` // nodes
	Come     []string   `json:"come"`
	Nodes    int        `json:"nodes"` // that would tell routers of it
}

// Move is an address that another node would announce, or nobody, or a node
// that nobody was before.
type Move struct {
	Address  netip.Addr  `json:"address"`
	Services []string    `json:"services"`
	From     string      `json:"from"` // empty: nobody
	To       string      `json:"to"`   // empty: nobody
	Tier     plan.Reason `json:"tier"` // of To: Normal, or why it stands behind others; empty without To
	Cause    plan.Reason `json:"cause"`
}

// Change is what Simulate is to suppose, all of it at once.
type Change struct {
	Drain, Lose []string // nodes
	Config      string   // the file of a document; empty: as it is

	trace string // file, of what happens over time instead
}

func newSimulateCommand(o Options) *cobra.Command {
	c := &Change{}
	cmd := o.command(&cobra.Command{
		Use:     "simulate",
		Short:   "Say which addresses would move if something happened",
		Long:    simulateHelp,
		Example: simulateExamples,
		Args:    cobra.NoArgs,
	}, func(p status.Plan, _ []string) (printer, error) { return c.outcome(p) })
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&c.Drain, "drain", nil, "suppose that this `node` drains; may be repeated")
	fs.StringSliceVar(&c.Lose, "lose", nil, "suppose that the announcer on this `node` dies; may be repeated")
	fs.StringVar(&c.Config, "config", "", "suppose that the configuration in this `file` is accepted")
	fs.StringVar(&c.trace, "trace", "", "replay the restarts and stalls of announcers in this `file`")
	return cmd
}

// outcome simulates what the flags ask for.
func (c *Change) outcome(p status.Plan) (printer, error) {
	switch {
	case c.trace == "":
		return Simulate(p, *c)
	case c.once():
		return nil, errors.New("--trace replays what happens over time, and goes with none of --drain, --lose and --config")
	}
	return replayTrace(p, c.trace)
}

// once tells whether there is anything to suppose that happens at once.
func (c Change) once() bool { return len(c.Drain)+len(c.Lose) > 0 || c.Config != "" }

// Simulate decides a plan as it is and as it would be.
func Simulate(p status.Plan, c Change) (Simulation, error) {
	before, err := p.Snapshot()
	if err != nil {
		return Simulation{}, err
	}
	after, err := c.apply(before)
	if err != nil {
		return Simulation{}, err
	}
	was, is := plan.Decide(before), plan.Decide(after)
	out := Simulation{Addresses: len(was), Moves: []Move{}}
	for _, d := range plan.Diff(was, is) {
		if d.From == d.To {
			continue
		}
		// The same addresses are held before and after.
		i, _ := slices.BinarySearchFunc(is, d.Address, func(v plan.Verdict, a netip.Addr) int { return v.Address.Compare(a) })
		m := Move{Address: d.Address, Services: is[i].Services, From: d.From, To: d.To, Cause: d.Cause}
		if d.To != "" {
			m.Tier = cmp.Or(is[i].Behind[d.To], normal)
		}
		out.Moves = append(out.Moves, m)
	}
	out.Routes = reroutings(is, plan.Routed(before), plan.Routed(after))
	return out, nil
}

// reroutings returns what differs between who tells routers of the addresses,
// and who would.
func reroutings(all []plan.Verdict, before, after map[netip.Addr][]string) []Rerouting {
	out := []Rerouting{}
	for _, v := range all {
		was, is := before[v.Address], after[v.Address]
		r := Rerouting{Address: v.Address, Services: v.Services, Gone: without(was, is), Come: without(is, was), Nodes: len(is)}
		if len(r.Gone)+len(r.Come) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// without returns those of a list that are not in another.
func without(list, other []string) []string {
	return slices.DeleteFunc(append([]string{}, list...), func(name string) bool { return slices.Contains(other, name) })
}

// apply returns the snapshot after the change.
func (c Change) apply(s plan.Snapshot) (plan.Snapshot, error) {
	if !c.once() {
		return s, errors.New("nothing to suppose: give --drain, --lose, --config or --trace")
	}
	for _, node := range slices.Concat(c.Drain, c.Lose) {
		if !slices.ContainsFunc(s.Members, func(m plan.Member) bool { return m.Name == node }) {
			return s, fmt.Errorf("there is no live announcer on %s", node)
		}
	}
	for _, node := range c.Drain {
		s = plan.Drain(s, node)
	}
	for _, node := range c.Lose {
		s = plan.Lose(s, node)
	}
	if c.Config == "" {
		return s, nil
	}
	text, err := os.ReadFile(c.Config)
	if err != nil {
		return s, fmt.Errorf("--config: %w", err)
	}
	if s.Config, err = config.Load(text); err != nil {
		return s, fmt.Errorf("--config: %s: %w", c.Config, err)
	}
	return s, nil
}

// Print shows a line for each move, and then for each address that other nodes
// would tell routers of.
func (s Simulation) Print(w io.Writer) error {
	fmt.Fprintf(w, "%d of %d addresses would move\n", len(s.Moves), s.Addresses)
	if err := s.printMoves(w); err != nil || len(s.Routes) == 0 {
		return err
	}
	fmt.Fprintf(w, "\n%d would be told to routers by other nodes\n", len(s.Routes))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ADDRESS\tNO LONGER BY\tNEWLY BY\tNODES\tSERVICES")
	for _, r := range s.Routes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", r.Address, orNone(r.Gone, "-"), orNone(r.Come, "-"), r.Nodes, strings.Join(r.Services, ", "))
	}
	return t.Flush()
}

func (s Simulation) printMoves(w io.Writer) error {
	if len(s.Moves) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ADDRESS\tFROM\tTO\tCAUSE\tSERVICES")
	for _, m := range s.Moves {
		to := cmp.Or(m.To, "nobody")
		if m.Tier != "" && m.Tier != normal {
			to = fmt.Sprintf("%s (%s)", to, m.Tier)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Address, cmp.Or(m.From, "nobody"), to, m.Cause, strings.Join(m.Services, ", "))
	}
	return t.Flush()
}
