package main

import (
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/test/commands"
)

func TestCommandsInTheDocsAreOurs(t *testing.T) {
	commands.Check(t, "../..", "^[\\s`]*kubectl baremetal ", 40, newCommand)
}
