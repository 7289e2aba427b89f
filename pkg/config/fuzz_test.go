package config_test

import (
	"errors"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// shapes are configurations as people have them for other products: pools,
// peers, policies and values in foreign words, some of them broken.
var shapes = []string{
	"address-pools:\n- {name: default, protocol: layer2, addresses: [198.51.100.240-198.51.100.250]}\n",
	"peers:\n- {peer-address: 198.51.100.2, peer-asn: 64501, my-asn: 64500 64500}\naddress-pools:\n- {name: a, avoid-buggy-ips: true, addresses: [203.0.113.0/24]}\n",
	"configInline:\n  address-pools: [{name: default, cidr: [203.0.113.0/24]}]\n---\narpAddresses: 198.51.100.240/30\n",
	"apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: lan}\nspec: {addresses: [198.51.100.32-198.51.100.63, 198.51.100.96/28]}\n",
	"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kubevip}\ndata:\n  range-global: 198.51.100.200-198.51.100.219\n  cidr-dhcp: 0.0.0.0/32\n",
	"apiVersion: cilium.io/v2\nkind: CiliumLoadBalancerIPPool\nspec: {blocks: [{start: 198.51.100.64, stop: 198.51.100.79}, {cidr: \"2001:db8:51:f0::/124\"}]}\n",
	"metal_lb_ip_range: \"198.51.100.210-198.51.100.220\"\nvip_lb_ip_range: \"cidr-global: 198.51.100.221/30\"\n",
	head + "pools: [{addresses: [198.51.100.200/28, 198.51.100.180-185, 198.51.100.010, '2001:db8::/129', 'fe80::/64', '0.0.0.0/0']}]\n",
	head + "pools: [{addresses: ['198.51.100.0/24,203.0.113.0/28', ' 203.0.113.40 - 203.0.113.45 ', '2001:DB8::5-2001:db8::f']}]\n",
	head + "pools:\n- addresses: &a [10.0.0.0/8]\n- addresses: *a\n- <<: {name: b}\n",
	"a: &a [*a]\n",
	"\ufeff{\"pools\": [{}, null, [], \"\"], \"apiVersion\": \"\", \"kind\": 1}\r\n",
	"? {a: b}\n: c\n",
	"\tpools:\n",
	"!!binary aGVsbG8=\n",
	"!!str 5: !!int \"7\"\n",
	"%YAML 1.1\n---\na: !<tag:x> b\n",
}

// FuzzLoad: nothing panics; what is accepted keeps every promise of Config and
// of the schema; what is refused says why, once and in order.
func FuzzLoad(f *testing.F) {
	for _, archive := range goldens(f) {
		f.Add(archive.Files[0].Data)
	}
	for _, shape := range shapes {
		f.Add([]byte(shape))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		_, _, _ = config.Unwrap(document)
		c, err := config.Load(document)
		again, errAgain := config.Load(document)
		if err != nil {
			checkFaults(t, err)
			if err.Error() != errAgain.Error() {
				t.Errorf("two readings, two results:\n%v\n%v", err, errAgain)
			}
			return
		}
		if render(c) != render(again) || c.Hash != again.Hash {
			t.Error("two readings, two results")
		}
		checkConfig(t, c)
		if fault := schemaFault(document); fault != "" {
			t.Errorf("by the schema: %s", fault)
		}
	})
}

// FuzzAddressItem: an entry of a list of addresses is accepted and is what it
// says, or is refused with a reason; and it never matters what surrounds it.
func FuzzAddressItem(f *testing.F) {
	for _, item := range []string{
		"192.0.2.10", "192.0.2.0/28", "192.0.2.10 - 192.0.2.20", "2001:db8::/64", "2001:db8::a-2001:db8::f", "::ffff:192.0.2.1",
		"192.0.2.10-20", "192.0.2.1,192.0.2.2", "192.0.2.010", "fe80::1%eth0", "192.0.2.1.192.0.2.2", "0.0.0.0/0", "1-1-1/1/1",
	} {
		f.Add(item)
	}
	f.Fuzz(func(t *testing.T, item string) {
		c, err := config.Load([]byte(documentWith(item)))
		if err != nil {
			checkFaults(t, err)
			return
		}
		checkConfig(t, c)
		var written []string
		for _, r := range c.Pools[0].Ranges {
			written = append(written, r.String())
		}
		if got := load(t, documentWith(written...)); !slices.Equal(got.Pools[0].Ranges, c.Pools[0].Ranges) {
			t.Errorf("%q: %v when written as ranges, %v", item, got.Pools[0].Ranges, c.Pools[0].Ranges)
		}
	})
}

func checkFaults(t *testing.T, err error) {
	t.Helper()
	var faults config.Errors
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("no Errors: %v", err)
	}
	seen := map[config.Error]bool{}
	line := 1
	for _, fault := range faults {
		if fault.Message == "" || fault.Line < line || seen[fault] {
			t.Errorf("empty, out of order or repeated: %+v", fault)
		}
		line, seen[fault] = fault.Line, true
	}
}

func checkConfig(t *testing.T, c config.Config) {
	t.Helper()
	if len(c.Pools) == 0 || len(c.Advertisements) == 0 || len(c.Hash) != 12 {
		t.Errorf("got %+v", c)
	}
	names := map[string]bool{}
	var all []netipx.IPRange
	for _, p := range c.Pools {
		if p.Name == "" || names[p.Name] {
			t.Errorf("no name or a repeated one: %q", p.Name)
		}
		names[p.Name] = true
		all = append(all, p.Ranges...)
		ascending(t, p.Ranges)
		for _, r := range p.Ranges {
			checkRange(t, c, p, r)
		}
		for _, r := range p.Reservations {
			for _, reserved := range r.Ranges {
				if !p.Contains(reserved.From()) || !p.Contains(reserved.To()) {
					t.Errorf("%s is reserved and not in the pool", reserved)
				}
			}
		}
	}
	for _, m := range c.Nodes.Inventory {
		if (m.Name == "") == (len(m.Selector) == 0) {
			t.Errorf("an entry for nobody, or for everybody: %+v", m)
		}
		for _, a := range m.Addresses {
			if _, taken := c.PoolOf(a); taken {
				t.Errorf("%s is a machine's and in a pool", a)
			}
		}
	}
	slices.SortFunc(all, func(a, b netipx.IPRange) int { return a.From().Compare(b.From()) })
	ascending(t, all)
}

func checkRange(t *testing.T, c config.Config, p config.Pool, r netipx.IPRange) {
	t.Helper()
	if !r.IsValid() || config.SpecialPurpose(r.From()) != "" || config.SpecialPurpose(r.To()) != "" {
		t.Errorf("%s cannot be given out", r)
	}
	if found, ok := c.PoolOf(r.To()); !ok || found.Name != p.Name {
		t.Errorf("%s is of pool %q, not %q", r.To(), found.Name, p.Name)
	}
	if p.Size(config.FamilyOf(r.From())) == 0 {
		t.Errorf("a pool with %s has the size 0", r)
	}
}

// ascending checks that ranges are in order and have nothing in common.
func ascending(t *testing.T, ranges []netipx.IPRange) {
	t.Helper()
	for i := 1; i < len(ranges); i++ {
		if ranges[i].From().Compare(ranges[i-1].To()) <= 0 {
			t.Errorf("%s does not come after %s", ranges[i], ranges[i-1])
		}
	}
}
