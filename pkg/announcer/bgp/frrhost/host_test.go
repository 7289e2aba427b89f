package frrhost_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// patience is how long a test waits for what takes a moment on a busy machine.
const patience = 4 * time.Minute

const library = "/usr/lib/frr/"

// host is a network namespace with an FRR, or a BIRD, of its own.
type host struct {
	t   *testing.T
	ns  string
	dir string // FRR's, and the one that it shares

	daemons map[string]*exec.Cmd
}

// need fails, or outside CI skips, a test for which something is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	without := t.Skip
	if os.Getenv("CCM_REQUIRE_NETNS") == "1" {
		without = t.Fatal
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			without(err)
		}
	}
	if os.Getuid() != 0 {
		without("network namespaces need root")
	}
}

// hosts is how many there have been.
var hosts atomic.Int64

func newHost(t *testing.T, name string) *host {
	t.Helper()
	need(t, "ip", "vtysh", "python3", library+"bgpd", library+"zebra", library+"bfdd")
	dir, err := os.MkdirTemp("", "frr") // not t.TempDir, whose name is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, ns: fmt.Sprintf("fh%d%s%d", os.Getpid(), name, hosts.Add(1)), dir: dir, daemons: map[string]*exec.Cmd{}}
	h.must("ip", "netns", "add", h.ns)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", h.ns).Run(); os.RemoveAll(dir) })
	h.must("ip", "-n", h.ns, "link", "set", "lo", "up")
	return h
}

func (h *host) must(command ...string) string {
	h.t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("%v: %v: %s", command, err, out)
	}
	return string(out)
}

// cable joins two hosts by a link of one name, and gives both ends addresses.
func cable(a, b *host, link, net4, net6 string) {
	a.t.Helper()
	a.must("ip", "-n", a.ns, "link", "add", link, "type", "veth", "peer", "name", link, "netns", b.ns)
	for i, h := range []*host{b, a} {
		h.must("ip", "-n", h.ns, "link", "set", link, "up")
		h.must("ip", "-n", h.ns, "addr", "add", fmt.Sprint(net4, 1+10*i, "/24"), "dev", link)
		h.must("ip", "-n", h.ns, "addr", "add", fmt.Sprint(net6, 1+10*i, "/64"), "dev", link, "nodad")
	}
}

// start runs a program in the namespace until the test ends.
func (h *host) start(env []string, command ...string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", h.ns}, command...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := &wire.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	h.t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		if h.t.Failed() {
			h.t.Logf("%s %v:\n%s", h.ns, command, log.String())
		}
	})
	return cmd
}

// frr runs the daemons, with a configuration for bgpd.
func (h *host) frr(configuration string) {
	h.t.Helper()
	h.own(h.dir)
	for _, d := range []string{"zebra", "bgpd", "bfdd", "vtysh"} {
		path, text := filepath.Join(h.dir, d+".conf"), ""
		if d == "bgpd" {
			text = configuration
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			h.t.Fatal(err)
		}
		h.own(path)
	}
	for _, d := range []string{"zebra", "bgpd", "bfdd"} {
		h.daemon(d)
	}
}

func (h *host) daemon(name string) {
	h.t.Helper()
	args := []string{
		library + name, "-f", filepath.Join(h.dir, name+".conf"), "-i", filepath.Join(h.dir, name+".pid"),
		"-z", filepath.Join(h.dir, "zserv.api"), "--vty_socket", h.dir, "--log", "stdout",
	}
	if name == "bfdd" {
		args = append(args, "--bfdctl", filepath.Join(h.dir, "bfdd.sock"))
	}
	cmd := h.start(nil, args...)
	h.daemons[name] = cmd
	h.eventually(func() error {
		_, err := exec.Command("ip", h.inside("vtysh", "--vty_socket", h.dir, "-d", name, "-c", "show version")...).Output()
		return err
	})
}

// restart lets a daemon of FRR die, and starts another one.
func (h *host) restart(name string) {
	h.t.Helper()
	h.kill(name)
	h.daemon(name)
}

// kill lets a daemon of FRR die.
func (h *host) kill(name string) {
	h.t.Helper()
	group := -h.daemons[name].Process.Pid
	syscall.Kill(group, syscall.SIGKILL)
	h.eventually(func() error {
		if syscall.Kill(group, 0) == nil {
			return errors.New(name + " is alive")
		}
		return nil
	})
}

func (h *host) inside(command ...string) []string {
	return append([]string{"netns", "exec", h.ns}, command...)
}

// own gives a path to the user that FRR runs as.
func (h *host) own(path string) {
	h.t.Helper()
	u, err := user.Lookup("frr")
	if err != nil {
		h.t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2, os.Chown(path, uid, gid)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) vtysh(commands ...string) string {
	h.t.Helper()
	args := []string{"vtysh", "--vty_socket", h.dir}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, err := exec.Command("ip", h.inside(args...)...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("%v: %v: %s", commands, err, out)
	}
	return string(out)
}

// reloader runs what runs beside FRR.
func (h *host) reloader() *exec.Cmd {
	h.t.Helper()
	script, err := filepath.Abs("../../../../manifests/bgp-frr/reload.py")
	if err != nil {
		h.t.Fatal(err)
	}
	return h.start([]string{"FRR_RUN=" + h.dir, "FRR_CONFIG=" + h.dir}, "python3", script, h.dir)
}

// table returns the prefixes of both families, with the family that each is of.
func (h *host) table() map[string]string {
	h.t.Helper()
	out := map[string]string{}
	for _, family := range []string{"ipv4", "ipv6"} {
		var all struct{ Routes map[string]json.RawMessage }
		text := h.vtysh("show bgp " + family + " unicast json")
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			h.t.Fatalf("%v in %s", err, text)
		}
		for prefix := range all.Routes {
			out[prefix] = family
		}
	}
	return out
}

// waitTable waits until the router has exactly some prefixes, and of each the
// words in the text that FRR has for it.
func (h *host) waitTable(want map[string][]string) {
	h.t.Helper()
	h.eventually(func() error {
		got := h.table()
		if len(got) != len(want) {
			return fmt.Errorf("the router has %d prefixes, want %d: %v", len(got), len(want), got)
		}
		for prefix, words := range want {
			if got[prefix] == "" {
				return fmt.Errorf("the router has no %s: %v", prefix, got)
			}
			if len(words) == 0 {
				continue
			}
			text := h.vtysh("show bgp " + got[prefix] + " unicast " + prefix)
			for _, w := range words {
				if !strings.Contains(text, w) {
					return fmt.Errorf("%s: no %q in %s", prefix, w, text)
				}
			}
		}
		return nil
	})
}

// eventually tries until check succeeds.
func (h *host) eventually(check func() error) {
	h.t.Helper()
	wire.Eventually(h.t, patience, 100*time.Millisecond, check)
}
