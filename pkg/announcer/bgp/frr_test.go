package bgp_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

const frrLibrary = "/usr/lib/frr/"

// frr is FRR on a host, and its tables are the judge.
type frr struct {
	*host
	dir     string
	daemons []*exec.Cmd
}

// newFRR runs zebra and bgpd with a configuration.
func newFRR(h *host, configuration string) *frr {
	h.T.Helper()
	wire.Need(h.T, frrLibrary+"bgpd", frrLibrary+"zebra", "vtysh")
	dir, err := os.MkdirTemp("", "frr") // not t.TempDir, whose name is too long for a socket
	h.Must(err)
	h.T.Cleanup(func() { os.RemoveAll(dir) })
	f := &frr{host: h, dir: dir}
	f.own(dir)
	for name, text := range map[string]string{"zebra.conf": "", "bgpd.conf": configuration} {
		path := filepath.Join(dir, name)
		h.Must(os.WriteFile(path, []byte(text), 0o644))
		f.own(path)
	}
	f.daemon("zebra")
	eventually(h.T, func() error { _, err := os.Stat(filepath.Join(dir, "zserv.api")); return err })
	f.daemon("bgpd")
	eventually(h.T, func() error { _, err := f.output2("show bgp summary"); return err }) // zebra alone would answer less
	return f
}

// own gives a path to the user that FRR runs as.
func (f *frr) own(path string) {
	f.T.Helper()
	u, err := user.Lookup("frr")
	f.Must(err)
	uid, err := strconv.Atoi(u.Uid)
	f.Must(err)
	gid, err := strconv.Atoi(u.Gid)
	f.Must(err)
	f.Must(os.Chown(path, uid, gid))
}

func (f *frr) daemon(name string) {
	f.T.Helper()
	args := []string{
		"-f", filepath.Join(f.dir, name+".conf"), "-i", filepath.Join(f.dir, name+".pid"),
		"-z", filepath.Join(f.dir, "zserv.api"), "--vty_socket", f.dir, "--log", "stdout",
	}
	if name == "bgpd" {
		args = append(args, "-p", "179")
	}
	f.daemons = append(f.daemons, f.start(frrLibrary+name, args...))
}

// stop kills the daemons, and waits for their ports to be free.
func (f *frr) stop() {
	f.T.Helper()
	for _, d := range f.daemons {
		f.Must(d.Process.Kill())
	}
	eventually(f.T, func() error {
		if out := f.run("ss", "-Htln"); strings.Contains(out, ":179 ") {
			return fmt.Errorf("still listening: %s", out)
		}
		return nil
	})
}

// output2 runs a command of vtysh.
func (f *frr) output2(commands ...string) (string, error) {
	args := []string{"--vty_socket", f.dir}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	return f.output("vtysh", args...)
}

func (f *frr) vtysh(commands ...string) string {
	f.T.Helper()
	out, err := f.output2(commands...)
	f.Must(err)
	return out
}

// path is a path of a prefix as FRR has it.
type path struct {
	Valid     bool
	Stale     bool
	LocalPref *int `json:"locPrf"`
	Path      string
	Nexthops  []struct {
		IP   netip.Addr
		Used bool
	}
	Peer struct{ PeerID string }
}

// table returns all prefixes of a family with their paths.
func (f *frr) table(family string) map[string][]path {
	f.T.Helper()
	var all struct{ Routes map[string][]path }
	out := f.vtysh("show bgp " + family + " unicast json")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		f.T.Fatalf("%v in %s", err, out)
	}
	return all.Routes
}

// prefixes returns all prefixes of both families, sorted.
func (f *frr) prefixes() []string {
	var out []string
	for _, family := range []string{"ipv4", "ipv6"} {
		for prefix := range f.table(family) {
			out = append(out, prefix)
		}
	}
	slices.Sort(out)
	return out
}

// waitPrefixes waits until FRR has exactly some prefixes.
func (f *frr) waitPrefixes(want ...string) {
	f.T.Helper()
	slices.Sort(want)
	eventually(f.T, func() error {
		if got := f.prefixes(); !slices.Equal(got, want) {
			return fmt.Errorf("the router has %v, want %v", got, want)
		}
		return nil
	})
}

// detail returns what FRR says of one prefix.
func (f *frr) detail(prefix string) string {
	f.T.Helper()
	family := "ipv4"
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	return f.vtysh("show bgp " + family + " unicast " + prefix)
}
