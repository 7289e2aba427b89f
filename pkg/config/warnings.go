package config

import (
	"fmt"
	"slices"
)

// Warnings returns what is allowed in a configuration and yet may not be what
// was meant, in the order of the document. The lines are not known any more.
func Warnings(c Config) []Error {
	var out []Error
	if !slices.ContainsFunc(c.Pools, func(p Pool) bool { return p.AutoAssign && p.State == Active }) {
		out = append(out, Error{
			Path:    "pools",
			Message: "no active pool has autoAssign: Services that ask for no pool or address get none",
		})
	}
	for i, p := range c.Pools {
		path := fmt.Sprintf("pools[%d] (%s)", i, p.Name)
		for _, message := range p.warnings() {
			out = append(out, Error{Path: path, Message: message})
		}
		if !c.announced(p) {
			out = append(out, Error{
				Path:    path,
				Message: "no advertisement selects this pool: its addresses are given out and nobody announces them",
			})
		}
	}
	for i, a := range c.Advertisements {
		for _, message := range a.warnings() {
			out = append(out, Error{Path: fmt.Sprintf("advertisements[%d] (%s)", i, a.Name), Message: message})
		}
	}
	return append(append(out, bgpWarnings(c)...), c.Nodes.warnings()...)
}

// warnings returns what is odd about the advertisement alone. Of other links
// only their nodes know what they are.
func (a Advertisement) warnings() []string {
	var out []string
	if a.Layer2 == nil {
		return nil
	}
	for _, name := range []string{"lo", "kube-ipvs0"} {
		if slices.Contains(a.Layer2.Interfaces, name) {
			out = append(out, fmt.Sprintf("names the interface %s, on which nothing is ever announced: nobody can be reached by it", name))
		}
	}
	return out
}

// warnings returns what is odd about the Nodes.
func (n Nodes) warnings() []Error {
	var out []Error
	for i, m := range n.Inventory {
		if m.Decommissioned && !n.DeleteGone {
			out = append(out, Error{
				Path:    fmt.Sprintf("nodes.inventory[%d].decommissioned", i),
				Message: "no Node is deleted without nodes.deleteGone: there will be an event and no more",
			})
		}
	}
	if n.Source == SourceStatic && n.Metal3.Namespace != "" {
		out = append(out, Error{Path: "nodes.metal3", Message: "has no effect without nodes.source: metal3"})
	}
	return out
}

// announced tells whether an advertisement selects the pool.
func (c Config) announced(p Pool) bool {
	return slices.ContainsFunc(c.Advertisements, func(a Advertisement) bool {
		return len(a.Pools) == 0 || slices.Contains(a.Pools, p.Name)
	})
}

// warnings returns what is odd about the pool alone.
func (p Pool) warnings() []string {
	var out []string
	if len(p.Ranges) == 0 {
		out = append(out, "all addresses are excluded: nothing can be given out")
	}
	switch p.State {
	case Draining:
		out = append(out, "is draining: nothing new is given out")
	case Disabled:
		out = append(out, "is disabled: nothing is given out, not even on request")
	}
	restricted := len(p.Namespaces) > 0 || len(p.NamespaceSelector) > 0
	if p.EnforceNamespaces && !restricted {
		out = append(out, "enforceNamespaces has no effect: the pool is for all namespaces")
	}
	if len(p.NamespaceSelector) > 0 || !restricted {
		return out
	}
	for _, r := range p.Reservations {
		if !slices.Contains(p.Namespaces, r.Namespace) {
			out = append(out, fmt.Sprintf("has a reservation for %s/%s, but is not for namespace %s", r.Namespace, r.Name, r.Namespace))
		}
	}
	return out
}
