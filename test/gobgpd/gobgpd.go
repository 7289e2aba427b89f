// Package gobgpd runs gobgpd, the BGP daemon of GoBGP, as a router for tests,
// and reads its table. Only tests may import it.
package gobgpd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// patience is how long a test waits for what must come. Only a test that fails
// waits that long.
const patience = 4 * time.Minute

// Host is where gobgpd runs: most often a network namespace.
type Host struct {
	// Start runs a program until the test ends, and Output one to its end.
	Start  func(program string, args ...string)
	Output func(program string, args ...string) (string, error)
}

// Options are what gobgpd is told. ASN and Neighbours are required.
type Options struct {
	ASN        uint32
	Port       int // 0: 179
	Password   string
	Settings   string   // more of each neighbour: tables below [neighbors]
	Neighbours []string // addresses of nodes, which are in AS 64500
}

// Router is a gobgpd. It has a table and does not fill the kernel's. It waits
// for nodes to connect, speaks both families, and keeps the routes of nodes
// that want it while they restart.
type Router struct {
	t              testing.TB
	host           Host
	client, socket string
}

// New runs gobgpd until the test ends.
func New(t testing.TB, host Host, o Options) *Router {
	t.Helper()
	wire.Need(t, "go")
	built, err := build()
	must(t, err)
	dir, err := os.MkdirTemp("", "gobgpd") // not t.TempDir, whose name is too long for a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	file := filepath.Join(dir, "gobgpd.toml")
	must(t, os.WriteFile(file, []byte(o.text()), 0o600))
	r := &Router{t: t, host: host, client: built.client, socket: "unix://" + filepath.Join(dir, "api")}
	host.Start(built.daemon, "-f", file, "--api-hosts", r.socket, "--pprof-disable")
	r.eventually(func() error { _, err := r.Ask("neighbor"); return err })
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// text is the configuration file.
func (o Options) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[global.config]\nas = %d\nrouter-id = \"10.0.0.1\"\n", o.ASN)
	if o.Port != 0 {
		fmt.Fprintf(&b, "port = %d\n", o.Port)
	}
	for _, n := range o.Neighbours {
		fmt.Fprintf(&b, `
[[neighbors]]
[neighbors.config]
neighbor-address = %q
peer-as = 64500
auth-password = %q
[neighbors.transport.config]
passive-mode = true
[neighbors.graceful-restart.config]
enabled = true
restart-time = 60
%s
`, n, o.Password, o.Settings)
		for _, f := range []string{"ipv4-unicast", "ipv6-unicast"} {
			fmt.Fprintf(&b, "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = %q\n[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n", f)
		}
	}
	return b.String()
}

// programs are paths.
type programs struct{ daemon, client string }

// build makes gobgpd and its client, of the release whose messages the
// announcer uses. They are files without a name, which go with the process.
var build = sync.OnceValues(func() (built programs, err error) {
	dir, err := os.MkdirTemp("", "gobgp")
	if err != nil {
		return built, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/osrg/gobgp/v4/cmd/gobgpd", "github.com/osrg/gobgp/v4/cmd/gobgp")
	cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..", "tools", "gobgpd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return built, fmt.Errorf("build gobgpd: %w: %s", err, out)
	}
	daemon, err1 := held(filepath.Join(dir, "gobgpd"))
	client, err2 := held(filepath.Join(dir, "gobgp"))
	return programs{daemon, client}, errors.Join(err1, err2)
})

// held returns the path of a file for the time after it has lost its name. It
// is open for as long as this process lives.
func held(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), nil
}

// Ask runs a command of gobgp.
func (r *Router) Ask(args ...string) (string, error) {
	return r.host.Output(r.client, append([]string{"--target", r.socket}, args...)...)
}

// Paths returns the lines of the table about a prefix, one for each path.
func (r *Router) Paths(prefix string) ([]string, error) {
	family := "ipv4"
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	out, err := r.Ask("global", "rib", "-a", family)
	var lines []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(strings.TrimLeft(line, "NS*> "), prefix+" ") { // after marks for stale and best
			lines = append(lines, line)
		}
	}
	return lines, err
}

// WaitPaths waits until there are so many paths, each of which says all that is
// wanted.
func (r *Router) WaitPaths(prefix string, n int, want ...string) {
	r.t.Helper()
	r.eventually(func() error {
		lines, err := r.Paths(prefix)
		if err == nil && len(lines) != n {
			err = fmt.Errorf("%d paths for %s, want %d: %q", len(lines), prefix, n, lines)
		}
		for _, line := range lines {
			for _, w := range want {
				if err == nil && !strings.Contains(line, w) {
					err = fmt.Errorf("no %q in %s", w, line)
				}
			}
		}
		return err
	})
}

// WaitGone waits until no session is up.
func (r *Router) WaitGone() {
	r.t.Helper()
	r.eventually(func() error {
		out, err := r.Ask("neighbor")
		if err == nil && strings.Contains(out, "Establ") {
			err = errors.New(out)
		}
		return err
	})
}

func (r *Router) eventually(check func() error) {
	r.t.Helper()
	wire.Eventually(r.t, patience, 50*time.Millisecond, check)
}
