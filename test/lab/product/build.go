// Package product runs ccm-baremetal in a lab as its manifests would: with
// their service accounts, roles and arguments, and with no capability that they
// do not give.
package product

import (
	"context"
	"fmt"
	"io"
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
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "./cmd/"+CCM, "./cmd/"+Announcer)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, printed)
	}
	fmt.Fprintf(out, "built after %.1f s\n", time.Since(begin).Seconds())
	return nil
}
