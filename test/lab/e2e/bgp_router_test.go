package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
)

const (
	frrLibrary  = "/usr/lib/frr/"
	hashByPorts = "/proc/sys/net/ipv4/fib_multipath_hash_policy"
	bgpPassword = "not-a-secret"
)

// frrDocument accepts a session from every host of the LAN.
const frrDocument = `
router bgp 64501
 bgp router-id 198.51.100.1
 bgp log-neighbor-changes
 no bgp ebgp-requires-policy
 neighbor nodes peer-group
 neighbor nodes remote-as 64500
 neighbor nodes password ` + bgpPassword + `
 neighbor nodes graceful-restart-helper
 bgp listen range 198.51.100.0/24 peer-group nodes
 address-family ipv4 unicast
  neighbor nodes activate
  maximum-paths 8
 exit-address-family
 address-family ipv6 unicast
  neighbor nodes activate
  maximum-paths 8
 exit-address-family
`

// frr is FRR on the lab's router. Its tables, and those of the kernel under it,
// are the judge of what the announcers say.
type frr struct {
	t    *testing.T
	dir  string
	bgpd *lab.Process
}

// newFRR runs zebra and bgpd until the test ends.
func newFRR(t *testing.T) *frr {
	t.Helper()
	if _, err := os.Stat(frrLibrary + "bgpd"); err != nil {
		t.Fatalf("no FRR: %v; scripts/need installs it", err)
	}
	dir, err := os.MkdirTemp("", "frr") // not t.TempDir, whose name is too long for a socket
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &frr{t: t, dir: dir}
	f.own(dir)
	f.file("zebra.conf", "")
	f.file("bgpd.conf", frrDocument)
	f.hash("1")
	f.daemon("zebra")
	eventually(t, "zebra to listen", func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "zserv.api"))
		return err
	})
	f.bgpd = f.daemon("bgpd", "-p", "179")
	eventually(t, "bgpd to answer", func(ctx context.Context) error {
		_, err := f.show(ctx, "show bgp summary")
		return err
	})
	return f
}

// file writes a file for FRR.
func (f *frr) file(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	must(f.t, os.WriteFile(path, []byte(text), 0o600))
	f.own(path)
}

// own gives a path to the user that FRR runs as.
func (f *frr) own(path string) {
	f.t.Helper()
	u, err := user.Lookup("frr")
	must(f.t, err)
	uid, err := strconv.Atoi(u.Uid)
	must(f.t, err)
	gid, err := strconv.Atoi(u.Gid)
	must(f.t, err)
	must(f.t, os.Chown(path, uid, gid))
}

// hash makes the router choose a next hop also by ports ("1"), until the test
// ends.
func (f *frr) hash(policy string) {
	f.t.Helper()
	before, err := cluster.Run(bounded(f.t), lab.Router, "cat", hashByPorts)
	must(f.t, err)
	set := func(ctx context.Context, policy string) error {
		_, err := cluster.Run(ctx, lab.Router, "sh", "-c", "echo "+policy+" > "+hashByPorts)
		return err
	}
	must(f.t, set(bounded(f.t), policy))
	f.t.Cleanup(func() { must(f.t, set(context.Background(), strings.TrimSpace(before))) })
}

// daemon runs a part of FRR. It takes its routes with it when it ends.
func (f *frr) daemon(name string, args ...string) *lab.Process {
	f.t.Helper()
	argv := append([]string{
		frrLibrary + name, "-f", filepath.Join(f.dir, name+".conf"), "-i", filepath.Join(f.dir, name+".pid"),
		"-z", filepath.Join(f.dir, "zserv.api"), "--vty_socket", f.dir, "--log", "stdout",
	}, args...)
	p, err := cluster.Start(lab.Router, name, argv, nil)
	must(f.t, err)
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var exit *exec.ExitError
		if err := p.Stop(ctx); err != nil && !errors.As(err, &exit) {
			f.t.Error(err)
		}
	})
	return p
}

// show runs a command of vtysh.
func (f *frr) show(ctx context.Context, command string) (string, error) {
	return cluster.Run(ctx, lab.Router, "vtysh", "--vty_socket", f.dir, "-c", command)
}

// neighbour is a session as FRR has it. It forgets those that have ended, so
// only the node's port tells one connection from the next.
type neighbour struct {
	State        string `json:"bgpState"`
	Port         int    `json:"portForeign"`
	MessageStats struct{ UpdatesRecv int }
}

// neighbours returns the established sessions by the name of the node.
func (f *frr) neighbours(ctx context.Context) (map[string]neighbour, error) {
	out, err := f.show(ctx, "show bgp neighbors json")
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage // there is more in it than neighbours
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("%w in %s", err, out)
	}
	found := map[string]neighbour{}
	for _, host := range cluster.Nodes() {
		raw, known := all[host.IPv4.String()]
		if !known {
			continue
		}
		var n neighbour
		if err := json.Unmarshal(raw, &n); err != nil {
			return nil, fmt.Errorf("%w in %s", err, raw)
		}
		if n.State == "Established" {
			found[host.Name] = n
		}
	}
	return found, nil
}

// waitNeighbours waits for established sessions with exactly some nodes.
func (f *frr) waitNeighbours(want ...string) map[string]neighbour {
	f.t.Helper()
	var found map[string]neighbour
	eventually(f.t, fmt.Sprintf("sessions with %v", want), func(ctx context.Context) (err error) {
		if found, err = f.neighbours(ctx); err != nil {
			return err
		}
		var got []string
		for name := range found {
			got = append(got, name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			said, _ := installed.Ask(ctx, "n1", "bgp")
			return fmt.Errorf("there are %v; n1 says:\n%s", got, said)
		}
		return nil
	})
	return found
}

// updates waits until the router has had no UPDATE for a second, and returns how
// many it has had from each node.
func (f *frr) updates() map[string]int {
	f.t.Helper()
	var last map[string]int
	since := time.Now()
	eventually(f.t, "a second without an UPDATE", func(ctx context.Context) error {
		all, err := f.neighbours(ctx)
		if err != nil {
			return err
		}
		now := map[string]int{}
		for name, n := range all {
			now[name] = n.MessageStats.UpdatesRecv
		}
		if fmt.Sprint(now) != fmt.Sprint(last) {
			last, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return fmt.Errorf("there are %v", now)
		}
		return nil
	})
	return last
}

// paths returns what the router has been told about an address: by node, whether
// it is a stale path.
func (f *frr) paths(ctx context.Context, a netip.Addr) (map[string]bool, error) {
	out, err := f.show(ctx, "show bgp ipv4 unicast json")
	if err != nil {
		return nil, err
	}
	var all struct {
		Routes map[string][]struct {
			Stale    bool
			Nexthops []struct{ IP netip.Addr }
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("%w in %s", err, out)
	}
	found := map[string]bool{}
	for _, p := range all.Routes[a.String()+"/32"] {
		for _, hop := range p.Nexthops {
			found[nodeAt(hop.IP)] = p.Stale
		}
	}
	return found, nil
}

var gateway = regexp.MustCompile(`via (\S+)`)

// forwards returns the nodes that the kernel of the router sends packets for an
// address to, sorted.
func (f *frr) forwards(ctx context.Context, a netip.Addr) ([]string, error) {
	out, err := cluster.Run(ctx, lab.Router, "ip", "-4", "route", "show", a.String())
	if err != nil {
		return nil, err
	}
	hops := []string{}
	for _, match := range gateway.FindAllStringSubmatch(out, -1) {
		hop, err := netip.ParseAddr(match[1])
		if err != nil {
			return nil, fmt.Errorf("%w in %s", err, out)
		}
		hops = append(hops, nodeAt(hop))
	}
	slices.Sort(hops)
	return hops, nil
}

// waitForwards waits until the kernel of the router sends packets for an address
// to exactly some nodes.
func (f *frr) waitForwards(a netip.Addr, want ...string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("the router to send packets for %s to %v", a, want), func(ctx context.Context) error {
		got, err := f.forwards(ctx, a)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("it sends them to %v", got)
		}
		return err
	})
}

// nodeAt returns the name of the node with an address.
func nodeAt(a netip.Addr) string {
	for _, n := range cluster.Nodes() {
		if n.IPv4 == a {
			return n.Name
		}
	}
	return a.String()
}

// flows are 1,000 datagrams a second from the client to the echo of a Service,
// from so many ports that every next hop has some.
type flows []*observe.Echo

func newFlows(t *testing.T, a netip.Addr) flows {
	t.Helper()
	const ports = 10
	var out flows
	for range ports {
		e, err := cluster.Echo(t.Context(), lab.Client, netip.AddrPortFrom(a, lab.PodUDPPort), 1000/ports)
		must(t, err)
		out = append(out, e)
	}
	return out
}

// lostNothing ends them, and fails the test if one datagram was not answered.
func (f flows) lostNothing(t *testing.T) {
	t.Helper()
	losses, sent := make([]observe.Loss, len(f)), 0
	var stopping sync.WaitGroup
	for i, e := range f {
		stopping.Go(func() { losses[i] = e.Stop(3 * time.Second) })
	}
	stopping.Wait()
	for i, loss := range losses {
		sent += loss.Sent
		if len(loss.Lost) > 0 {
			t.Errorf("flow %d: %s, the first at %s", i, loss, loss.Lost[0].Format(time.StampMilli))
		}
	}
	t.Logf("%d datagrams", sent)
}
