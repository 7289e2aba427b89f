package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/diagnose"
)

func newDoctorCommand(c *cluster) *cobra.Command {
	var output string
	return withOutput(&cobra.Command{
		Use:     "doctor",
		Short:   "Look for what keeps addresses from being announced",
		Long:    doctorHelp,
		Example: doctorExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, _, err := examine(cmd.Context(), c)
			if err != nil {
				return err
			}
			if err := show(cmd, output, d); err != nil {
				return err
			}
			if d.Verdict == diagnose.Fail {
				return errors.New("a check failed")
			}
			return nil
		},
	}, &output)
}

// Print shows each check with what to do about it.
func (d diagnosis) Print(w io.Writer) error {
	var b strings.Builder
	for _, c := range d.Checks {
		fmt.Fprintf(&b, "%-7s  %-18s  %s\n", c.Verdict, c.Name, c.Seen)
		if c.Do != "" && c.Verdict != diagnose.OK {
			fmt.Fprintf(&b, "%29s-> %s\n", "", c.Do)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
