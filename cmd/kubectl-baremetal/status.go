package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/diagnose"
)

// summary is the output of status. The names in it are those of the JSON
// output; changing one is an API change. Lists are never null.
type summary struct {
	Checks   []diagnose.Check `json:"checks"` // controller, announcers, configuration
	Pools    []inspect.Pool   `json:"pools"`
	Services int              `json:"services"`
	Trouble  []service        `json:"trouble"` // Services that are not served
}

func newStatusCommand(c *cluster) *cobra.Command {
	var output string
	return withOutput(&cobra.Command{
		Use:     "status",
		Short:   "Show on one screen whether everything is served",
		Long:    statusHelp,
		Example: statusExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.Client()
			if err != nil {
				return err
			}
			s, err := readSummary(cmd.Context(), client, c.installed)
			if err != nil {
				return err
			}
			return show(cmd, output, s)
		},
	}, &output)
}

func readSummary(ctx context.Context, client kubernetes.Interface, namespace string) (summary, error) {
	s := summary{Pools: []inspect.Pool{}, Trouble: []service{}}
	g := gatherer{client: client, namespace: namespace}
	s.Checks = diagnose.Installed(diagnose.Facts{
		Namespace: namespace, Deployment: g.deployment(ctx),
		Controller: g.controller(ctx), Announcers: g.announcers(ctx), Config: g.configuration(ctx),
	})
	a, err := readAllocations(ctx, client, namespace)
	if err != nil {
		return s, err
	}
	services, err := readServices(ctx, client, "", a)
	if err != nil {
		return s, err
	}
	s.Pools, s.Services = a.Pools, len(services)
	for _, svc := range services {
		if !svc.well() {
			s.Trouble = append(s.Trouble, svc)
		}
	}
	return s, nil
}

// Print shows what is installed, the pools, and the Services in trouble.
func (s summary) Print(w io.Writer) error {
	var b strings.Builder
	for _, c := range s.Checks {
		fmt.Fprintf(&b, "%-14s %-8s %s\n", c.Name, c.Verdict, c.Seen)
	}
	fmt.Fprintf(&b, "%-14s %-8s %d of ours, %d not served\n\n", "services", verdictOf(s), s.Services, len(s.Trouble))
	printPools(&b, s.Pools)
	if len(s.Trouble) > 0 {
		fmt.Fprintln(&b)
		if err := (serviceList{s.Trouble}).Print(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func verdictOf(s summary) diagnose.Verdict {
	if len(s.Trouble) > 0 {
		return diagnose.Fail
	}
	return diagnose.OK
}

// poolList is the output of pools. The names in it are those of the JSON
// output; changing one is an API change. Lists are never null.
type poolList struct {
	Pools   []inspect.Pool    `json:"pools"`
	Waiting []inspect.Waiting `json:"waiting"`
}

func newPoolsCommand(c *cluster) *cobra.Command {
	var output string
	return withOutput(&cobra.Command{
		Use:     "pools",
		Short:   "Show how full the pools are, and who waits for an address",
		Long:    poolsHelp,
		Example: poolsExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, a, err := c.allocations(cmd.Context())
			if err != nil {
				return err
			}
			return show(cmd, output, poolList{a.Pools, a.Waiting})
		},
	}, &output)
}

// Print shows a line for each family of each pool.
func (l poolList) Print(w io.Writer) error {
	var b strings.Builder
	printPools(&b, l.Pools)
	if len(l.Waiting) > 0 {
		inspect.Table(&b, "\nWAITS\tREASON\tPOOLS\tMESSAGE", l.Waiting, func(s inspect.Waiting) string {
			return strings.Join([]string{s.Service, s.Reason, inspect.OrNone(strings.Join(s.Pools, ",")), s.Message}, "\t")
		})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printPools(w io.Writer, pools []inspect.Pool) {
	inspect.Table(w, "POOL\tSTATE\tFAMILY\tSIZE\tUSED\tFREE\tWAITING\tUSAGE", pools, func(p inspect.Pool) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s", p.Name, p.State, p.Family, inspect.Count(p.Size), p.Used, inspect.Count(p.Free), p.Waiting, bar(percent(p)))
	})
}

// percent is how full a pool is, rounded down; 0 to 100.
func percent(p inspect.Pool) int {
	if p.Size == 0 {
		return 0
	}
	return min(100, int(100*float64(p.Used)/float64(p.Size)))
}

// bar draws a percentage.
func bar(percent int) string {
	full := percent / 10
	return fmt.Sprintf("%s%s %d %%", strings.Repeat("#", full), strings.Repeat(".", 10-full), percent)
}

func newServicesCommand(c *cluster) *cobra.Command {
	var output string
	return withOutput(&cobra.Command{
		Use:     "services",
		Short:   "Show where each Service is announced, or why it is not",
		Long:    servicesHelp,
		Example: servicesExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, a, err := c.allocations(cmd.Context())
			if err != nil {
				return err
			}
			services, err := readServices(cmd.Context(), client, c.selected(), a)
			if err != nil {
				return err
			}
			return show(cmd, output, serviceList{services})
		},
	}, &output)
}
