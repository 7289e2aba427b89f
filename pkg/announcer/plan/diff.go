package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// Change is a step in the life of an address: another node announces it, or
// nobody any more, or the same node on other links.
type Change struct {
	Address  netip.Addr
	From, To string // Nodes; empty: nobody

	// Cause says why From does not announce it any more, why nobody does, or,
	// with To alone, why nobody did before; then it is empty for an address
	// that is new.
	Cause Reason

	// Links are the names of the links on which To announces it, if To is the
	// node that decided.
	Links []string
}

// Diff returns what has changed from one pass of a node to its next, sorted by
// address. Equal decisions give none, and ranking changes behind the owner are
// no change.
func Diff(before, after []Verdict) []Change {
	var out []Change
	for len(before) > 0 || len(after) > 0 {
		var was, is Verdict
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Address.Less(after[0].Address):
			was, before = before[0], before[1:]
			is = Verdict{Address: was.Address, Reason: Released}
		case len(before) == 0 || after[0].Address.Less(before[0].Address):
			is, after = after[0], after[1:]
		default:
			was, before = before[0], before[1:]
			is, after = after[0], after[1:]
		}
		if c, changed := change(was, is); changed {
			out = append(out, c)
		}
	}
	return out
}

func change(was, is Verdict) (Change, bool) {
	c := Change{Address: is.Address, From: was.Owner, To: is.Owner}
	if is.Reason == Owner {
		c.Links = linkNames(is.Links)
	}
	switch {
	case c.From == "" && c.To == "":
		c.Cause = is.Reason
		return c, is.Reason != was.Reason && is.Reason != Released
	case c.From == c.To:
		c.Cause = LinksChanged
		if is.down() {
			c.Cause = LinkDown
		}
		return c, is.Reason == Owner && (is.down() != was.down() || !slices.Equal(c.Links, linkNames(was.Links)))
	case c.To == "":
		c.Cause = is.Reason
	case c.From == "":
		c.Cause = was.Reason
	default:
		c.Cause = is.whyNot(c.From)
	}
	return c, true
}

// down tells whether the owner cannot be heard, nor could anybody else.
func (v Verdict) down() bool { return v.Behind[v.Owner] == LinkDown }

// whyNot says why a node is not the owner. A node that is neither candidate
// nor excluded is not known at all any more.
func (v Verdict) whyNot(node string) Reason {
	if slices.Contains(v.Candidates, node) {
		return cmp.Or(v.Behind[node], NotOwner)
	}
	for _, e := range v.Excluded {
		if e.Node == node {
			return e.Reason
		}
	}
	if v.outcome == nil {
		return NoAnnouncer
	}
	i, known := slices.BinarySearch(v.outcome.ground.names, node)
	if !known {
		return NoAnnouncer
	}
	return cmp.Or(v.outcome.fault(i), v.Behind[node], NotOwner)
}

func linkNames(links []Link) []string {
	var out []string
	for _, l := range links {
		out = append(out, l.Name)
	}
	return out
}
