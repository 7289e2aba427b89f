package main

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

// memberList is the output of members. The names in it are those of the JSON
// output; changing one is an API change. Lists are never null.
type memberList struct {
	Node    string         `json:"node"` // that was asked
	Members []memberOutput `json:"members"`
	Missing []string       `json:"missing"` // Nodes without a live announcer
}

type memberOutput struct {
	Name   string       `json:"name"`
	State  string       `json:"state"` // active, passive, draining, settling, stale, or why it is unfit
	Owns   int          `json:"owns"`  // addresses
	Rules  int          `json:"rules"`
	Config string       `json:"config"` // the hash of the configuration that it acts on; empty: it has not told
	Links  []linkOutput `json:"links"`
}

type linkOutput struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
}

func (l linkOutput) String() string {
	if l.Up {
		return l.Name
	}
	return l.Name + " (down)"
}

func newMembersCommand() *cobra.Command {
	a := &asking{}
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the live announcers",
		Long:  membersHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.plan(cmd)
			if err != nil {
				return err
			}
			list := newMemberList(p)
			if a.output == "json" {
				return printJSON(cmd.OutOrStdout(), list)
			}
			return list.print(cmd.OutOrStdout())
		},
	}
	a.add(cmd)
	return cmd
}

func newMemberList(p status.Plan) memberList {
	owns := map[string]int{}
	for _, v := range p.Verdicts {
		owns[v.Owner]++
	}
	list := memberList{Node: p.World.Node, Members: []memberOutput{}, Missing: []string{}}
	for _, m := range p.World.Members {
		list.Members = append(list.Members, memberOutput{
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

func describeLinks(links []plan.Link) []linkOutput {
	out := []linkOutput{}
	for _, l := range links {
		out = append(out, linkOutput{l.Name, l.Up})
	}
	return out
}

func (l memberList) print(w io.Writer) error {
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
