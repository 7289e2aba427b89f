package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// A debugPage is what an announcer says of itself and of its world, as far as
// tests ask for it.
type debugPage struct {
	Error, Document string
	ObserveOnly     bool
	Answering, BGP  []json.RawMessage
	World           struct {
		Isolated bool
		Services []struct{ Namespace, Name string }
		Members  []debugMember
		Nodes    []struct {
			Name         string
			Drain, Ready bool
		}
	}
}

// A debugMember is what an announcer says of one, itself included.
type debugMember struct {
	Name, Config, Unfit                       string
	Passive, Draining, Settling, Stale, NoAPI bool
	Links                                     []struct{ Up bool }
}

// debug reads the debug page of a node's announcer.
func debug(ctx context.Context, node string) (debugPage, error) {
	var p debugPage
	text, err := installed.Debug(ctx, node, "/debug/plan")
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("the debug page of %s: %w", node, err)
	}
	return p, nil
}

// sees says whether the announcer sees other members than these, not counting
// those that are passive.
func (p debugPage) sees(want ...string) error {
	var all []string
	for _, m := range p.World.Members {
		if !m.Passive {
			all = append(all, m.Name)
		}
	}
	if !sameNames(all, want) {
		return fmt.Errorf("it sees %v", all)
	}
	return nil
}

// linkDown tells whether one of its links does not count as up. One that was
// plugged in again counts after five seconds.
func (m debugMember) linkDown() bool {
	return slices.ContainsFunc(m.Links, func(l struct{ Up bool }) bool { return !l.Up })
}

// idle says what is not as it should be at rest, and adds to configs which
// member acts on which.
func (p debugPage) idle(configs map[string][]string) error {
	w := p.World
	switch {
	case p.Error != "" || p.ObserveOnly || w.Isolated:
		return fmt.Errorf("error %q, only observes: %v, isolated: %v", p.Error, p.ObserveOnly, w.Isolated)
	case p.Document != document:
		return fmt.Errorf("it acts on\n%s", p.Document)
	case len(w.Services)+len(p.Answering)+len(p.BGP) > 0:
		return fmt.Errorf("it knows the Services %v, answers for %s, and has the sessions %s", w.Services, p.Answering, p.BGP)
	}
	for _, m := range w.Members {
		if m.Passive || m.Draining || m.Settling || m.Stale || m.NoAPI || m.Unfit != "" || m.linkDown() {
			return fmt.Errorf("it sees %+v", m)
		}
		if !slices.Contains(configs[m.Config], m.Name) {
			configs[m.Config] = append(configs[m.Config], m.Name)
		}
	}
	var known []string
	for _, n := range w.Nodes {
		known = append(known, n.Name)
		if n.Drain || !n.Ready {
			return fmt.Errorf("it knows of the node %+v", n)
		}
	}
	if !sameNames(known, names()) {
		return fmt.Errorf("it knows the nodes %v", known)
	}
	return p.sees(names()...)
}
