package service

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func allocatedFrom(list ...string) ipam.Decision {
	return ipam.Decision{Addresses: addrs(list...), Reason: ipam.Allocated, Message: verdict(list...)}
}

func refusedAs(reason ipam.Reason) ipam.Decision {
	return ipam.Decision{Reason: reason, Message: "no"}
}

func finalized(svc *v1.Service) {
	svc.Finalizers = []string{"example.com/other", helpers.LoadBalancerCleanupFinalizer}
}

// others is what other controllers keep in a status.
func others(svc *v1.Service) {
	svc.Status.Conditions = append(svc.Status.Conditions, metav1.Condition{
		Type: "example.com/Ready", Status: metav1.ConditionTrue, Reason: "Ready", Message: "ready"})
}

// announcing is what announcers say in a status.
func announcing(svc *v1.Service) {
	svc.Status.Conditions = append(svc.Status.Conditions, metav1.Condition{
		Type: config.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: "Layer2", Message: "from n1"})
}

// TestPatch applies each patch as the API server would, and looks at the
// outcome: addresses, our condition, finalizers. An empty want: no patch.
func TestPatch(t *testing.T) {
	proxy := v1.LoadBalancerIPModeProxy
	for name, c := range map[string]struct {
		svc  *v1.Service
		want func(*v1.Service) status
		out  string
	}{
		"a new service":              {lb("s"), grant(allocatedFrom("192.0.2.10")), `192.0.2.10/VIP True Allocated`},
		"both families":              {lb("s"), grant(allocatedFrom("192.0.2.10", "2001:db8::1")), `192.0.2.10/VIP 2001:db8::1/VIP True Allocated`},
		"a service that has to wait": {lb("s"), grant(refusedAs(ipam.PoolExhausted)), `False PoolExhausted`},
		"nothing new":                {lb("s", given(time.Hour, "192.0.2.10")), grant(allocatedFrom("192.0.2.10")), ``},
		"no mode is as good as VIP":  {lb("s", given(time.Hour, "192.0.2.10"), func(svc *v1.Service) { svc.Status.LoadBalancer.Ingress[0].IPMode = nil }), grant(allocatedFrom("192.0.2.10")), ``},
		"another mode is not":        {lb("s", given(time.Hour, "192.0.2.10"), func(svc *v1.Service) { svc.Status.LoadBalancer.Ingress[0].IPMode = &proxy }), grant(allocatedFrom("192.0.2.10")), `192.0.2.10/VIP True Allocated`},
		"a cleared status":           {lb("s", given(time.Hour, "192.0.2.10"), showing()), grant(allocatedFrom("192.0.2.10")), `192.0.2.10/VIP True Allocated`},
		"another address":            {lb("s", given(time.Hour, "192.0.2.10")), grant(allocatedFrom("192.0.2.11")), `192.0.2.11/VIP True Allocated`},
		"an address lost":            {lb("s", given(time.Hour, "192.0.2.10")), grant(refusedAs(ipam.PoolExhausted)), `False PoolExhausted`},
		"a foreign address":          {lb("s", showing("203.0.113.1")), grant(ipam.Decision{Addresses: addrs("203.0.113.1"), Foreign: true, Reason: ipam.ForeignAddress}), `203.0.113.1/ False ForeignAddress`},
		"a foreign host":             {lb("s", func(svc *v1.Service) { svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{Hostname: "h"}} }), grant(ipam.Decision{Foreign: true, Reason: ipam.ForeignAddress}), `h/ False ForeignAddress`},
		"a node's address":           {lb("s", given(time.Hour, "192.0.2.10")), grant(ipam.Decision{Addresses: addrs("192.0.2.10"), Reason: ipam.NodeAddress}), `192.0.2.10/VIP False NodeAddress`},
		"with conditions of others":  {lb("s", others, announcing), grant(allocatedFrom("192.0.2.10")), `192.0.2.10/VIP True Allocated +others +announced`},
		"with a left-over finalizer": {lb("s", finalized, given(time.Hour, "192.0.2.10")), grant(allocatedFrom("192.0.2.10")), `192.0.2.10/VIP True Allocated example.com/other`},
		"leaving":                    {lb("s", given(time.Hour, "192.0.2.10"), announcing), departing, ``},
		"leaving with a finalizer":   {lb("s", finalized, given(time.Hour, "192.0.2.10")), departing, `192.0.2.10/VIP True Allocated example.com/other`},
		"abandoned":                  {lb("s", given(time.Hour, "192.0.2.10"), finalized, others), abandon("192.0.2.10"), `+others example.com/other`},
		"abandoned while announced":  {lb("s", given(time.Hour, "192.0.2.10"), announcing, others), abandon("192.0.2.10"), `+others`},
		"abandoned, announced late":  {lb("s", showing("203.0.113.1"), announcing, others), abandon(), `203.0.113.1/ +others`},
		"abandoned long ago":         {lb("s", showing("203.0.113.1"), others), abandon(), ``},
		"abandoned, but taken over":  {lb("s", given(time.Hour, "192.0.2.10"), showing("203.0.113.1")), abandon("192.0.2.10"), `203.0.113.1/`},
		"abandoned and never ours":   {lb("s", showing("192.0.2.10"), finalized), abandon("192.0.2.10"), ``},
		"untouched":                  {lb("s", showing("192.0.2.10"), finalized), untouched, ``},
	} {
		t.Run(name, func(t *testing.T) {
			c.svc.ResourceVersion = "7"
			body, err := patch(c.svc, c.want(c.svc))
			if err != nil {
				t.Fatal(err)
			}
			if c.out == "" {
				if body != nil {
					t.Errorf("an unnecessary patch: %s", body)
				}
				return
			}
			if !strings.Contains(string(body), `"resourceVersion":"7"`) {
				t.Errorf("a patch without a version: %s", body)
			}
			after := apply(t, c.svc, body)
			if got := show(after); got != c.out {
				t.Errorf("got %s, want %s, by %s", got, c.out, body)
			}
			if again, _ := patch(after, c.want(after)); again != nil {
				t.Errorf("the outcome would be patched again: %s", again)
			}
		})
	}
}

func grant(d ipam.Decision) func(*v1.Service) status {
	return func(svc *v1.Service) status { return granted(svc, d, noon) }
}

func abandon(given ...string) func(*v1.Service) status {
	return func(svc *v1.Service) status { return abandoned(svc, addrs(given...)) }
}

func apply(t *testing.T, svc *v1.Service, body []byte) *v1.Service {
	t.Helper()
	before, err := json.Marshal(svc)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(before, body, &v1.Service{})
	if err != nil {
		t.Fatal(err)
	}
	after := &v1.Service{}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
	return after
}

func show(svc *v1.Service) string {
	var out []string
	for _, entry := range svc.Status.LoadBalancer.Ingress {
		mode := ""
		if entry.IPMode != nil {
			mode = string(*entry.IPMode)
		}
		out = append(out, entry.IP+entry.Hostname+"/"+mode)
	}
	if c := allocated(svc); c != nil {
		out = append(out, string(c.Status), c.Reason)
	}
	for _, c := range svc.Status.Conditions {
		switch c.Type {
		case ConditionAllocated:
		case config.ConditionAnnounced:
			out = append(out, "+announced")
		default:
			out = append(out, "+others")
		}
	}
	return strings.Join(append(out, svc.Finalizers...), " ")
}

func TestTransitionTimeTellsSinceWhenAnAddressIsHeld(t *testing.T) {
	svc := lb("s", given(time.Hour, "192.0.2.10"))
	since := allocated(svc).LastTransitionTime
	for name, c := range map[string]struct {
		svc *v1.Service
		d   ipam.Decision
		old bool
	}{
		"another message":     {svc, ipam.Decision{Addresses: addrs("192.0.2.10"), Reason: ipam.AddressOutsidePools}, true},
		"a family more":       {svc, allocatedFrom("192.0.2.10", "2001:db8::1"), true},
		"another address":     {svc, allocatedFrom("192.0.2.11"), false},
		"no address any more": {svc, refusedAs(ipam.PoolExhausted), false},
		"a first address":     {lb("s"), allocatedFrom("192.0.2.10"), false},
	} {
		want := metav1.NewTime(noon)
		if c.old {
			want = since
		}
		if got := condition(c.svc, c.d, noon).LastTransitionTime; !got.Equal(&want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	waiting := lb("s")
	waiting.Status.Conditions = []metav1.Condition{*condition(waiting, refusedAs(ipam.PoolExhausted), noon)}
	if got := condition(waiting, refusedAs(ipam.QuotaExceeded), noon.Add(time.Hour)).LastTransitionTime; !got.Time.Equal(noon) {
		t.Errorf("waiting for another reason: %s", got)
	}
}

func TestNewsAreTellingOnlyOfChanges(t *testing.T) {
	unmet := allocatedFrom("192.0.2.10")
	unmet.Unmet, unmet.Message = ipam.AddressInUse, "the request cannot be met"
	partial := ipam.Decision{Addresses: addrs("192.0.2.10"), Reason: ipam.PartialFamilies, Unmet: ipam.PoolExhausted, Message: "half"}
	told := func(d ipam.Decision) func(*v1.Service) {
		return func(svc *v1.Service) {
			svc.Status.LoadBalancer.Ingress = ingress(svc, d)
			svc.Status.Conditions = []metav1.Condition{*condition(svc, d, noon)}
		}
	}
	mistyped := func(svc *v1.Service) { svc.Annotations = map[string]string{"ccm-baremetal.io/x": ""} }
	for name, c := range map[string]struct {
		svc    *v1.Service
		answer Answer
		want   string
	}{
		"an address":                    {lb("s"), Answer{Decision: allocatedFrom("192.0.2.10")}, "Normal Allocated"},
		"the same again":                {lb("s", told(allocatedFrom("192.0.2.10"))), Answer{Decision: allocatedFrom("192.0.2.10")}, ""},
		"another address":               {lb("s", told(allocatedFrom("192.0.2.10"))), Answer{Decision: allocatedFrom("192.0.2.11")}, "Normal Allocated"},
		"none":                          {lb("s"), Answer{Decision: refusedAs(ipam.NoPool)}, "Warning NoPool"},
		"none still":                    {lb("s", told(refusedAs(ipam.NoPool))), Answer{Decision: ipam.Decision{Reason: ipam.NoPool, Message: "in other words"}}, ""},
		"none for another reason":       {lb("s", told(refusedAs(ipam.NoPool))), Answer{Decision: refusedAs(ipam.PoolExhausted)}, "Warning PoolExhausted"},
		"a request that is not met":     {lb("s", told(allocatedFrom("192.0.2.10"))), Answer{Decision: unmet}, "Warning AddressInUse"},
		"a request that is not met yet": {lb("s", told(unmet)), Answer{Decision: unmet}, ""},
		"one family":                    {lb("s"), Answer{Decision: partial}, "Warning PartialFamilies"},
		"one family still":              {lb("s", told(partial)), Answer{Decision: partial}, ""},
		"a duplicate":                   {lb("s", told(allocatedFrom("192.0.2.10"))), Answer{Decision: allocatedFrom("192.0.2.11"), Duplicate: "d"}, "Warning DuplicateAddress, Normal Allocated"},
		"a mistyped annotation":         {lb("s", mistyped), Answer{Decision: allocatedFrom("192.0.2.10")}, "Normal Allocated, Warning UnknownAnnotation"},
		"a mistyped annotation still":   {lb("s", mistyped, told(allocatedFrom("192.0.2.10"))), Answer{Decision: allocatedFrom("192.0.2.10")}, ""},
	} {
		var got []string
		for _, e := range news(c.svc, granted(c.svc, c.answer.Decision, noon), c.answer) {
			got = append(got, e.kind+" "+e.reason)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}
