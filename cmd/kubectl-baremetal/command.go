package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/ask"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/version"
)

const program = "kubectl baremetal"

// newCommand returns the whole command line.
func newCommand() *cobra.Command {
	c := newCluster()
	cmd := &cobra.Command{
		Use:           "kubectl-baremetal",
		Short:         "See what ccm-baremetal does, and take nodes out of service",
		Long:          help,
		Example:       examples,
		Version:       version.String(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: program},
		SilenceUsage:  true, // it would hide the error
		SilenceErrors: true, // main prints it
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	})
	cmd.CompletionOptions.DisableDefaultCmd = true
	c.addFlags(cmd.PersistentFlags())
	look := inspect.Options{Program: program, Cluster: func() inspect.Cluster { return c }}
	cmd.AddCommand(newStatusCommand(c), newPoolsCommand(c), newServicesCommand(c))
	cmd.AddCommand(ask.Commands(ask.Options{
		Program: program,
		Asked:   "the announcer on --node, or the first that answers, or a saved page (--file)",
		Pages:   func() ask.Pages { return &pages{cluster: c} },
	})...)
	cmd.AddCommand(newDrainCommand(c), newUndrainCommand(c), inspect.NewCheckConfigCommand(look), inspect.NewImportCommand(look), newDoctorCommand(c), newDumpCommand(c), newUICommand(c))
	return cmd
}

// printer prints itself for people.
type printer interface{ Print(io.Writer) error }

// show prints a value as the flag --output says.
func show(cmd *cobra.Command, output string, value printer) error {
	switch output {
	case "text":
		return value.Print(cmd.OutOrStdout())
	case "json":
		return ask.PrintJSON(cmd.OutOrStdout(), value)
	}
	return fmt.Errorf("--output is text or json, not %q", output)
}

// withOutput adds the flag --output.
func withOutput(cmd *cobra.Command, output *string) *cobra.Command {
	cmd.Flags().StringVarP(output, "output", "o", "text", "text or json")
	return cmd
}
