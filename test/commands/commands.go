// Package commands judges the commands that the documentation shows: their words
// and flags have to be those of the program.
package commands

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	code      = regexp.MustCompile("`[^`\n]+`")
	continued = regexp.MustCompile(`\\\n\s*`)
	ends      = regexp.MustCompile(`\s+#.*|[|;&>]|\$\(|\s-\s`)
)

// Check reads all pages below docs, the README and CHANGELOG of the repository
// whose root is given, and reports each call of a program that it would not
// understand. The pattern matches what stands before the program's arguments. It
// fails if there are fewer calls than atLeast.
func Check(t *testing.T, root, pattern string, atLeast int, program func() *cobra.Command) {
	t.Helper()
	before := regexp.MustCompile(pattern)
	seen := 0
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range shown(string(text)) {
			at := before.FindStringIndex(shown)
			if at == nil {
				continue
			}
			call := shown[at[1]:]
			if end := ends.FindStringIndex(call); end != nil {
				call = call[:end[0]]
			}
			seen++
			if why := refused(program(), strings.Fields(strings.Trim(call, "`"))); why != "" {
				t.Errorf("%s: %s: %s", page, strings.TrimSpace(shown), why)
			}
		}
	}
	if seen < atLeast {
		t.Errorf("only %d calls match %s", seen, pattern)
	}
}

func pages(t *testing.T, root string) []string {
	t.Helper()
	found := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// shown returns the lines of a page's blocks, and what is marked as code in its
// prose.
func shown(page string) []string {
	var out []string
	inside := false
	for line := range strings.Lines(continued.ReplaceAllString(page, " ")) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = !inside
		case inside:
			out = append(out, line)
		default:
			out = append(out, code.FindAllString(line, -1)...)
		}
	}
	return out
}

// refused says what of the arguments the program does not know, "" if it knows
// all of it. What a word stands for is not looked at.
func refused(program *cobra.Command, args []string) string {
	cmd, rest, err := program.Find(args)
	if err != nil {
		return err.Error()
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	for _, word := range rest {
		name, long := strings.CutPrefix(strings.Trim(word, "[]"), "--")
		name, _, _ = strings.Cut(name, "=")
		switch {
		case long && name == "":
		case long && cmd.Flag(name) == nil:
			return cmd.CommandPath() + " has no flag --" + name
		case long:
		case len(word) > 1 && word[0] == '-':
			flags := cmd.Flags()
			flags.AddFlagSet(cmd.InheritedFlags())
			if flags.ShorthandLookup(word[1:2]) == nil {
				return cmd.CommandPath() + " has no flag " + word
			}
		// A word after a flag may be its value.
		case word != "" && word[0] != '-' && cmd == program && program.HasSubCommands() && !strings.Contains(strings.Join(args, " "), "--"):
			return "there is no command " + word
		}
	}
	return ""
}
