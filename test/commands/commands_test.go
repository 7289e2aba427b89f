package commands

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestRefused(t *testing.T) {
	program := func() *cobra.Command {
		root := &cobra.Command{Use: "program", SilenceErrors: true}
		root.PersistentFlags().StringP("output", "o", "", "")
		sub := &cobra.Command{Use: "show [NAME]", Run: func(*cobra.Command, []string) {}}
		sub.Flags().Bool("all", false, "")
		root.AddCommand(sub)
		return root
	}
	for call, want := range map[string]string{
		"show":           "",
		"show NAME":      "",
		"show --all -ox": "",
		"show --every":   "program show has no flag --every",
		"show -x":        "program show has no flag -x",
		"display NAME":   `unknown command "display" for "program"`,
		"--output=json":  "",
	} {
		if got := refused(program(), strings.Fields(call)); got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
}

func TestShown(t *testing.T) {
	got := shown("Say `program show`,\nthen\n```sh\nprogram \\\n  show\n```\nprogram hidden\n")
	want := []string{"`program show`", "program  show\n"}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%q, want %q", got, want)
	}
}
