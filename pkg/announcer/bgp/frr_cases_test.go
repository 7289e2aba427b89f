package bgp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// waitSession waits until a session is up for so many times.
func waitSession(t testing.TB, s *bgp.Speaker, peer string, times uint64) {
	t.Helper()
	eventually(t, func() error {
		for _, session := range s.Sessions() {
			if session.Peer == peer && session.State == bgp.Established && session.Times == times {
				return nil
			}
		}
		return fmt.Errorf("got %+v", s.Sessions())
	})
}

// A password is changed where it stands: the Secret has another content, the
// name that peers know it by stays.
func TestB117PasswordIsReplacedInPlace(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 1)
	router := newFRR(l.router, strings.NewReplacer(
		" bgp listen range 192.0.2.0/24 peer-group nodes\n", ` neighbor 192.0.2.11 peer-group nodes
 neighbor 192.0.2.11 passive
 neighbor 192.0.2.11 password before
`).Replace(openRouter))
	var password atomic.Value
	password.Store("before")
	s := l.nodes[0].speakerThatAsks(func(string) (string, error) { return password.Load().(string), nil })
	s.Set([]plan.Peering{
		peering("r1", "192.0.2.1", func(p *config.Peer) { p.PasswordSecret = "bgp" }, "198.51.100.1/32"),
		peering("r2", "2001:db8::1", nil, "2001:db8:1::1/128"),
	})
	waitSession(t, s, "r1", 1)
	waitSession(t, s, "r2", 1)
	router.waitPrefixes("198.51.100.1/32", "2001:db8:1::1/128")
	password.Store("after")
	router.vtysh("configure terminal", "router bgp 64501", "neighbor 192.0.2.11 password after")
	waitSession(t, s, "r1", 2)
	waitSession(t, s, "r2", 1)
	router.waitPrefixes("198.51.100.1/32", "2001:db8:1::1/128")
}

// numbersRouter knows three nodes: two of another AS with a number of four
// bytes, one of its own.
const numbersRouter = `
router bgp 4200000001
 bgp router-id 10.0.0.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor outside peer-group
 neighbor outside remote-as 4200000000
 neighbor inside peer-group
 neighbor inside remote-as internal
 bgp listen range 2001:db8::11/128 peer-group outside
 bgp listen range 2001:db8::12/128 peer-group outside
 bgp listen range 2001:db8::13/128 peer-group inside
 address-family ipv6 unicast
  neighbor outside activate
  neighbor inside activate
 exit-address-family
`

// identifiers returns the router IDs of the nodes whose sessions are up, by the
// addresses of the nodes.
func (f *frr) identifiers() map[string]netip.Addr {
	f.T.Helper()
	out := f.vtysh("show bgp neighbors json")
	var all map[string]json.RawMessage // there is more in it than neighbours
	f.Must(json.Unmarshal([]byte(out), &all))
	found := map[string]netip.Addr{}
	for address, raw := range all {
		var n struct {
			RemoteRouterID netip.Addr `json:"remoteRouterId"`
			BGPState       string     `json:"bgpState"`
		}
		if _, err := netip.ParseAddr(address); err != nil {
			continue
		}
		f.Must(json.Unmarshal(raw, &n))
		if n.BGPState == "Established" {
			found[address] = n.RemoteRouterID
		}
	}
	return found
}

// waitIdentifiers waits for sessions with so many nodes.
func (f *frr) waitIdentifiers(want int) map[string]netip.Addr {
	f.T.Helper()
	var found map[string]netip.Addr
	eventually(f.T, func() error {
		if found = f.identifiers(); len(found) != want {
			return fmt.Errorf("sessions with %v, want %d", found, want)
		}
		return nil
	})
	return found
}

// AS numbers of four bytes and router IDs of nodes without IPv4, as a real
// router sees them: with the number itself, internal and external.
func TestB121RouterSeesNumbersAndRouterIDsOfNodesWithoutIPv4(t *testing.T) {
	t.Parallel()
	const ours, its = 4200000000, 4200000001
	l := newLAN(t, 3)
	router := newFRR(l.router, numbersRouter)
	edits := []func(*config.Peer){
		func(p *config.Peer) { p.LocalASN, p.ASN = ours, its },
		func(p *config.Peer) { p.LocalASN, p.ASN, p.Kind = ours, 0, config.External },
		func(p *config.Peer) { p.LocalASN, p.ASN, p.Kind = its, 0, config.Internal },
	}
	prefixes := []string{"2001:db8:1::1/128", "2001:db8:1::2/128", "2001:db8:1::3/128"}
	set := func(s *bgp.Speaker, i int, more func(*config.Peer)) {
		w := peering("r1", "2001:db8::1", func(p *config.Peer) {
			edits[i](p)
			if more != nil {
				more(p)
			}
		}, prefixes[i])
		w.Pause = 0
		s.Set([]plan.Peering{w})
	}
	var speakers []*bgp.Speaker
	for i, n := range l.nodes {
		n.run("ip", "-4", "address", "flush", "dev", "eth0")
		s := n.speaker(nil)
		set(s, i, nil)
		speakers = append(speakers, s)
	}
	router.waitPrefixes(prefixes...)
	table := router.table("ipv6")
	for i, want := range []string{"4200000000", "4200000000", ""} {
		if got := table[prefixes[i]][0]; got.Path != want || !got.Valid {
			t.Errorf("n%d: got %+v, want the path %q", i+1, got, want)
		}
		if got := speakers[i].Sessions()[0]; got.ASN != its || got.Internal != (want == "") {
			t.Errorf("n%d: got %+v", i+1, got)
		}
	}

	before := router.waitIdentifiers(3)
	distinct := map[netip.Addr]bool{}
	for _, id := range before {
		distinct[id] = true
	}
	if len(distinct) != 3 {
		t.Errorf("the router sees %v", before)
	}
	speakers[1].Close()
	router.waitIdentifiers(2)
	set(l.nodes[1].speaker(nil), 1, nil)
	if after := router.waitIdentifiers(3); after["2001:db8::12"] != before["2001:db8::12"] {
		t.Errorf("n2 has another router ID after a restart: %v, before %v", after, before)
	}
	set(speakers[0], 0, func(p *config.Peer) { p.RouterID = netip.MustParseAddr("10.9.9.9") })
	eventually(t, func() error {
		if got := router.identifiers()["2001:db8::11"]; got != netip.MustParseAddr("10.9.9.9") {
			return fmt.Errorf("the router sees %s", got)
		}
		return nil
	})

	set(speakers[0], 0, func(p *config.Peer) { p.ASN, p.Kind = 0, config.Internal })
	waitState(t, speakers[0], bgp.Idle, "the router has AS 4200000001, which is not ours")
	set(speakers[2], 2, func(p *config.Peer) { p.Kind = config.External })
	waitState(t, speakers[2], bgp.Idle, "the router has our own AS 4200000001")
	router.waitPrefixes(prefixes[1])
}

// The plug of a node is pulled, and put in again when the router has forgotten
// what the node had told it.
func TestB120NodeThatWasCutOffTellsEverythingAgain(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 1)
	router := newFRR(l.router, openRouter)
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf("198.51.100.%d/32", 1+i))
	}
	s := l.nodes[0].speaker(nil)
	s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil, all...)})
	router.waitPrefixes(all...)
	if out := l.nodes[0].run("ss", "-Hltn"); out != "" { // B-124: an open port 179 is in the way of other speakers
		t.Errorf("the node of the announcer has open ports:\n%s", out)
	}
	l.router.run("ip", "link", "set", "n1", "down")
	router.waitPrefixes()
	eventually(t, func() error {
		if got := s.Sessions()[0]; got.State == bgp.Established {
			return errors.New("the node has not noticed")
		}
		return nil
	})
	l.router.run("ip", "link", "set", "n1", "up")
	router.waitPrefixes(all...)
}
