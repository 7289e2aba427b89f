package bgp_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// gobgp builds gobgpd and its client, of the release whose messages we use. It
// returns where they are.
var gobgp = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gobgp")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/osrg/gobgp/v4/cmd/gobgpd", "github.com/osrg/gobgp/v4/cmd/gobgp")
	cmd.Dir = filepath.Join("..", "..", "..", "tools", "gobgpd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gobgpd: %w: %s", err, out)
	}
	return dir, nil
})

// gobgpd is gobgpd on a host. It has a table and does not fill the kernel's.
type gobgpd struct {
	*host
	client, socket string
}

// newGoBGPD runs gobgpd with an AS number, and a neighbour for each address. The
// settings are more of each neighbour's.
func newGoBGPD(h *host, asn uint32, settings string, neighbours ...string) *gobgpd {
	h.T.Helper()
	wire.Need(h.T, "go")
	programs, err := gobgp()
	h.Must(err)
	dir, err := os.MkdirTemp("", "gobgpd")
	h.Must(err)
	h.T.Cleanup(func() { os.RemoveAll(dir) })
	text := fmt.Sprintf("[global.config]\nas = %d\nrouter-id = \"10.0.0.1\"\n", asn)
	for _, n := range neighbours {
		text += fmt.Sprintf(`
[[neighbors]]
[neighbors.config]
neighbor-address = %q
peer-as = 64500
auth-password = "hush"
[neighbors.transport.config]
passive-mode = true
[neighbors.graceful-restart.config]
enabled = true
restart-time = 60
%s
`, n, settings)
		for _, f := range []string{"ipv4-unicast", "ipv6-unicast"} {
			text += fmt.Sprintf("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = %q\n[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n", f)
		}
	}
	file := filepath.Join(dir, "gobgpd.toml")
	h.Must(os.WriteFile(file, []byte(text), 0o600))
	g := &gobgpd{h, filepath.Join(programs, "gobgp"), "unix://" + filepath.Join(dir, "api")}
	h.start(filepath.Join(programs, "gobgpd"), "-f", file, "--api-hosts", g.socket, "--pprof-disable")
	eventually(h.T, func() error { _, err := g.ask("neighbor"); return err })
	return g
}

// ask runs a command of gobgp.
func (g *gobgpd) ask(args ...string) (string, error) {
	return g.output(g.client, append([]string{"--target", g.socket}, args...)...)
}

// paths returns the lines of the table about a prefix, one for each path.
func (g *gobgpd) paths(prefix string) ([]string, error) {
	family := "ipv4"
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	out, err := g.ask("global", "rib", "-a", family)
	var lines []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(strings.TrimLeft(line, "NS*> "), prefix+" ") { // after marks for stale and best
			lines = append(lines, line)
		}
	}
	return lines, err
}

// waitPaths waits until there are so many paths, each of which says all that is
// wanted.
func (g *gobgpd) waitPaths(prefix string, n int, want ...string) {
	g.T.Helper()
	eventually(g.T, func() error {
		lines, err := g.paths(prefix)
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

// guarded is a session with everything that gobgpd is asked for here.
func guarded(address string, more func(*config.Peer), prefixes ...string) plan.Peering {
	return peering("r1", address, func(p *config.Peer) {
		both(p)
		p.PasswordSecret, p.GracefulRestart = "tor", 60*time.Second
		if more != nil {
			more(p)
		}
	}, prefixes...)
}

var tor = map[string]string{"tor": "hush", "wrong": "loud"}

func TestRoutesReachGoBGP(t *testing.T) {
	l := newLAN(t, 3)
	g := newGoBGPD(l.router, 64500, "", "192.0.2.11", "192.0.2.12", "192.0.2.13")
	var speakers []*bgp.Speaker
	for _, n := range l.nodes {
		s := n.speaker(tor)
		w := guarded("192.0.2.1", internal, "198.51.100.1/32", "203.0.113.0/24", "2001:db8:1::1/128")
		w.Routes[0].LocalPref = 250
		w.Routes[0].Communities = []config.Community{{Global: 65000, Local1: 7}, {Large: true, Global: 4200000000, Local1: 1, Local2: 2}}
		s.Set([]plan.Peering{w})
		speakers = append(speakers, s)
	}
	g.waitPaths("198.51.100.1/32", 3, "{LocalPref: 250}", "65000:7", "4200000000:1:2", "{Origin: i}")
	g.waitPaths("203.0.113.0/24", 3, "{LocalPref: 100}")
	g.waitPaths("2001:db8:1::1/128", 3, "2001:db8::1")
	speakers[0].Set([]plan.Peering{guarded("192.0.2.1", internal, "2001:db8:1::1/128")})
	g.waitPaths("198.51.100.1/32", 2)
	g.waitPaths("203.0.113.0/24", 2)
	g.waitPaths("2001:db8:1::1/128", 3)
	leaving := guarded("192.0.2.1", internal, "203.0.113.0/24")
	leaving.Leaving, leaving.Pause = plan.Draining, 3*time.Second
	speakers[1].Set([]plan.Peering{guarded("192.0.2.1", internal, "203.0.113.0/24")})
	g.waitPaths("198.51.100.1/32", 1)
	speakers[2].Set([]plan.Peering{guarded("192.0.2.1", internal, "198.51.100.1/32")})
	g.waitPaths("203.0.113.0/24", 1, "{LocalPref: 100}")
	speakers[1].Set([]plan.Peering{leaving})
	g.waitPaths("203.0.113.0/24", 1, "{LocalPref: 0}", "planned-shut")
	g.waitPaths("203.0.113.0/24", 0)
	waitState(t, speakers[1], bgp.Left, "")
}

func TestB117PasswordsThatDifferOpenNoSessionWithGoBGP(t *testing.T) {
	l := newLAN(t, 1)
	g := newGoBGPD(l.router, 64501, "[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n", "192.0.2.11")
	s := l.nodes[0].speaker(tor)
	secure := func(secret string) plan.Peering {
		return guarded("192.0.2.1", func(p *config.Peer) { p.PasswordSecret, p.TTLSecurity = secret, 1 }, "198.51.100.1/32", "2001:db8:1::1/128")
	}
	s.Set([]plan.Peering{secure("wrong")})
	waitState(t, s, bgp.Idle, "authentication is failing")
	s.Set([]plan.Peering{secure("tor")})
	g.waitPaths("198.51.100.1/32", 1, "192.0.2.11", " 64500 ")
	g.waitPaths("2001:db8:1::1/128", 1, "2001:db8::11")
	if lines, err := g.paths("198.51.100.1/32"); err != nil || strings.Contains(strings.Join(lines, ""), "LocalPref") {
		t.Errorf("an external router has been told a local preference: %q, %v", lines, err)
	}
}

func TestB128RestartLosesNoRouteInGoBGP(t *testing.T) {
	l := newLAN(t, 1)
	g := newGoBGPD(l.router, 64501, "", "192.0.2.11")
	here := func() {
		t.Helper()
		for _, prefix := range []string{"198.51.100.1/32", "2001:db8:1::1/128"} {
			if lines, err := g.paths(prefix); err != nil || len(lines) != 1 {
				t.Errorf("%s has %q, %v", prefix, lines, err)
			}
		}
	}
	first := l.nodes[0].speaker(tor)
	w := guarded("192.0.2.1", nil, "198.51.100.1/32", "2001:db8:1::1/128")
	first.Set([]plan.Peering{w})
	g.waitPaths("198.51.100.1/32", 1)
	g.waitPaths("2001:db8:1::1/128", 1)
	first.Leave(t.Context())
	eventually(t, func() error {
		out, err := g.ask("neighbor")
		if err == nil && strings.Contains(out, "Establ") {
			err = errors.New(out)
		}
		return err
	})
	here()
	second := l.nodes[0].speaker(tor)
	second.Set([]plan.Peering{w})
	waitState(t, second, bgp.Established, "")
	here()
	second.Set([]plan.Peering{guarded("192.0.2.1", nil, "2001:db8:1::1/128")})
	g.waitPaths("198.51.100.1/32", 0)
	g.waitPaths("2001:db8:1::1/128", 1)
}
