package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestHelpTeaches wants a sentence for every command and flag, and examples
// where a command takes arguments of its own.
func TestHelpTeaches(t *testing.T) {
	root := newCommand()
	for _, cmd := range append(root.Commands(), root) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		if cmd.Short == "" || out.Len() < 100 {
			t.Errorf("%s has no help:\n%s", cmd.Name(), &out)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 161 {
				t.Errorf("%s: a line of %d characters: %s", cmd.Name(), len(line), line)
			}
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range []string{
		"nonsense", "up now", "up --nodes many", "exec", "exec n1", "cut", "heal", "logs n1", "status --x",
		"--name no-such-lab exec n1 -- true", "--name ../x exec n1 -- true", "--name no-such-lab kubectl get nodes",
	} {
		if out, err := execute(t, args); err == nil {
			t.Errorf("lab %s: no error\n%s", args, out)
		}
	}
}

func TestDownWithoutLabSaysSo(t *testing.T) {
	out, err := execute(t, "down --name no-such-lab")
	if err != nil || out != "there is no lab no-such-lab\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func execute(t *testing.T, args string) (string, error) {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(strings.Fields(args))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}
