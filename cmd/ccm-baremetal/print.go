package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
)

func printCleanupJSON(w io.Writer, c cleanup) error { return inspect.Encode(w, c) }

// printCleanup says what was removed, or would be, and what that means.
func printCleanup(w io.Writer, c cleanup) error {
	var b strings.Builder
	if len(c.Services) > 0 {
		inspect.Table(&b, "SERVICE\tREMOVED\tKEPT"+inspect.IfWide(c.Done, "\tRESULT"), c.Services, func(s cleanedService) string {
			return fmt.Sprintf("%s\t%s\t%s", s.Service, s.what(), inspect.OrNone(strings.Join(s.Kept, ", "))) + inspect.IfWide(c.Done, "\t"+outcome(s.Error))
		})
	}
	for _, o := range c.Objects {
		fmt.Fprintf(&b, "%s %s%s\n", o.Kind, o.Name, inspect.IfWide(c.Done, ": "+outcome(o.Error)))
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
