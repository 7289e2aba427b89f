package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// withPeers is a document with peers in YAML's flow style.
func withPeers(peers string) string {
	return head + "pools: [{addresses: [192.0.2.0/24]}]\nadvertisements: [{bgp: {}}]\nbgp: {localASN: 64500, peers: [" + peers + "]}\n"
}

// refused tests that the document has exactly one fault, with these words.
func refused(t *testing.T, document string, words ...string) {
	t.Helper()
	faults := faultsOf(t, document)
	for _, w := range words {
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), w) {
			t.Errorf("got %v, want one fault with %q", faults, w)
		}
	}
}

func TestB123OneAddressTwiceIsForNodesThatCannotBeTheSame(t *testing.T) {
	peer := func(name, selector string) string {
		return "{name: " + name + ", address: 198.51.100.1, asn: 64501, nodeSelector: " + selector + "}"
	}
	for _, apart := range [][2]string{
		{`"rack=a"`, `"rack=b"`},
		{`"rack in (a, b)"`, `"rack notin (a, b, c)"`},
		{`"edge"`, `"!edge"`},
		{`"edge=true"`, `"!edge"`},
		{`["rack=a,edge", "rack=b"]`, `"rack=c"`},
	} {
		c := load(t, withPeers(peer("one", apart[0])+", "+peer("two", apart[1])))
		if len(c.BGP.Peers) != 2 {
			t.Errorf("%v: got %v", apart, c.BGP.Peers)
		}
	}
	for _, overlapping := range [][2]string{
		{`"rack=a"`, `""`},
		{`"rack=a"`, `"row=b"`},
		{`"rack in (a, b)"`, `"rack in (b, c)"`},
		{`"rack notin (a)"`, `"rack notin (b)"`},
		{`["rack=a", "rack=b"]`, `"rack=b"`},
		{`"rack=a"`, `"rack notin (b)"`},
	} {
		refused(t, withPeers(peer("one", overlapping[0])+", "+peer("two", overlapping[1])),
			"bgp.peers[1] (two).address: 198.51.100.1 port 179 is the router of bgp.peers[0] (one)")
	}
}

// All pairs of a thousand would be more than anybody reads.
func TestEachPeerNamesOneOtherWithItsRouter(t *testing.T) {
	const same = "{name: %s, address: 198.51.100.1, asn: 64501}"
	_, err := config.Load([]byte(withPeers(fmt.Sprintf(same+", "+same+", "+same, "one", "two", "three"))))
	if err == nil || strings.Count(err.Error(), "is the router of") != 2 {
		t.Errorf("got %v, want a fault of the second peer and one of the third", err)
	}
}

// In another VRF an address is another router's.
func TestB123OneAddressTwiceMayBeInTwoVRFs(t *testing.T) {
	inVRFs := func(second string) string {
		return strings.Replace(withPeers("{name: one, address: 198.51.100.1, asn: 64501}, {name: two, address: 198.51.100.1, asn: 64501"+second+"}"),
			"bgp: {localASN", "bgp: {backend: frr, localASN", 1)
	}
	peers := load(t, inVRFs(", vrf: red")).BGP.Peers
	if len(peers) != 2 || peers[0].VRF != "" || peers[1].VRF != "red" || peers[0].Address != peers[1].Address {
		t.Errorf("got %+v", peers)
	}
	refused(t, inVRFs(""), "bgp.peers[1] (two).address: 198.51.100.1 port 179 is the router of bgp.peers[0] (one)")
}

func TestB129LinkLocalPeerNeedsItsInterface(t *testing.T) {
	c := load(t, withPeers(`{address: "fe80::1%eth0", asn: 64501}`))
	if got := c.BGP.Peers[0].Address.String(); got != "fe80::1%eth0" {
		t.Errorf("got %s", got)
	}
	refused(t, withPeers(`{address: "fe80::1", asn: 64501}`), "needs its interface: write fe80::1%eth0")
}

func TestB144CommunitiesThatOverflowOrAreNoneAreRefused(t *testing.T) {
	for text, want := range map[string]config.Community{
		"64500:100":       {Global: 64500, Local1: 100},
		"65535:65281":     {Global: 65535, Local1: 65281},
		"no-export":       {Global: 65535, Local1: 65281},
		"64500:1:2":       {Large: true, Global: 64500, Local1: 1, Local2: 2},
		"large:64500:1:2": {Large: true, Global: 64500, Local1: 1, Local2: 2},
		"65540:1:0":       {Large: true, Global: 65540, Local1: 1},
	} {
		if got, err := config.ParseCommunity(text); got != want || err != nil {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"65540:1", "64500:70000", "1:2:3:4", "large:1:2", "1", "", ":", "1:", "-1:2", "+1:2", "1:02", "1:2:4294967296", "NO-EXPORT", "1:2 ", "0x1:2",
	} {
		if got, err := config.ParseCommunity(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestB144AliasesAreNamesOfNumbersOnly(t *testing.T) {
	document := func(aliases, community string) string {
		return head + "pools: [{addresses: [192.0.2.0/24]}]\n" +
			"advertisements: [{bgp: {communities: [" + community + "]}}]\n" +
			"bgp: {localASN: 1, communityAliases: " + aliases + ", peers: [{address: 192.0.2.1, asn: 2}]}\n"
	}
	c := load(t, document(`{blue: "65000:7"}`, "blue"))
	if got := c.Advertisements[0].BGP.Communities; len(got) != 1 || got[0].String() != "65000:7" {
		t.Errorf("got %v", got)
	}
	refused(t, document(`{blue: "65000:7"}`, "green"), `there is no community "green"`)
	for _, loop := range []string{`{blue: blue}`, `{blue: red}`} {
		if faults := faultsOf(t, document(loop, "no-export")); !strings.Contains(faults[0].Message, "is no community") {
			t.Errorf("%s: got %v", loop, faults)
		}
	}
}

// A router ID of 128 bits has made speakers of others crash on every node.
func TestRouterIDIsNoIPv6Address(t *testing.T) {
	refused(t, withPeers(`{address: 192.0.2.1, asn: 2, routerID: "2001:db8::1"}`), "bgp.peers[0].routerID", "32 bits")
}

// A route may be selected by all advertisements at once.
func TestRoutesWithTooManyCommunitiesForAMessageAreRefused(t *testing.T) {
	document := func(n int) string {
		var b strings.Builder
		b.WriteString(head + "pools: [{addresses: [192.0.2.0/24]}]\nbgp: {localASN: 1, peers: [{address: 192.0.2.1, asn: 2}]}\nadvertisements:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: a%d, bgp: {communities: [\"65000:%d\", no-export]}}\n", i, i)
		}
		return b.String()
	}
	load(t, document(99))
	refused(t, document(100), "advertisements[99] (a99): this makes more than 100 different communities")
}
