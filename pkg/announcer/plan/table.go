package plan

import (
	"fmt"
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
		names := v.Candidates
		if more := v.Eligible - len(names); more > 0 {
			names = append(names[:len(names):len(names)], fmt.Sprintf("and %d more", more))
		}
		writeLine(b, "candidates", names)
	}
	var out, mute []string
	for _, e := range v.Excluded {
		out = append(out, fmt.Sprintf("%s %s", e.Node, e.Reason))
	}
	for _, h := range v.Holders {
		if h.Reason != Honoured && h.Reason != v.Reason {
			mute = append(mute, fmt.Sprintf("%s %s", h.Service, h.Reason))
		}
	}
	writeLine(b, "left out", out)
	writeLine(b, "no say", mute)
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
