package ask

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// Members is the output of members. The names in it are those of the JSON
// output; changing one is an API change. Lists are never null.
type Members struct {
	Node    string   `json:"node"` // that was asked
	Members []Member `json:"members"`
	Missing []string `json:"missing"` // Nodes without a live announcer
}

// Member is a live announcer.
type Member struct {
	Name   string `json:"name"`
	State  string `json:"state"` // active, passive, draining, settling, stale, or why it is unfit
	Owns   int    `json:"owns"`  // addresses
	Rules  int    `json:"rules"`
	Config string `json:"config"` // the hash of the configuration that it acts on; empty: it has not told
	Links  []Link `json:"links"`
}

// Link is a link of an announcer.
type Link struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
}

// String names the link, and says if it is down.
func (l Link) String() string {
	if l.Up {
		return l.Name
	}
	return l.Name + " (down)"
}

func newMembersCommand(o Options) *cobra.Command {
	return o.command(&cobra.Command{
		Use:     "members",
		Short:   "List the live announcers",
		Long:    membersHelp,
		Example: membersExamples,
		Args:    cobra.NoArgs,
	}, func(p status.Plan, _ []string) (printer, error) { return NewMembers(p), nil })
}

// NewMembers returns the announcers that a plan knows.
func NewMembers(p status.Plan) Members {
	owns := map[string]int{}
	for _, v := range p.Verdicts {
		owns[v.Owner]++
	}
	list := Members{Node: p.World.Node, Members: []Member{}, Missing: []string{}}
	for _, m := range p.World.Members {
		list.Members = append(list.Members, Member{
			Name: m.Name, State: stateOf(m), Rules: m.Rules, Config: m.Config, Links: describeLinks(m.Links), Owns: owns[m.Name],
		})
	}
	for _, n := range p.World.Nodes {
		if !slices.ContainsFunc(p.World.Members, func(m plan.Member) bool { return m.Name == n.Name }) {
			list.Missing = append(list.Missing, n.Name)
		}
	}
	return list
}

func stateOf(m plan.Member) string {
	switch {
	case m.Passive:
		return "passive"
	case m.Draining:
		return "draining"
	case m.Unfit != "":
		return string(m.Unfit)
	case m.Stale:
		return "stale"
	case m.Settling:
		return "settling"
	default:
		return "active"
	}
}

func describeLinks(links []plan.Link) []Link {
	out := []Link{}
	for _, l := range links {
		out = append(out, Link{l.Name, l.Up})
	}
	return out
}

// Print shows a line for each announcer.
func (l Members) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSTATE\tOWNS\tRULES\tCONFIG\tLINKS")
	for _, m := range l.Members {
		name := m.Name
		if name == l.Node {
			name += " *"
		}
		links := strings.Trim(fmt.Sprint(m.Links), "[]")
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\n", name, m.State, m.Owns, m.Rules, cmp.Or(m.Config, "?"), links)
	}
	for _, name := range l.Missing {
		fmt.Fprintf(t, "%s\tno announcer\n", name)
	}
	return t.Flush()
}
