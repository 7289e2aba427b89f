package wish

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestAllFaultsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		spec        string
		want        []string // where, what is said there, and the sentence
	}{
		"none": {annotations: map[string]string{AnnotationAddresses: "2001:DB8::1 ,, ::ffff:192.0.2.1", "lbipam.cilium.io/ips": "192.0.2.1,2001:db8::1"}, spec: "2001:db8:0::1"},
		"several in one list": {
			annotations: map[string]string{AnnotationAddresses: "x,192.0.2.1,fe80::1%eth0,::ffff:0.0.0.0,::,192.0.2.2"},
			want: []string{
				`ccm-baremetal.io/addresses | "x" is no address | ccm-baremetal.io/addresses: "x" is no address`,
				`ccm-baremetal.io/addresses | "fe80::1%eth0" has a zone, which the address of a Service cannot have | ccm-baremetal.io/addresses: "fe80::1%eth0" has a zone, which the address of a Service cannot have`,
				`ccm-baremetal.io/addresses | "::ffff:0.0.0.0" asks DHCP for an address, which is not supported | ccm-baremetal.io/addresses: "::ffff:0.0.0.0" asks DHCP for an address, which is not supported`,
				`ccm-baremetal.io/addresses | "::" asks DHCP for an address, which is not supported | ccm-baremetal.io/addresses: "::" asks DHCP for an address, which is not supported`,
				`ccm-baremetal.io/addresses | 192.0.2.1 and 192.0.2.2 are of the same family, and a Service has one address of each | ccm-baremetal.io/addresses: 192.0.2.1 and 192.0.2.2 are of the same family, and a Service has one address of each`,
			},
		},
		"in several places; with one that is not understood nothing is compared": {
			annotations: map[string]string{AnnotationAddresses: "x", "metallb.io/loadBalancerIPs": "192.0.2.1", "kube-vip.io/loadbalancerIPs": "192.0.2.2", "purelb.io/addresses": "192.0.2.3"},
			spec:        "192.0.2.4",
			want: []string{
				`ccm-baremetal.io/addresses | "x" is no address | ccm-baremetal.io/addresses: "x" is no address`,
				`kube-vip.io/loadbalancerIPs | says "192.0.2.2", and metallb.io/loadBalancerIPs says "192.0.2.1" | metallb.io/loadBalancerIPs says "192.0.2.1", but kube-vip.io/loadbalancerIPs says "192.0.2.2"`,
				`purelb.io/addresses | says "192.0.2.3", and metallb.io/loadBalancerIPs says "192.0.2.1" | metallb.io/loadBalancerIPs says "192.0.2.1", but purelb.io/addresses says "192.0.2.3"`,
			},
		},
		"a spec that is no address beside one": {
			annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.1"}, spec: "x",
			want: []string{`spec.loadBalancerIP | says "x", and metallb.io/loadBalancerIPs says "192.0.2.1" | metallb.io/loadBalancerIPs says "192.0.2.1", but spec.loadBalancerIP says "x"`},
		},
		"a list where there is room for one": {spec: "192.0.2.1,2001:db8::1", want: []string{`spec.loadBalancerIP | "192.0.2.1,2001:db8::1" is no address | spec.loadBalancerIP: "192.0.2.1,2001:db8::1" is no address`}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := Addresses(c.annotations, c.spec, config.Dialects())
			var got []string
			for _, f := range asked.Faults {
				got = append(got, strings.Join([]string{f.Where, f.Why(), f.Error()}, " | "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if (asked.Value == nil) != (len(c.want) > 0) || (asked.Err() == nil) != (len(c.want) == 0) {
				t.Errorf("asks for %v, with the error %v", asked.Value, asked.Err())
			}
		})
	}
}

func TestPoolsAndKeysAgreeToTheLetter(t *testing.T) {
	annotations := map[string]string{
		"metallb.io/address-pool": "a, b", "metallb.universe.tf/address-pool": "a,b,", "purelb.io/service-group": "b,a",
		"metallb.io/allow-shared-ip": "a,b", "lbipam.cilium.io/sharing-key": "a, b",
	}
	if pools := Pools(annotations, config.Dialects()); len(pools.Faults) != 1 || pools.Faults[0].Where != "purelb.io/service-group" || pools.Faults[0].Dialect != config.PureLB {
		t.Errorf("pools %+v", pools)
	}
	if key := SharingKey(annotations, config.Dialects()); len(key.Faults) != 1 || key.Faults[0].Where != "lbipam.cilium.io/sharing-key" {
		t.Errorf("key %+v", key)
	}
}

// Whoever is not listened to says nothing, and we are always listened to.
func TestOnlyTheDialectsThatAreNamedAreHeard(t *testing.T) {
	annotations := map[string]string{AnnotationPool: " ", "purelb.io/service-group": "a", "metallb.io/address-pool": "b"}
	if pools := Pools(annotations, []config.Dialect{config.PureLB}); !slices.Equal(pools.Value, []string{"a"}) || len(pools.Said) != 1 {
		t.Errorf("%+v", pools)
	}
	if annotations[AnnotationPool] = "c"; !slices.Equal(Pools(annotations, nil).Value, []string{"c"}) {
		t.Errorf("%+v", Pools(annotations, nil))
	}
}

func TestEveryDialectHasWordsOfItsOwn(t *testing.T) {
	all := Words(nil)
	for _, d := range config.Dialects() {
		more := Words([]config.Dialect{d})[len(Words(nil)):]
		if len(more) == 0 {
			t.Errorf("%s has no words", d)
		}
		all = append(all, more...)
	}
	if slices.Sort(all); len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("a word is there twice: %q", all)
	}
}

func FuzzAddresses(f *testing.F) {
	for _, seed := range []string{"", ",", "192.0.2.1", "192.0.2.1,2001:db8::1", "::ffff:192.0.2.1", "fe80::1%eth0", "0.0.0.0", "::ffff:0.0.0.0", "192.0.2.1,192.0.2.1"} {
		f.Add(seed, "")
	}
	f.Add("192.0.2.1,2001:db8::1", "2001:db8::1")
	f.Fuzz(func(t *testing.T, text, spec string) {
		asked := Addresses(map[string]string{AnnotationAddresses: text}, spec, nil)
		got := asked.Value
		if len(asked.Faults) > 0 && got != nil {
			t.Fatalf("both %v and %v", got, asked.Faults)
		}
		if len(got) > 2 || (len(got) == 2 && got[0].Is4() == got[1].Is4()) {
			t.Fatalf("more than one address of a family: %v", got)
		}
		if slices.ContainsFunc(got, func(a netip.Addr) bool { return !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() }) {
			t.Fatalf("%v are no addresses for a Service", got)
		}
	})
}
