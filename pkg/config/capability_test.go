package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// asking has, for each capability that not all backends have, peers that ask
// for it and for nothing else that a backend could lack.
var asking = map[string]string{
	"a link-local address (`fe80::1%eth0`)":                                      `{address: "fe80::1%eth0", asn: 1}`,
	"an unnumbered session: whoever is at the other end of a link":               `{interface: eth0, asn: external}`,
	"a session in a VRF of the node":                                             `{address: 203.0.113.1, asn: 1, vrf: red}`,
	"a session that the router opens":                                            `{address: 203.0.113.1, asn: 1, passive: true}`,
	"several AS numbers of ours on one node":                                     `{address: 203.0.113.1, asn: 1}, {name: two, address: 203.0.113.2, asn: 1, localASN: 2}`,
	"several AS numbers of ours on one node towards internal routers":            `{address: 203.0.113.1, asn: internal}, {name: two, address: 203.0.113.2, asn: 2, localASN: 2}`,
	"an external router in the AS that internal routers of the same node are in": `{address: 203.0.113.1, asn: 64500, localASN: 2}, {name: two, address: 203.0.113.2, asn: 64500}`,
	"one link-local address on several links of a node":                          `{address: "fe80::1%eth0", asn: 1}, {name: two, address: "fe80::1%eth1", asn: 1}`,
	"several router IDs on one node":                                             `{address: 203.0.113.1, asn: 1}, {name: two, address: 203.0.113.2, asn: 1, routerID: 10.0.0.1}`,
	"several routers at one address, told apart by their ports":                  `{address: 203.0.113.1, asn: 1}, {name: two, address: 203.0.113.1, asn: 1, port: 1179}`,
	"any port":                          `{address: 203.0.113.1, asn: 1, port: 16385}`,
	"TTL security (RFC 5082)":           `{address: 203.0.113.1, asn: 1, ttlSecurity: 1}`,
	"BFD":                               `{address: 203.0.113.1, asn: 1, bfdProfile: fast}`,
	"another restart time than 120 s":   `{address: 203.0.113.1, asn: 1, gracefulRestart: 60s}`,
	"several restart times on one node": `{address: 203.0.113.1, asn: 1, gracefulRestart: 120s}, {name: two, address: 203.0.113.2, asn: 1, gracefulRestart: 60s}`,
}

// notAsking has peers that come close to what some backends lack.
var notAsking = []string{
	`{address: "2001:db8::1", asn: 1, passive: false, gracefulRestart: 120s, port: 16384}`,
	`{address: 203.0.113.1, asn: 1, nodeSelector: rack=a}, {name: two, address: 203.0.113.1, asn: 1, nodeSelector: rack=b, localASN: 2, routerID: 10.0.0.1, port: 1179}`,
	`{address: 203.0.113.1, asn: internal, nodeSelector: rack=a}, {name: two, address: 203.0.113.2, asn: internal, localASN: 2, nodeSelector: rack=b}`,
	`{address: 203.0.113.1, asn: internal}, {name: two, address: 203.0.113.2, asn: 64500}, {name: three, address: 203.0.113.3, asn: external}`,
	`{address: 203.0.113.1, asn: 1, gracefulRestart: 120s}, {name: two, address: 203.0.113.2, asn: 1}`,
}

// faultsFor returns what is wrong with peers for a backend, that the release
// has it or not.
func faultsFor(t *testing.T, backend Backend, peers string) []string {
	t.Helper()
	_, err := Load(fmt.Appendf(nil, "apiVersion: %s\nkind: %s\npools: [{addresses: [192.0.2.0/24]}]\nadvertisements: [{bgp: {}}]\n"+
		"bgp: {backend: %s, localASN: 64500, bfdProfiles: [{name: fast}], peers: [%s]}\n", APIVersion, Kind, backend, peers))
	var all Errors
	if err != nil && !errors.As(err, &all) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		if e.Path != "bgp.backend" {
			out = append(out, e.Error())
		}
	}
	return out
}

// A document is refused by the table exactly where the backend lacks what it
// asks for, with the table's reason.
func TestEveryCellOfTheCapabilityTableHolds(t *testing.T) {
	for _, c := range capabilities {
		if (c.asked == nil) != (len(c.lacks) == 0) {
			t.Errorf("%s: a question without backends that lack it, or the reverse", c.what)
		}
		if c.asked == nil {
			continue
		}
		peers, known := asking[c.what]
		if !known {
			t.Errorf("%s: no peers ask for it in this test", c.what)
		}
		for _, b := range backends {
			faults := faultsFor(t, b, peers)
			why, lacks := c.lacks[b]
			want := fmt.Sprintf("the backend %s %s", b, why)
			if lacks && !slices.ContainsFunc(faults, func(f string) bool { return strings.HasSuffix(f, want) && strings.Contains(f, ": bgp.peers[") }) {
				t.Errorf("%s with %s: got %q, want one %q at a peer", c.what, b, faults, want)
			}
			if !lacks && slices.ContainsFunc(faults, func(f string) bool { return !c.exempt(f, b) }) {
				t.Errorf("%s with %s: got %q, want none", c.what, b, faults)
			}
		}
	}
	for _, peers := range notAsking {
		for _, b := range backends {
			if faults := faultsFor(t, b, peers); len(faults) > 0 {
				t.Errorf("%s with %s: got %q", peers, b, faults)
			}
		}
	}
}

// One reason is said once of a peer, at the peer.
func TestCapabilityFaultsHaveTheirPlaceAndAreSaidOnce(t *testing.T) {
	for peers, want := range map[string]map[Backend][]string{
		`{address: 203.0.113.1, asn: internal}, {name: two, address: 203.0.113.2, asn: internal, localASN: 2}`: {
			Embedded: nil,
			FRR:      {"line 5: bgp.peers[1] (two): the backend frr has one AS number per node and VRF for internal routers, and another internal peer of the same nodes has a different one"},
			FRRK8s:   {"line 5: bgp.peers[1] (two): the backend frr-k8s has one AS number per node and VRF, and another peer of the same nodes has a different one"},
		},
		`{address: 203.0.113.1, asn: 1, routerID: 10.0.0.1, vrf: red}, {name: two, address: 203.0.113.2, asn: 1, routerID: 10.0.0.2, vrf: red}, {name: three, address: 203.0.113.3, asn: 1, routerID: 10.0.0.3}`: {
			FRR: {"line 5: bgp.peers[1] (two): the backend frr has one router ID per node and VRF, and another peer of the same nodes has a different one"},
		},
		`{address: "fe80::1%eth0", asn: 1}, {name: two, address: "fe80::1%eth1", asn: 1}, {name: three, address: "fe80::2%eth1", asn: 1}`: {
			FRR: {"line 5: bgp.peers[1] (two).address: the backend frr knows routers by their address, and another peer of the same nodes has the same on another link: use interface"},
		},
	} {
		for b, want := range want {
			if got := faultsFor(t, b, peers); !slices.Equal(got, want) {
				t.Errorf("%s with %s:\ngot  %q\nwant %q", peers, b, got, want)
			}
		}
	}
}

// exempt tells whether a fault is that of another capability: several restart
// times cannot be asked for without asking for one that is not 120 s.
func (c capability) exempt(fault string, b Backend) bool {
	return b == FRRK8s && c.what == "several restart times on one node" && strings.HasSuffix(fault, "no other restart time than 120s")
}

// TestBackendReferenceIsUpToDate compares docs/reference/bgp-backends.md with
// the table.
func TestBackendReferenceIsUpToDate(t *testing.T) {
	upToDate(t, "../../docs/reference/bgp-backends.md", renderBackends())
}

func renderBackends() string {
	var b strings.Builder
	b.WriteString(backendsHead)
	for _, c := range capabilities {
		keys := ""
		if c.keys != "" {
			keys = "`" + strings.ReplaceAll(c.keys, ", ", "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |", keys, c.what)
		for _, backend := range backends {
			fmt.Fprintf(&b, " %s |", c.cell(backend))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (c capability) cell(b Backend) string {
	switch why, lacks := c.lacks[b]; {
	case lacks:
		return "no: it " + why
	case c.note[b] != "":
		return "yes; " + c.note[b]
	default:
		return "yes"
	}
}

const backendsHead = `<!-- Generated from the source by: go test ./pkg/config -update -->
# What the BGP backends can do

` + "`bgp.backend`" + ` says what speaks BGP. A document that asks for what its backend cannot do is refused, by ` + "`ccm-baremetal check-config`" + ` too,
with the words of this table. Keys are those below ` + "`bgp`" + `, and below ` + "`advertisements[].bgp`" + ` for what is advertised.

| keys | what | embedded | frr | frr-k8s |
|---|---|---|---|---|
`
