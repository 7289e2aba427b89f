package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func TestWaitersNameThePoolsThatWouldServeThem(t *testing.T) {
	a := New()
	c, err := config.Load([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + `
pools:
- {name: one, addresses: [192.0.2.1]}
- {name: two, addresses: [198.51.100.1], maxPerNamespace: 1}
- {name: hand, addresses: [203.0.113.1], autoAssign: false}
`))
	if err != nil {
		t.Fatal(err)
	}
	a.Configure(c.Pools, Cluster{})
	now := time.Unix(1000, 0)
	for i, r := range []Request{
		{Key: "web/first"}, {Key: "web/second"}, {Key: "web/third"}, {Key: "other/picky", Pools: []string{"one"}},
		{Key: "web/no-such-pool", Pools: []string{"nowhere"}}, {Key: "other/asked", Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1")}},
	} {
		r.Namespace, r.Name, _ = strings.Cut(string(r.Key), "/")
		r.Families, r.Created = []Family{IPv4}, time.Unix(int64(i), 0)
		a.Decide(r, now)
	}
	var got []string
	for _, w := range a.Waiters() {
		got = append(got, fmt.Sprintf("%s %s %v", w.Key, w.Decision.Reason, w.Pools))
	}
	want := []string{
		"web/third PoolExhausted [one two]", "other/picky PoolExhausted [one]",
		"web/no-such-pool NoPool []", "other/asked AddressInUse [two]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
