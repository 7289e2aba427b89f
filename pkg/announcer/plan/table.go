package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table renders verdicts for people: for each address the decision, and below
// it all that led to it.
func Table(verdicts []Verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		v.write(&b)
	}
	return b.String()
}

func (v Verdict) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s  %s  %s\n", v.Address, v.headline(), strings.Join(v.Services, ", "))
	if names := linkNames(v.Links); len(names) > 0 {
		writeLine(b, "links here", names)
	}
	if len(v.Candidates) > 0 {
		var names []string
		for _, name := range v.Candidates {
			names = append(names, v.standing(name))
		}
		if more := v.Eligible - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		writeLine(b, "candidates", names)
	}
	var out, mute []string
	for _, e := range v.Excluded {
		out = append(out, fmt.Sprintf("%s %s", e.Node, e.Reason))
	}
	if more := v.MoreExcluded(); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	for _, h := range v.Holders {
		if h.Reason != Honoured && h.Reason != v.Reason {
			mute = append(mute, fmt.Sprintf("%s %s", h.Service, h.Reason))
		}
	}
	var told []string
	for _, service := range slices.Sorted(maps.Keys(v.Routed)) {
		told = append(told, fmt.Sprintf("for %s from %d", service, v.Routed[service]))
	}
	writeLine(b, "to routers", told)
	writeLine(b, "left out", out)
	writeLine(b, "no say", mute)
}

// standing names a candidate, and why it stands behind others if it does.
func (v Verdict) standing(candidate string) string {
	if reason := v.Behind[candidate]; reason != "" {
		return fmt.Sprintf("%s (%s)", candidate, reason)
	}
	return candidate
}

// MoreExcluded returns how many nodes are left out besides those of Excluded.
func (v Verdict) MoreExcluded() int {
	more := -len(v.Excluded)
	for _, n := range v.LeftOut {
		more += n
	}
	return more
}

// headline is who announces the address, or why nobody does.
func (v Verdict) headline() string {
	if v.Owner == "" {
		return "nobody: " + string(v.Reason)
	}
	return v.Owner
}

func writeLine(b *strings.Builder, title string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, "  %-10s  %s\n", title, strings.Join(items, ", "))
	}
}
