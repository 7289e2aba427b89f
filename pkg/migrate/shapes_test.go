package migrate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// imports imports one text, which must be possible.
func imports(t *testing.T, text string) Result {
	t.Helper()
	r, err := Import([]Source{{Name: "f", Text: []byte(text)}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

// However one range by layer 2 is written down, it means the same.
func TestOneRangeInAllItsForms(t *testing.T) {
	inner := "address-pools:\n- name: default\n  protocol: layer2\n  addresses:\n  - 198.51.100.240-198.51.100.250\n"
	wrapped := func(inner string) string {
		indented := "    " + strings.ReplaceAll(strings.TrimSpace(inner), "\n", "\n    ")
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: metallb-system, name: config}\ndata:\n  config: |\n" + indented + "\n"
	}
	for name, text := range map[string]string{
		"by itself":             inner,
		"a ConfigMap":           wrapped(inner),
		"a list in brackets":    wrapped(strings.Replace(inner, "\n  - 198.51.100.240-198.51.100.250", ` ["198.51.100.240-198.51.100.250"]`, 1)),
		"blanks round the dash": wrapped(strings.Replace(inner, "240-", "240  -\t", 1)),
		"another order of keys": wrapped("address-pools:\n- addresses:\n  - 198.51.100.240-198.51.100.250\n  protocol: layer2\n  name: default\n"),
		"Windows line ends":     strings.ReplaceAll(wrapped(inner), "\n", "\r\n"),
		"Windows line ends inside": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {config: " +
			fmt.Sprintf("%q", strings.ReplaceAll(inner, "\n", "\r\n")) + "}\n",
		"JSON": fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"config": %q}}`, inner),
		"said": strings.Replace(inner, "  protocol", "  auto-assign: true\n  protocol", 1),
	} {
		t.Run(name, func(t *testing.T) {
			r := imports(t, text)
			pool, all := r.Config.Pools[0], r.Config.Advertisements
			if len(r.Config.Pools) != 1 || pool.Name != "default" || !pool.AutoAssign || fmt.Sprint(pool.Ranges) != "[198.51.100.240-198.51.100.250]" || pool.Size(config.IPv4) != 11 {
				t.Errorf("pools %+v", r.Config.Pools)
			}
			if len(all) != 1 || all[0].Layer2 == nil || all[0].BGP != nil || !slices.Equal(all[0].Pools, []string{"default"}) {
				t.Errorf("advertisements %+v", all)
			}
			if len(r.Losses)+len(r.Notes) > 0 {
				t.Errorf("remarks %v, %v", r.Losses, r.Notes)
			}
		})
	}
}

// What MetalLB does without being told is what the document comes to.
func TestDefaultsOfMetalLBAreKept(t *testing.T) {
	r := imports(t, `
peers:
- {peer-address: 198.51.100.2, peer-asn: 64501, my-asn: 64500}
- {peer-address: 198.51.100.4, peer-asn: 64501, my-asn: 64500}
address-pools:
- {name: default, protocol: bgp, avoid-buggy-ips: true, addresses: [203.0.113.0/24]}
`)
	if pool := r.Config.Pools[0]; pool.Size(config.IPv4) != 256 || !pool.AvoidBuggyIPs || !pool.AutoAssign {
		t.Errorf("pool %+v, want a whole CIDR of which .0 and .255 are avoided", pool)
	}
	if length := r.Config.Advertisements[0].BGP.Length(config.IPv4); length != 32 || len(r.Config.Advertisements) != 1 {
		t.Errorf("advertised are prefixes of length %d", length)
	}
	for _, p := range r.Config.BGP.Peers {
		if p.HoldTime != 90*time.Second || p.LocalASN != 64500 || !slices.Equal(p.Families, []config.Family{config.IPv4}) {
			t.Errorf("peer %+v", p)
		}
	}
}

// One IPv6 network of MetalLB's and Cilium's has more addresses than can be
// counted.
func TestHugePoolsAreCountedWithoutOverflow(t *testing.T) {
	r := imports(t, `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: main}
spec: {addresses: ["2001:db8:0:f104::/64", "2001:db8:1::/48"]}
`)
	if size := r.Config.Pools[0].Size(config.IPv6); size != math.MaxInt64 {
		t.Errorf("%d addresses", size)
	}
}

// Twenty Services share one address under the key "true". That is a key like
// any other, and nothing is lost.
func TestManyServicesUnderOneKeyKeepTheirAddress(t *testing.T) {
	text := `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: lan}
spec: {addresses: [192.0.2.0/29]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: lan}
spec: {interfaces: [eth0]}
`
	for i := range 20 {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d, annotations: {metallb.universe.tf/allow-shared-ip: \"true\"}}\n"+
			"spec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}\n", i)
	}
	if r := imports(t, text); len(r.Losses)+len(r.Notes) > 0 {
		t.Errorf("remarks %v, %v", r.Losses, r.Notes)
	}
}

// Aliases are followed. Those by which a few bytes stand for millions of values,
// or for something without end, are refused before that.
func TestAliasesThatStandForTooMuchAreRefused(t *testing.T) {
	shared := imports(t, "address-pools:\n- {name: a, protocol: layer2, addresses: [192.0.2.0/29]}\n- {name: b, protocol: layer2, addresses: [192.0.2.8/29]}\n"+
		"peers:\n- {peer-address: 198.51.100.1, peer-asn: 1, my-asn: 2, node-selectors: &rack [{match-labels: {rack: a}}]}\n- {peer-address: 198.51.100.2, peer-asn: 1, my-asn: 2, node-selectors: *rack}\n")
	if text := string(shared.Document); strings.Count(text, "nodeSelector: [rack=a]") != 2 {
		t.Errorf("the document is\n%s", text)
	}
	levels := "l0: &l0 {kind: Pod}\n"
	for i := range 8 {
		levels += fmt.Sprintf("l%d: &l%d {kind: List, items: [%s*l%d]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*l%d, ", i), 11), i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"a list in itself":    {"&a {kind: List, items: [*a, *a, *a, *a, *a, *a, *a, *a]}", "line 1: the alias *a stands for something that it is a part of"},
		"in a part of itself": {"address-pools: &a\n- addresses: *a\n", "line 2: the alias *a stands for something that it is a part of"},
		"lists of lists":      {levels + "kind: List\nitems: [*l8]\n", "stand for more than 100000 values"},
		"in a ConfigMap":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {config: '&a {address-pools: *a}'}\n", "data.config: line 1: the alias *a stands"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Import([]Source{{Name: "f", Text: []byte(c.text)}}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
