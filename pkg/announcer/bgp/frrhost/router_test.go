package frrhost_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrhost"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

const password = "s3cret"

// speaker returns a Speaker for the host's FRR, and what it logs.
func (h *host) speaker() (*frrhost.Speaker, *wire.Log) { return h.speakerIn(h.dir) }

// speakerIn is speaker with a directory of its own to share.
func (h *host) speakerIn(dir string) (*frrhost.Speaker, *wire.Log) {
	log := &wire.Log{}
	s := frrhost.New(frrhost.Options{
		Node: "n1", Dir: dir,
		Password: func(_ context.Context, name string) (string, error) {
			if name != "tor" {
				return "", errors.New("no such Secret")
			}
			return password, nil
		},
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	h.t.Cleanup(s.Close)
	return s, log
}

// peers are an external router with everything, and an internal one.
func peers() (external, internal config.Peer) {
	common := config.Peer{
		Port: 179, LocalASN: 64500, Multihop: 1, HoldTime: 9 * time.Second, KeepaliveTime: 3 * time.Second, ConnectTime: time.Second,
		Families: []config.Family{config.IPv4, config.IPv6},
	}
	external, internal = common, common
	external.Name, external.Address, external.ASN = "tor", netip.MustParseAddr("192.0.2.1"), 64501
	external.PasswordSecret = "tor"
	external.BFD = &config.BFDProfile{
		Name: "fast", ReceiveInterval: 2 * time.Second, TransmitInterval: 2 * time.Second, DetectMultiplier: 3,
		EchoInterval: 50 * time.Millisecond, MinimumTTL: 254,
	}
	internal.Name, internal.Address, internal.ASN = "bird", netip.MustParseAddr("2001:db8:2::1"), 64500
	return external, internal
}

func routes(prefixes ...string) []plan.Route {
	var out []plan.Route
	for _, p := range prefixes {
		out = append(out, plan.Route{
			Prefix: netip.MustParsePrefix(p), LocalPref: 250,
			Communities: []config.Community{{Global: 64500, Local1: 7}, {Large: true, Global: 64500, Local1: 1, Local2: 2}},
		})
	}
	return out
}

func peerings(all []plan.Route) []plan.Peering {
	external, internal := peers()
	return []plan.Peering{
		{Backend: config.FRR, Peer: external, Routes: all, Pause: time.Second}, {Backend: config.FRR, Peer: internal, Routes: all, Pause: time.Second},
	}
}

const torConfiguration = `
router bgp 64501
 no bgp ebgp-requires-policy
 neighbor 192.0.2.11 remote-as 64500
 neighbor 192.0.2.11 password s3cret
 neighbor 192.0.2.11 bfd
 address-family ipv6 unicast
  neighbor 192.0.2.11 activate
 exit-address-family
`

const birdConfiguration = `
router id 10.0.0.2;
protocol device {}
protocol bgp node {
  local 2001:db8:2::1 as 64500;
  neighbor 2001:db8:2::11 as 64500;
  ipv4 { import all; export none; extended next hop; };
  ipv6 { import all; export none; };
}
`

// bird runs BIRD on a host, and returns what asks it.
func (h *host) bird(configuration string) func(...string) string {
	h.t.Helper()
	need(h.t, "bird", "birdc")
	conf, control := filepath.Join(h.dir, "bird.conf"), filepath.Join(h.dir, "bird.ctl")
	if err := os.WriteFile(conf, []byte(configuration), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.start(nil, "bird", "-f", "-c", conf, "-s", control)
	return func(args ...string) string {
		out, err := exec.Command("ip", h.inside(append([]string{"birdc", "-s", control}, args...)...)...).CombinedOutput()
		if err != nil {
			return err.Error()
		}
		return string(out)
	}
}

// sessions is what knows sessions.
type sessions interface{ Sessions() []bgp.Session }

// session returns a session by the name of its peer.
func session(s sessions, peer string) bgp.Session {
	for _, x := range s.Sessions() {
		if x.Peer == peer {
			return x
		}
	}
	return bgp.Session{}
}

// waitSessions waits until both sessions are up, have told so many prefixes and
// have nothing to complain of.
func (h *host) waitSessions(s *frrhost.Speaker, told int) {
	h.t.Helper()
	h.eventually(func() error {
		for _, peer := range []string{"tor", "bird"} {
			if x := session(s, peer); x.State != bgp.Established || len(x.Advertised) != told || x.Why != "" {
				return fmt.Errorf("%s: %s %q, told %d of %d", peer, x.State, x.Why, len(x.Advertised), x.Wanted)
			}
		}
		if x := session(s, "tor"); x.BFD != "up" {
			return fmt.Errorf("BFD is %q", x.BFD)
		}
		return nil
	})
}

// One life of a node's FRR, judged by the routers' own tables: a router of
// another AS with a password and BFD, and one of our own.
func TestRoutersOfARealFRR(t *testing.T) {
	node, tor, reflector := newHost(t, "n"), newHost(t, "t"), newHost(t, "b")
	cable(node, tor, "eth0", "192.0.2.", "2001:db8::")
	cable(node, reflector, "eth1", "198.18.0.", "2001:db8:2::")
	tor.frr(torConfiguration)
	birdc := reflector.bird(birdConfiguration)
	node.frr("")
	node.reloader()
	s, log := node.speaker()
	some := routes("203.0.113.1/32", "2001:db8:1::/64")
	s.Set(peerings(some))
	node.waitSessions(s, 2)

	tor.waitTable(map[string][]string{
		"203.0.113.1/32":  {"192.0.2.11 from 192.0.2.11", "Community: 64500:7", "Large Community: 64500:1:2", "64500\n"},
		"2001:db8:1::/64": {"2001:db8::11", "Community: 64500:7"},
	})
	node.eventually(func() error {
		got := birdc("show", "route", "all")
		for _, w := range []string{"203.0.113.1/32", "2001:db8:1::/64", "BGP.next_hop: 2001:db8:2::11", "BGP.local_pref: 250", "(64500,7)", "(64500, 1, 2)"} {
			if !strings.Contains(got, w) {
				return fmt.Errorf("no %q in %s", w, got)
			}
		}
		return nil
	})

	t.Run("B142B146ServicesComeAndGoWithoutAReset", func(t *testing.T) {
		writes, times := s.Writes(), session(s, "tor").Times
		reloads := func(what string, least, most uint64) {
			t.Helper()
			if got := s.Writes() - writes; got < least || got > most {
				t.Errorf("%d reloads for %s, want %d to %d", got, what, least, most)
			}
			writes = s.Writes()
		}
		const single, burst = 3, 17
		want := map[string][]string{"203.0.113.1/32": nil, "2001:db8:1::/64": nil}
		more := some
		for i := range single + burst {
			came := routes(fmt.Sprintf("203.0.113.%d/32", 10+i))
			more = append(came, more...)
			want[came[0].Prefix.String()] = nil
			s.Set(peerings(more))
			if i >= single {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			tor.waitTable(want)
			for range 200 {
				s.Set(peerings(more)) // heart-beats of nodes change nothing
			}
			reloads("one Service", 1, 1)
		}
		tor.waitTable(want)
		reloads("many Services", 1, burst)
		s.Set(peerings(some))
		node.waitSessions(s, 2)
		time.Sleep(2 * time.Second)
		reloads("all that go", 1, 1)
		if got := session(s, "tor").Times; got != times {
			t.Errorf("the session has come up %d times, was %d", got, times)
		}
		counters := tor.vtysh("show bfd peers counters")
		if !strings.Contains(counters, "Session down events: 0") {
			t.Errorf("BFD has been down:\n%s", counters)
		}
	})

	t.Run("AnAnnouncerThatRestartsFindsItsFileAndChangesNothing", func(t *testing.T) {
		times := session(s, "tor").Times
		s.Close()
		tor.waitTable(map[string][]string{"203.0.113.1/32": nil, "2001:db8:1::/64": nil})
		s, log = node.speaker()
		s.Set(peerings(some))
		node.waitSessions(s, 2)
		if got := s.Writes(); got != 0 {
			t.Errorf("%d reloads", got)
		}
		if got := session(s, "tor").Times; got != times {
			t.Errorf("the session has come up %d times, was %d", got, times)
		}
	})

	t.Run("B135ZeroEndpointsWithdraw", func(t *testing.T) {
		s.Set(peerings(nil))
		tor.waitTable(nil)
		s.Set(peerings(some))
		tor.waitTable(map[string][]string{"203.0.113.1/32": nil, "2001:db8:1::/64": nil})
		node.waitSessions(s, 2)
	})

	t.Run("APeerThatIsRemovedIsAskedToAvoidTheRoutesFirst", func(t *testing.T) {
		slow := peerings(some)
		slow[0].Pause = 15 * time.Second // long enough to be seen
		s.Set(slow)
		node.waitSessions(s, 2)
		s.Set(slow[1:])
		tor.waitTable(map[string][]string{"203.0.113.1/32": {"64500:7 graceful-shutdown"}, "2001:db8:1::/64": {"graceful-shutdown"}})
		tor.waitTable(nil)
		node.eventually(func() error { // what FRR says may be too old for a moment; how often a session came up is never less
			if x := session(s, "bird"); x.State != bgp.Established || x.Times != 1 {
				return fmt.Errorf("the other session: %s (%q), come up %d times", x.State, x.Why, x.Times)
			}
			return nil
		})
	})

	t.Run("AnFRRThatStartsAnewGetsItsConfigurationAgain", func(t *testing.T) {
		tor.waitTable(nil)
		s.Set(peerings(some))
		node.waitSessions(s, 2)
		node.restart("bgpd")
		tor.waitTable(nil)
		tor.waitTable(map[string][]string{"203.0.113.1/32": nil, "2001:db8:1::/64": nil})
		node.waitSessions(s, 2)
	})

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.Leave(ctx)
	if ctx.Err() != nil {
		t.Error("the leave did not end")
	}
	reflector.eventually(func() error { // FRR has said so; BIRD may still be reading it
		if got := birdc("show", "route"); strings.Contains(got, "203.0.113.1") {
			return fmt.Errorf("after the leave the router has %s", got)
		}
		return nil
	})
	if strings.Contains(log.String(), password) {
		t.Errorf("the password is in the log:\n%s", log.String())
	}
}
