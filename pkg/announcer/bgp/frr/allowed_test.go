package frr_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// What a document may ask for, FRR can be told: it knows a local-as for routers
// of other ASes only.
func TestTheASNumbersThatADocumentMayHaveFRRTakes(t *testing.T) {
	forms := []string{
		"asn: 1", "asn: 2", "asn: internal", "asn: external",
		"asn: 1, localASN: 2", "asn: 2, localASN: 2", "asn: internal, localASN: 2", "asn: 2, localASN: 1",
	}
	allowed, refused := 0, 0
	for i := range 3 * len(forms) * len(forms) * len(forms) {
		n := len(forms)
		text := fmt.Sprintf("apiVersion: %s\nkind: %s\npools: [{addresses: [198.51.100.0/24]}]\nadvertisements: [{bgp: {}}]\n"+
			"bgp: {backend: frr, localASN: %d, peers: [{address: 192.0.2.1, %s}, {name: two, address: 192.0.2.2, %s}, {name: three, address: 192.0.2.3, %s}]}\n",
			config.APIVersion, config.Kind, 1+i/n/n/n, forms[i%n], forms[i/n%n], forms[i/n/n%n])
		loaded, err := config.Load([]byte(text))
		if err != nil {
			refused++
			continue
		}
		allowed++
		in := frr.Input{RouterID: netip.MustParseAddr("10.1.2.3")}
		for _, p := range loaded.BGP.Peers {
			in.Peerings = append(in.Peerings, frr.Peering{Peering: plan.Peering{ASN: loaded.BGP.LocalASN, Peer: p}})
		}
		if line := refusedByFRR(frr.Render(in)); line != "" {
			t.Errorf("%s FRR refuses %q", text, line)
		}
	}
	if allowed < 100 || refused < 100 {
		t.Errorf("%d documents are allowed and %d refused", allowed, refused)
	}
}

// refusedByFRR returns a line with a local-as that FRR refuses.
func refusedByFRR(text string) string {
	router, remote := "", map[string]string{}
	for line := range strings.Lines(text) {
		switch words := strings.Fields(line); {
		case strings.HasPrefix(line, "router bgp "):
			router = words[2]
		case len(words) > 3 && words[2] == "remote-as":
			remote[words[1]] = words[3]
		case len(words) > 3 && words[2] == "local-as":
			if r := remote[words[1]]; r == router || r == "internal" || r == words[3] || words[3] == router {
				return line
			}
		}
	}
	return ""
}
