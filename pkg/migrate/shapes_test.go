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
