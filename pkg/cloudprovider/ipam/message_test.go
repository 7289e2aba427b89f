package ipam

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Announcers announce only what the message confirms.
func TestMessageConfirmsEveryAddress(t *testing.T) {
	pools := func(document string) []config.Pool {
		c, err := config.Load([]byte("apiVersion: ccm-baremetal.io/v1alpha1\nkind: CloudConfig\n" + document))
		if err != nil {
			t.Fatal(err)
		}
		return c.Pools
	}
	now := time.Unix(1_900_000_000, 0)
	a := New()
	a.Configure(pools("pools: [{name: a, addresses: [192.0.2.10-192.0.2.12, \"2001:db8::10-2001:db8::12\"]}]"), Cluster{})
	request := Request{
		Key: "web/s", Namespace: "web", Name: "s",
		Families: []Family{IPv6, IPv4}, Policy: RequireDualStack,
	}
	check := func(what string, r Request, reason Reason) Decision {
		t.Helper()
		d := a.Decide(r, now)
		if d.Reason != reason || len(d.Addresses) != 2 {
			t.Fatalf("%s: got %+v, want two addresses and %s", what, d, reason)
		}
		for _, address := range d.Addresses {
			if !confirms(d.Message, address) {
				t.Errorf("%s: %q does not confirm %s", what, d.Message, address)
			}
		}
		return d
	}
	d := check("allocated", request, Allocated)
	request.Held, request.Given, request.HeldSince = d.Addresses, config.Confirmed(d.Message), now
	asking := request
	asking.Addresses = []netip.Addr{netip.MustParseAddr("2001:db8:66::1"), netip.MustParseAddr("198.51.100.66")}
	if d := check("asking for the impossible", asking, Allocated); confirms(d.Message, asking.Addresses[0]) || confirms(d.Message, asking.Addresses[1]) {
		t.Errorf("%q confirms what was refused", d.Message)
	}
	a.Configure(pools("pools: [{name: b, addresses: [203.0.113.1]}]"), Cluster{})
	check("kept outside the pools", request, AddressOutsidePools)
}

func confirms(message string, address netip.Addr) bool {
	return slices.Contains(addressesOf(config.Confirmed(message)), address)
}
