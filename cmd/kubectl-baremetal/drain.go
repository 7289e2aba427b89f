package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/ask"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// drainAnnotation asks the announcer on a Node to give its addresses away.
const drainAnnotation = "ccm-baremetal.io/drain" // "true": other nodes are to announce what this one does

const drainPoll = 500 * time.Millisecond

type drainOptions struct {
	dryRun, wait bool
	timeout      time.Duration
}

func newDrainCommand(c *cluster) *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:     "drain NODE",
		Short:   "Move all addresses away from a node, without loss",
		Long:    drainHelp,
		Example: drainExamples,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.Client()
			if err != nil {
				return err
			}
			if _, err := client.CoreV1().Nodes().Get(cmd.Context(), args[0], metav1.GetOptions{}); err != nil {
				return fmt.Errorf("get node %s: %w", args[0], err)
			}
			if o.dryRun {
				return rehearse(cmd.Context(), c, args[0], cmd.OutOrStdout())
			}
			return o.drain(cmd.Context(), c, client, args[0], cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.dryRun, "dry-run", false, "only say which addresses would move where")
	fs.BoolVar(&o.wait, "wait", true, "wait until the node announces nothing any more")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "wait for this long at most")
	return cmd
}

// rehearse says what would move, from what an announcer knows.
func rehearse(ctx context.Context, c *cluster, node string, w io.Writer) error {
	a, err := c.announcers(ctx)
	if err != nil {
		return err
	}
	p, err := a.plan(ctx, "")
	if err != nil {
		return err
	}
	s, err := ask.Simulate(p, ask.Change{Drain: []string{node}})
	if err != nil {
		return err
	}
	if err := s.Print(w); err != nil {
		return err
	}
	if stay := staying(p, s, node); len(stay) > 0 {
		_, err = fmt.Fprintf(w, "%s would stay on %s: no other node can serve them (kubectl baremetal explain ADDRESS says why)\n", strings.Join(stay, ", "), node)
	}
	return err
}

// staying names the addresses of a node that have nowhere to go.
func staying(p status.Plan, s ask.Simulation, node string) []string {
	moves := func(v plan.Verdict) bool {
		return slices.ContainsFunc(s.Moves, func(m ask.Move) bool { return m.Address == v.Address })
	}
	var stay []string
	for _, v := range p.Verdicts {
		if v.Owner == node && !moves(v) {
			stay = append(stay, v.Address.String())
		}
	}
	return stay
}

// drain asks for it, and watches it happen.
func (o drainOptions) drain(ctx context.Context, c *cluster, client kubernetes.Interface, node string, w io.Writer) error {
	if err := annotate(ctx, client, node, "true"); err != nil {
		return err
	}
	fmt.Fprintf(w, "node %s: annotation %s is true. The way back: kubectl baremetal undrain %s\n", node, drainAnnotation, node)
	if !o.wait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	a, err := c.announcers(ctx)
	if err != nil {
		return fmt.Errorf("the node drains, and its progress cannot be seen: %w", err)
	}
	return watchDrain(ctx, a, node, w)
}

// watchDrain returns when the node's announcer says that it drains and answers
// for nothing. Progress is told when it changes.
func watchDrain(ctx context.Context, a *announcers, node string, w io.Writer) error {
	last := ""
	for {
		p, err := a.plan(ctx, node)
		state := "cannot be asked: "
		if err == nil {
			state = progress(p, node)
		} else if ctx.Err() == nil {
			state += err.Error()
		}
		if state != last && ctx.Err() == nil {
			fmt.Fprintf(w, "node %s: %s\n", node, cmp.Or(state, "drained, it announces nothing any more"))
			last = state
		}
		if state == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("node %s is not drained yet: %s; the annotation stays (undrain takes it back)", node, last)
			}
			return ctx.Err()
		case <-time.After(drainPoll):
		}
	}
}

// progress says what a draining node still has to do; empty: nothing.
func progress(p status.Plan, node string) string {
	if p.World.Node != node {
		return fmt.Sprintf("cannot be asked: what answers is the announcer on %s", p.World.Node)
	}
	i := slices.IndexFunc(p.World.Members, func(m plan.Member) bool { return m.Name == node })
	if i < 0 || !p.World.Members[i].Draining {
		return "has not noticed yet"
	}
	var routers []string
	for _, b := range p.BGP {
		if len(b.Advertised) > 0 {
			routers = append(routers, b.Peer)
		}
	}
	var left []string
	if n := len(p.Answering); n > 0 {
		left = append(left, fmt.Sprintf("answers for %d addresses", n))
	}
	if len(routers) > 0 {
		left = append(left, "advertises to "+strings.Join(routers, ", "))
	}
	if len(left) == 0 {
		return ""
	}
	return "still " + strings.Join(left, ", ")
}

func newUndrainCommand(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:     "undrain NODE",
		Short:   "Let a drained node announce again",
		Long:    undrainHelp,
		Example: "  kubectl baremetal undrain n1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.Client()
			if err != nil {
				return err
			}
			if err := annotate(cmd.Context(), client, args[0], ""); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "node %s: annotation %s is gone, it takes its addresses back\n", args[0], drainAnnotation)
			return err
		},
	}
}

// annotate sets the annotation, or takes it away if value is empty.
func annotate(ctx context.Context, client kubernetes.Interface, node, value string) error {
	var wanted any
	if value != "" {
		wanted = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{drainAnnotation: wanted}}})
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", node, err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotate node %s: %w", node, err)
	}
	return nil
}
