// Package product runs ccm-baremetal in a lab as its manifests would: with
// their service accounts, roles and arguments, and with no capability that they
// do not give.
package product

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The programs.
const (
	CCM       = "ccm-baremetal"
	Announcer = "announcer"
)

// Root returns the root of the repository.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", labModule).Output()
	if err != nil {
		return "", fmt.Errorf("look for the repository: %w", err)
	}
	return filepath.Dir(filepath.Dir(strings.TrimSpace(string(out)))), nil
}

// BuildPlugin builds kubectl-baremetal as the file path.
func BuildPlugin(ctx context.Context, path string) error {
	root, err := Root(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/kubectl-baremetal")
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the plugin: %w: %s", err, printed)
	}
	return nil
}

const labModule = "github.com/ccm-baremetal/ccm-baremetal/test/lab"

// Build builds both programs into dir.
func Build(ctx context.Context, root, dir string, out io.Writer) error {
	fmt.Fprintln(out, "building ccm-baremetal and announcer")
	begin := time.Now()
	if err := goBuild(ctx, root, "-o", dir+"/", "./cmd/"+CCM, "./cmd/"+Announcer); err != nil {
		return fmt.Errorf("build the programs: %w", err)
	}
	fmt.Fprintf(out, "built after %.1f s\n", time.Since(begin).Seconds())
	return nil
}

func goBuild(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, printed)
	}
	return nil
}

// former is what makes the announcer one of the release before for those beside
// it: the number of the election rules that it knows, and so obeys, and that it
// tells nothing that came with the present ones.
var former = []edit{
	{"pkg/announcer/election/election.go", "const Rules = 2\n", "const Rules = 1\n"},
	{"pkg/announcer/membership/view.go", "second: true}", "second: false}"},
}

// edit is a text that occurs once in a file, and what stands there instead.
type edit struct{ file, is, was string }

// BuildFormer builds the announcer into dir as one of the release before, and
// returns the program's path.
func BuildFormer(ctx context.Context, root, dir string) (string, error) {
	replaced := map[string]string{}
	for i, e := range former {
		source, err := os.ReadFile(filepath.Join(root, e.file))
		if err != nil {
			return "", err
		}
		if n := bytes.Count(source, []byte(e.is)); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want once", e.file, e.is, n)
		}
		path := filepath.Join(dir, fmt.Sprintf("former-%d.go", i))
		if err := os.WriteFile(path, bytes.Replace(source, []byte(e.is), []byte(e.was), 1), 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(root, e.file)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "former.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "former-"+Announcer)
	if err := goBuild(ctx, root, "-overlay", path, "-o", program, "./cmd/"+Announcer); err != nil {
		return "", fmt.Errorf("build the announcer of the release before: %w", err)
	}
	return program, nil
}
