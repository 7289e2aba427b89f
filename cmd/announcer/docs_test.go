package main

import (
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/test/commands"
)

func TestCommandsInTheDocsAreOurs(t *testing.T) {
	commands.Check(t, "../..", "(^|^`|-- |sudo )announcer ", 10, newCommand)
}
