package bgp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// bird is BIRD 2 on a host.
type bird struct {
	*host
	dir string
}

// newBIRD runs BIRD with some protocols besides those that fill the kernel.
func newBIRD(h *host, protocols string) *bird {
	h.T.Helper()
	wire.Need(h.T, "bird", "birdc")
	dir, err := os.MkdirTemp("", "bird")
	h.Must(err)
	h.T.Cleanup(func() { os.RemoveAll(dir) })
	b := &bird{h, dir}
	file := filepath.Join(dir, "bird.conf")
	h.Must(os.WriteFile(file, []byte(`
router id 10.0.0.1;
protocol device {}
protocol direct { ipv4; ipv6; }
protocol kernel { ipv4 { export where source = RTS_BGP; }; merge paths on; }
protocol kernel { ipv6 { export where source = RTS_BGP; }; merge paths on; }
`+protocols), 0o644))
	h.start("bird", "-f", "-c", file, "-s", filepath.Join(dir, "ctl"), "-P", filepath.Join(dir, "pid"))
	eventually(h.T, func() error { _, err := b.ask("show status"); return err })
	return b
}

// ask runs a command of birdc.
func (b *bird) ask(command string) (string, error) {
	return b.output("birdc", "-s", filepath.Join(b.dir, "ctl"), command)
}

// waitRoute waits until BIRD has a route, and says of it all that is wanted.
func (b *bird) waitRoute(prefix string, want ...string) {
	b.T.Helper()
	eventually(b.T, func() error {
		out, err := b.ask("show route all for " + prefix)
		if err != nil {
			return err
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("no %q in:\n%s", w, out)
			}
		}
		return nil
	})
}

func TestB129SessionsWithLinkLocalAddresses(t *testing.T) {
	l := newLAN(t, 1)
	n := l.nodes[0]
	l.router.run("ip", "-6", "address", "flush", "dev", "br0", "scope", "link")
	l.router.Address("br0", "fe80::1/64")
	n.run("ip", "-6", "address", "flush", "dev", "eth0", "scope", "link")
	n.Address("eth0", "fe80::11/64")
	b := newBIRD(l.router, `
protocol bgp n1 {
 local fe80::1%br0 as 64501;
 neighbor fe80::11%br0 as 64500;
 passive;
 ipv4 { import all; export none; extended next hop on; };
 ipv6 { import all; export none; };
}
`)
	s := n.speaker(nil)
	s.Set([]plan.Peering{peering("r1", "fe80::1%eth0", both, "198.51.100.1/32", "2001:db8:1::1/128")})
	b.waitRoute("2001:db8:1::1/128", "[n1", "BGP.next_hop: 2001:db8::11 fe80::11")
	b.waitRoute("198.51.100.1/32", "[n1", "BGP.next_hop: 192.0.2.11")
	waitNextHops(l.router, "198.51.100.1", 1)
	waitNextHops(l.router, "2001:db8:1::1", 1)
}

func TestRoutesReachBIRD(t *testing.T) {
	l := newLAN(t, 3)
	b := newBIRD(l.router, `
template bgp node {
 local 192.0.2.1 as 64500;
 passive;
 ipv4 { import all; export none; };
 ipv6 { import all; export none; };
}
protocol bgp n1 from node { neighbor 192.0.2.11 as 64500; }
protocol bgp n2 from node { neighbor 192.0.2.12 as 64500; }
protocol bgp n3 from node { neighbor 192.0.2.13 as 64500; }
`)
	var speakers []*bgp.Speaker
	for _, n := range l.nodes {
		s := n.speaker(nil)
		w := peering("r1", "192.0.2.1", func(p *config.Peer) { both(p); internal(p) }, "198.51.100.1/32", "2001:db8:1::1/128")
		w.Routes[0].LocalPref = 250
		w.Routes[0].Communities = []config.Community{{Global: 65000, Local1: 7}, {Large: true, Global: 65000, Local1: 1, Local2: 2}}
		s.Set([]plan.Peering{w})
		speakers = append(speakers, s)
	}
	b.waitRoute("198.51.100.1/32", "[n1", "[n2", "[n3", "BGP.local_pref: 250", "(65000,7)", "(65000, 1, 2)", "BGP.origin: IGP")
	b.waitRoute("2001:db8:1::1/128", "[n1", "[n2", "[n3", "BGP.local_pref: 100", "2001:db8::13")
	waitNextHops(l.router, "198.51.100.1", 3)
	waitNextHops(l.router, "2001:db8:1::1", 3)
	edited := peering("r1", "192.0.2.1", func(p *config.Peer) { both(p); internal(p) }, "198.51.100.0/24", "2001:db8:1::1/128")
	edited.Routes[0].LocalPref, edited.Routes[1].LocalPref = 250, 300
	for _, s := range speakers {
		s.Set([]plan.Peering{edited})
	}
	eventually(t, func() error {
		if out, err := b.ask("show route"); err != nil || strings.Contains(out, "198.51.100.1/32") {
			return fmt.Errorf("%v, and the routes are:\n%s", err, out)
		}
		return nil
	})
	b.waitRoute("198.51.100.0/24", "[n1", "[n2", "[n3", "BGP.local_pref: 250")
	b.waitRoute("2001:db8:1::1/128", "[n1", "[n2", "[n3", "BGP.local_pref: 300")
	for i, s := range speakers {
		if got := s.Sessions()[0].Times; got != 1 {
			t.Errorf("n%d: another local preference or aggregation length has reset the session: it came up %d times", i+1, got)
		}
	}
	waitNextHops(l.router, "198.51.100.0/24", 3)
	speakers[0].Set(nil)
	waitNextHops(l.router, "198.51.100.0/24", 2)
}
