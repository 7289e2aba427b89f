package service

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

func TestRequestSaysAllThatMatters(t *testing.T) {
	policy := v1.IPFamilyPolicyRequireDualStack
	svc := lb("gw", given(time.Hour, "192.0.2.10"), func(svc *v1.Service) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: "::ffff:192.0.2.11"})
		svc.CreationTimestamp = metav1.NewTime(noon)
		svc.Labels = map[string]string{"expose": "public"}
		svc.Annotations = map[string]string{
			wish.AnnotationAddresses:  " 192.0.2.12, 2001:DB8::1 ",
			wish.AnnotationPool:       "gold, silver",
			wish.AnnotationSharingKey: "edge",
		}
		svc.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol}
		svc.Spec.IPFamilyPolicy = &policy
		svc.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
		svc.Spec.Selector = map[string]string{"b": "2", "a": "1"}
		svc.Spec.Ports = []v1.ServicePort{{Port: 53, Protocol: v1.ProtocolUDP}, {Port: 80}}
	})
	got := request(svc, map[string]string{"tier": "web"}, config.Dialects())
	want := ipam.Request{
		Key: "web/gw", Namespace: "web", Name: "gw", Created: noon,
		Labels: map[string]string{"expose": "public"}, NamespaceLabels: map[string]string{"tier": "web"},
		Families: []ipam.Family{ipam.IPv6, ipam.IPv4}, Policy: ipam.RequireDualStack,
		Addresses:  []netip.Addr{netip.MustParseAddr("192.0.2.12"), netip.MustParseAddr("2001:db8::1")},
		Pools:      []string{"gold", "silver"},
		SharingKey: "edge",
		Ports:      []ipam.Port{{Protocol: "UDP", Number: 53}, {Protocol: "TCP", Number: 80}},
		Local:      true, Selector: "a=1,b=2",
		Held:      []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")},
		Given:     []config.Confirmation{{Address: netip.MustParseAddr("192.0.2.10"), Pool: "public"}},
		HeldSince: allocated(svc).LastTransitionTime.Time,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

// TestWishes reads what Services of other products say. An empty want means
// that the wish is not understood, and invalid is part of what is said then.
func TestWishes(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		spec        string // loadBalancerIP
		dialects    []config.Dialect
		addresses   string
		pools, key  string
		invalid     string
	}{
		"nothing":                        {},
		"ours":                           {annotations: map[string]string{wish.AnnotationAddresses: "192.0.2.1", wish.AnnotationPool: "a,b", wish.AnnotationSharingKey: "k"}, addresses: "192.0.2.1", pools: "a,b", key: "k"},
		"empty values":                   {annotations: map[string]string{wish.AnnotationAddresses: " ", wish.AnnotationPool: "", wish.AnnotationSharingKey: ""}},
		"spec.loadBalancerIP":            {spec: "192.0.2.1", addresses: "192.0.2.1"},
		"spec and annotation agree":      {spec: "192.0.2.1", annotations: map[string]string{wish.AnnotationAddresses: "2001:db8::1,192.0.2.1"}, addresses: "2001:db8::1,192.0.2.1"},
		"spec and annotation differ":     {spec: "192.0.2.2", annotations: map[string]string{wish.AnnotationAddresses: "192.0.2.1"}, invalid: `ccm-baremetal.io/addresses says "192.0.2.1", but spec.loadBalancerIP says "192.0.2.2"`},
		"metallb.io":                     {annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.1", "metallb.io/address-pool": "a", "metallb.io/allow-shared-ip": "k"}, addresses: "192.0.2.1", pools: "a", key: "k"},
		"metallb.universe.tf":            {annotations: map[string]string{"metallb.universe.tf/loadBalancerIPs": "192.0.2.1,2001:db8::1", "metallb.universe.tf/address-pool": "a", "metallb.universe.tf/allow-shared-ip": "k"}, addresses: "192.0.2.1,2001:db8::1", pools: "a", key: "k"},
		"kube-vip":                       {annotations: map[string]string{"kube-vip.io/loadbalancerIPs": "192.0.2.1"}, addresses: "192.0.2.1"},
		"kube-vip by DHCP":               {annotations: map[string]string{"kube-vip.io/loadbalancerIPs": "0.0.0.0"}, invalid: `kube-vip.io/loadbalancerIPs: "0.0.0.0" asks DHCP for an address`},
		"DHCP in the form of IPv6":       {annotations: map[string]string{wish.AnnotationAddresses: "::ffff:0.0.0.0"}, invalid: `ccm-baremetal.io/addresses: "::ffff:0.0.0.0" asks DHCP for an address`},
		"cilium":                         {annotations: map[string]string{"lbipam.cilium.io/ips": "192.0.2.1", "lbipam.cilium.io/sharing-key": "k"}, addresses: "192.0.2.1", key: "k"},
		"old cilium":                     {annotations: map[string]string{"io.cilium/lb-ipam-ips": "192.0.2.1", "io.cilium/lb-ipam-sharing-key": "k"}, addresses: "192.0.2.1", key: "k"},
		"purelb":                         {annotations: map[string]string{"purelb.io/addresses": "192.0.2.1", "purelb.io/service-group": "a", "purelb.io/allow-shared-ip": "k"}, addresses: "192.0.2.1", pools: "a", key: "k"},
		"two dialects agree":             {annotations: map[string]string{"metallb.io/loadBalancerIPs": "2001:db8:0::1, 192.0.2.1", "lbipam.cilium.io/ips": "192.0.2.1,2001:db8::1"}, addresses: "2001:db8::1,192.0.2.1"},
		"two dialects differ":            {annotations: map[string]string{"metallb.io/address-pool": "a", "purelb.io/service-group": "b"}, invalid: `metallb.io/address-pool says "a", but purelb.io/service-group says "b"`},
		"two sharing keys":               {annotations: map[string]string{wish.AnnotationSharingKey: "a", "metallb.io/allow-shared-ip": "b"}, invalid: `ccm-baremetal.io/sharing-key says "a", but metallb.io/allow-shared-ip says "b"`},
		"a dialect that is switched off": {annotations: map[string]string{"metallb.io/address-pool": "a"}, dialects: []config.Dialect{config.Cilium}},
		"no address":                     {annotations: map[string]string{wish.AnnotationAddresses: "192.0.2.300"}, invalid: `ccm-baremetal.io/addresses: "192.0.2.300" is no address`},
		"an address of a link":           {annotations: map[string]string{wish.AnnotationAddresses: "fe80::1%eth0"}, invalid: `"fe80::1%eth0" has a zone`},
		"no address in spec":             {spec: "x", invalid: `spec.loadBalancerIP: "x" is no address`},
		"several addresses in spec":      {spec: "192.0.2.1,2001:db8::1", invalid: `spec.loadBalancerIP: "192.0.2.1,2001:db8::1" is no address`},
		"the first fault of each kind":   {annotations: map[string]string{wish.AnnotationAddresses: "x,y", "metallb.io/loadBalancerIPs": "z"}, invalid: `ccm-baremetal.io/addresses: "x" is no address`},
		"two of a family":                {annotations: map[string]string{wish.AnnotationAddresses: "192.0.2.1,192.0.2.2"}, invalid: "192.0.2.1 and 192.0.2.2 are of the same family"},
		"neither true nor false":         {annotations: map[string]string{AnnotationIgnore: "maybe"}, invalid: `ccm-baremetal.io/ignore: "maybe" is neither true nor false`},
		"all faults at once":             {annotations: map[string]string{wish.AnnotationAddresses: "x", AnnotationIgnore: "y"}, invalid: `"x" is no address; ccm-baremetal.io/ignore`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.dialects == nil {
				c.dialects = config.Dialects()
			}
			svc := lb("s", func(svc *v1.Service) { svc.Annotations, svc.Spec.LoadBalancerIP = c.annotations, c.spec })
			got := request(svc, nil, c.dialects)
			var addresses []string
			for _, a := range got.Addresses {
				addresses = append(addresses, a.String())
			}
			if strings.Join(addresses, ",") != c.addresses || strings.Join(got.Pools, ",") != c.pools || got.SharingKey != c.key {
				t.Errorf("addresses %v, pools %v, key %q", got.Addresses, got.Pools, got.SharingKey)
			}
			if (c.invalid == "") != (got.Invalid == "") || !strings.Contains(got.Invalid, c.invalid) {
				t.Errorf("invalid is %q, want %q", got.Invalid, c.invalid)
			}
		})
	}
}

func TestWhoseServicesAreOurs(t *testing.T) {
	class := func(name string) func(*v1.Service) {
		return func(svc *v1.Service) { svc.Spec.LoadBalancerClass = &name }
	}
	ignore := func(value string) func(*v1.Service) {
		return func(svc *v1.Service) { svc.Annotations = map[string]string{AnnotationIgnore: value} }
	}
	nodePort := func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeNodePort }
	for name, c := range map[string]struct {
		svc       *v1.Service
		unclassed bool
		want      bool
	}{
		"no class":                  {lb("s"), true, true},
		"no class, left to others":  {lb("s"), false, false},
		"our class":                 {lb("s", class("ccm-baremetal.io/announcer")), false, true},
		"another class":             {lb("s", class("example.com/x")), true, false},
		"another type":              {lb("s", nodePort), true, false},
		"ignored":                   {lb("s", ignore("true")), true, false},
		"not ignored":               {lb("s", ignore("false")), true, true},
		"ignored in unclear terms":  {lb("s", ignore("maybe")), true, true},
		"our class, but ignored":    {lb("s", class("ccm-baremetal.io/announcer"), ignore("1")), true, false},
		"ignore without any value":  {lb("s", ignore("")), true, true},
		"our class on another type": {lb("s", class("ccm-baremetal.io/announcer"), nodePort), true, false},
	} {
		rules := config.Services{LoadBalancerClass: "ccm-baremetal.io/announcer", HandleUnclassed: c.unclassed}
		if got := addressed(c.svc, rules); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUnknownAnnotationsAreThoseUnderOurPrefixOnly(t *testing.T) {
	svc := lb("s", func(svc *v1.Service) {
		svc.Annotations = map[string]string{
			wish.AnnotationPool: "a", AnnotationIgnore: "false", wish.AnnotationAddresses: "", wish.AnnotationSharingKey: "k",
			"ccm-baremetal.io/pools": "", "ccm-baremetal.io/address": "", "example.com/pools": "", "xccm-baremetal.io/y": "",
		}
	})
	want := []string{"ccm-baremetal.io/address", "ccm-baremetal.io/pools"}
	if got := unknownAnnotations(svc); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
