package main

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/test/commands"
)

func TestCommandsInTheDocsAreOurs(t *testing.T) {
	commands.Check(t, "../..", "(^|^`|-- |bin/)ccm-baremetal ", 10, func() *cobra.Command {
		cmd, err := newCommand(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cmd
	})
}
