package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// encode prints a value as JSON for people and tools.
func encode(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printAllocationsJSON(w io.Writer, a allocations) error { return encode(w, a) }

func printAllocations(w io.Writer, a allocations) error { return a.print(w, false) }

func printAllocationsWide(w io.Writer, a allocations) error { return a.print(w, true) }

// print shows three tables; those of holders and of waiting Services only if
// there are any.
func (a allocations) print(w io.Writer, wide bool) error {
	var b strings.Builder
	table(&b, "POOL\tSTATE\tFAMILY\tSIZE\tUSED\tFREE\tWAITING", a.Pools, func(p poolUse) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%d", p.Name, p.State, p.Family, count(p.Size), p.Used, count(p.Free), p.Waiting)
	})
	if len(a.Holders) > 0 {
		head := "\nADDRESS\tPOOL\tSERVICE" + ifWide(wide, "\tSINCE\tREASON")
		table(&b, head, a.Holders, func(h holding) string {
			return fmt.Sprintf("%s\t%s\t%s", h.Address, orNone(h.Pool), h.Service) + ifWide(wide, "\t"+instant(h.Since)+"\t"+h.Reason)
		})
	}
	if len(a.Waiting) > 0 {
		head := "\nWAITS\tREASON\tPOOLS" + ifWide(wide, "\tSINCE\tMESSAGE")
		table(&b, head, a.Waiting, func(s waitingFor) string {
			return fmt.Sprintf("%s\t%s\t%s", s.Service, s.Reason, orNone(strings.Join(s.Pools, ","))) + ifWide(wide, "\t"+instant(s.Since)+"\t"+s.Message)
		})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table prints a line for each row under a head.
func table[T any](w io.Writer, head string, rows []T, line func(T) string) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for _, row := range rows {
		fmt.Fprintln(t, line(row))
	}
	_ = t.Flush() // into memory
}

func ifWide(wide bool, text string) string {
	if wide {
		return text
	}
	return ""
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// instant shows a time, if it is known.
func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func printCleanupJSON(w io.Writer, c cleanup) error { return encode(w, c) }

// printCleanup says what was removed, or would be, and what that means.
func printCleanup(w io.Writer, c cleanup) error {
	var b strings.Builder
	if len(c.Services) > 0 {
		table(&b, "SERVICE\tREMOVED\tKEPT"+ifWide(c.Done, "\tRESULT"), c.Services, func(s cleanedService) string {
			return fmt.Sprintf("%s\t%s\t%s", s.Service, s.what(), orNone(strings.Join(s.Kept, ", "))) + ifWide(c.Done, "\t"+outcome(s.Error))
		})
	}
	for _, o := range c.Objects {
		fmt.Fprintf(&b, "%s %s%s\n", o.Kind, o.Name, ifWide(c.Done, ": "+outcome(o.Error)))
	}
	for _, r := range c.Running {
		fmt.Fprintf(&b, "still runs: %s\n", r)
	}
	fmt.Fprintln(&b, c.conclusion())
	_, err := io.WriteString(w, b.String())
	return err
}

func outcome(failure string) string {
	if failure == "" {
		return "done"
	}
	return "FAILED: " + failure
}

func (c cleanup) conclusion() string {
	switch {
	case len(c.Services)+len(c.Objects) == 0:
		return "Nothing of ours is left."
	case c.Done:
		return fmt.Sprintf("Gone through: %d Services, %d objects.", len(c.Services), len(c.Objects))
	case len(c.Running) > 0:
		return "Nothing has been changed. End what still runs (kubectl delete -k manifests/base); it would put back what is removed."
	case c.releases:
		return "Nothing has been changed. With --yes all of this is removed, the addresses as well: whoever uses one finds it gone."
	}
	return "Nothing has been changed. With --yes all of this is removed; the addresses stay in the status, and nobody answers for them."
}
