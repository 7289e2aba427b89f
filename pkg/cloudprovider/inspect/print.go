package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Encode prints a value as JSON for people and tools.
func Encode(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printAllocationsJSON(w io.Writer, a Allocations) error { return Encode(w, a) }

func printAllocations(w io.Writer, a Allocations) error { return a.print(w, false) }

func printAllocationsWide(w io.Writer, a Allocations) error { return a.print(w, true) }

// print shows three tables; those of holders and of waiting Services only if
// there are any.
func (a Allocations) print(w io.Writer, wide bool) error {
	var b strings.Builder
	Table(&b, "POOL\tSTATE\tFAMILY\tSIZE\tUSED\tFREE\tWAITING", a.Pools, func(p Pool) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%d", p.Name, p.State, p.Family, Count(p.Size), p.Used, Count(p.Free), p.Waiting)
	})
	if len(a.Holders) > 0 {
		head := "\nADDRESS\tPOOL\tSERVICE" + IfWide(wide, "\tSINCE\tREASON")
		Table(&b, head, a.Holders, func(h Holder) string {
			return fmt.Sprintf("%s\t%s\t%s", h.Address, OrNone(h.Pool), h.Service) + IfWide(wide, "\t"+Instant(h.Since)+"\t"+h.Reason)
		})
	}
	if len(a.Waiting) > 0 {
		head := "\nWAITS\tREASON\tPOOLS" + IfWide(wide, "\tSINCE\tMESSAGE")
		Table(&b, head, a.Waiting, func(s Waiting) string {
			return fmt.Sprintf("%s\t%s\t%s", s.Service, s.Reason, OrNone(strings.Join(s.Pools, ","))) + IfWide(wide, "\t"+Instant(s.Since)+"\t"+s.Message)
		})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Table prints a line for each row under a head.
func Table[T any](w io.Writer, head string, rows []T, line func(T) string) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for _, row := range rows {
		fmt.Fprintln(t, line(row))
	}
	_ = t.Flush() // into memory
}

// IfWide returns the text, or none.
func IfWide(wide bool, text string) string {
	if wide {
		return text
	}
	return ""
}

// OrNone returns the text, or a dash.
func OrNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Instant shows a time, if it is known.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
