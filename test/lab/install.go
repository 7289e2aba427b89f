package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A program that the lab calls, and the Debian package that brings it.
type program struct{ name, pkg string }

var neededPrograms = []program{
	{"ip", "iproute2"},
	{"nft", "nftables"}, // also called by kube-proxy
}

// installPrograms installs the packages of missing programs, and says so.
func installPrograms(ctx context.Context, out io.Writer) error {
	missing := missingPackages(neededPrograms)
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("the lab needs these packages: %s; install them, or run it as root on Debian", strings.Join(missing, ", "))
	}
	fmt.Fprintf(out, "installing Debian packages: %s\n", strings.Join(missing, ", "))
	if err := apt(ctx, append([]string{"install"}, missing...)); err == nil {
		return nil
	}
	// A machine that was never asked for anything has no lists of packages yet.
	if err := apt(ctx, []string{"update"}); err != nil {
		return err
	}
	return apt(ctx, append([]string{"install"}, missing...))
}

func missingPackages(programs []program) []string {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil && !slices.Contains(missing, p.pkg) {
			missing = append(missing, p.pkg)
		}
	}
	return missing
}

func apt(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-y", "--no-install-recommends"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w:\n%s", strings.Join(args, " "), err, tail(string(out), 10))
	}
	return nil
}
