package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// vocabulary is how one product spells what a Service can ask for.
type vocabulary struct {
	addresses, pools, sharing []string
}

func ownVocabulary() vocabulary {
	return vocabulary{
		addresses: []string{AnnotationAddresses},
		pools:     []string{AnnotationPool},
		sharing:   []string{AnnotationSharingKey},
	}
}

func foreignVocabulary(d config.Dialect) vocabulary {
	switch d {
	case config.MetalLB:
		return vocabulary{
			addresses: []string{"metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs"},
			pools:     []string{"metallb.io/address-pool", "metallb.universe.tf/address-pool"},
			sharing:   []string{"metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip"},
		}
	case config.KubeVIP:
		return vocabulary{addresses: []string{"kube-vip.io/loadbalancerIPs"}}
	case config.Cilium:
		return vocabulary{
			addresses: []string{"lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips"},
			sharing:   []string{"lbipam.cilium.io/sharing-key", "io.cilium/lb-ipam-sharing-key"},
		}
	case config.PureLB:
		return vocabulary{
			addresses: []string{"purelb.io/addresses"},
			pools:     []string{"purelb.io/service-group"},
			sharing:   []string{"purelb.io/allow-shared-ip"},
		}
	}
	return vocabulary{}
}

// said is a wish and where it is written.
type said struct {
	where, value string
}

// wishes collects what a Service says in one respect, in our own words first.
// An empty value says nothing: templates often leave one behind.
func wishes(svc *v1.Service, dialects []config.Dialect, names func(vocabulary) []string) []said {
	var out []said
	words := names(ownVocabulary())
	for _, d := range dialects {
		words = append(words, names(foreignVocabulary(d))...)
	}
	for _, name := range words {
		if value := strings.TrimSpace(svc.Annotations[name]); value != "" {
			out = append(out, said{name, value})
		}
	}
	return out
}

// agreed parses every wish and returns what they all say. Two that differ are
// an error: to prefer one in silence would surprise whoever wrote the other.
func agreed[T any](wishes []said, parse func(string) (T, error), equal func(a, b T) bool) (T, error) {
	var first T
	for i, w := range wishes {
		value, err := parse(w.value)
		if err != nil {
			return *new(T), fmt.Errorf("%s: %w", w.where, err)
		}
		if i > 0 && !equal(first, value) {
			return *new(T), fmt.Errorf("%s says %q, but %s says %q", wishes[0].where, wishes[0].value, w.where, w.value)
		}
		if i == 0 {
			first = value
		}
	}
	return first, nil
}

// wantedAddresses lets spec.loadBalancerIP, which has room for one address
// only, name any of those that the annotations ask for.
func wantedAddresses(svc *v1.Service, dialects []config.Dialect) ([]netip.Addr, error) {
	all := wishes(svc, dialects, func(v vocabulary) []string { return v.addresses })
	spec := strings.TrimSpace(svc.Spec.LoadBalancerIP)
	if spec != "" && len(all) == 0 {
		all = []said{{"spec.loadBalancerIP", spec}}
	}
	want, err := agreed(all, parseAddresses, func(a, b []netip.Addr) bool {
		return slices.Equal(sorted(a), sorted(b))
	})
	if err != nil || spec == "" {
		return want, err
	}
	one, err := netip.ParseAddr(spec)
	if err != nil || !slices.Contains(want, one.Unmap()) {
		return nil, fmt.Errorf("%s says %q, but spec.loadBalancerIP says %q", all[0].where, all[0].value, spec)
	}
	return want, nil
}

func sorted(addresses []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
}

func wantedPools(svc *v1.Service, dialects []config.Dialect) ([]string, error) {
	all := wishes(svc, dialects, func(v vocabulary) []string { return v.pools })
	return agreed(all, func(value string) ([]string, error) { return list(value), nil }, slices.Equal[[]string])
}

func sharingKey(svc *v1.Service, dialects []config.Dialect) (string, error) {
	all := wishes(svc, dialects, func(v vocabulary) []string { return v.sharing })
	return agreed(all, func(value string) (string, error) { return value, nil }, func(a, b string) bool { return a == b })
}

func list(value string) []string {
	var out []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// parseAddresses reads a list of addresses, at most one of each family.
func parseAddresses(value string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, text := range list(value) {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || a.Zone() != "":
			return nil, fmt.Errorf("%q is not an address", text)
		case a.Unmap().IsUnspecified():
			return nil, fmt.Errorf("%s stands for an address by DHCP, which is not supported", text)
		}
		a = a.Unmap()
		for _, other := range out {
			if other.Is4() == a.Is4() {
				return nil, fmt.Errorf("%s and %s are of the same family; a Service has one address of each", other, a)
			}
		}
		out = append(out, a)
	}
	return out, nil
}
