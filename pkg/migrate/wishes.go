package migrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The annotations of the products that are understood here, by what they ask for.
var (
	addressKeys = []string{
		"metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs", "kube-vip.io/loadbalancerIPs",
		"lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips", "purelb.io/addresses",
	}
	poolKeys    = []string{"metallb.io/address-pool", "metallb.universe.tf/address-pool", "purelb.io/service-group"}
	sharingKeys = []string{
		"metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip", "lbipam.cilium.io/sharing-key",
		"io.cilium/lb-ipam-sharing-key", "purelb.io/allow-shared-ip",
	}
)

// wishes looks at what Services ask for by annotations that are understood, and
// whether that can be fulfilled. The pools must have their new names.
func (im *importer) wishes() {
	for _, o := range im.of("v1", "Service") {
		spec, annotations := o.part("spec"), o.object("metadata").object("annotations")
		if spec.text("type") != "LoadBalancer" {
			continue
		}
		said := func(keys []string) []string {
			return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return annotations.text(key) == "" })
		}
		annotations.checkAgreement(o, said(addressKeys), sameAddresses)
		annotations.checkAgreement(o, said(poolKeys), func(a, b string) bool { return slices.Equal(items(a), items(b)) })
		annotations.checkAgreement(o, said(sharingKeys), func(a, b string) bool { return a == b })
		for _, key := range said(addressKeys) {
			annotations.checkAddresses(o, key, spec.text("loadBalancerIP"))
		}
		if len(said(addressKeys)) == 0 {
			_, faults := addresses(spec.text("loadBalancerIP"))
			o.loseWishes("spec.loadBalancerIP", faults)
		}
		for _, key := range said(poolKeys) {
			product := productMetalLB
			if strings.HasPrefix(key, "purelb.io/") {
				product = productPureLB
			}
			im.checkPools(o, items(annotations.text(key)), key, product)
		}
	}
}

// unfulfilled is what becomes of a Service whose wishes cannot be understood.
const unfulfilled = "the Service keeps the address that it has, and waits if it has none"

// items returns what a list with commas has.
func items(text string) []string {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// addresses returns what a list of addresses asks for, and why that cannot be
// fulfilled.
func addresses(text string) (out []netip.Addr, faults []string) {
	for _, item := range items(text) {
		a, err := netip.ParseAddr(item)
		zone := a.Zone()
		a = a.Unmap()
		same := slices.IndexFunc(out, func(other netip.Addr) bool { return other.Is4() == a.Is4() })
		switch {
		case err != nil:
			faults = append(faults, fmt.Sprintf("%q is no address", item))
		case zone != "":
			faults = append(faults, fmt.Sprintf("%q has a zone, which the address of a Service cannot have", item))
		case a.IsUnspecified():
			faults = append(faults, fmt.Sprintf("%q asks DHCP for an address, which is not supported", item))
		case same >= 0:
			faults = append(faults, fmt.Sprintf("%s and %s are of the same family, and a Service has one address of each", out[same], a))
		default:
			out = append(out, a)
		}
	}
	return out, faults
}

// sameAddresses tells whether two lists ask for the same addresses, in any order
// and form. Of a list with faults that is not known; they are told elsewhere.
func sameAddresses(one, other string) bool {
	a, faultsA := addresses(one)
	b, faultsB := addresses(other)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return len(faultsA) > 0 || len(faultsB) > 0 || slices.Equal(a, b)
}

func (o *object) loseWishes(key string, faults []string) {
	for _, f := range faults {
		o.lose(key, "%s: %s", f, unfulfilled)
	}
}

// checkAddresses looks whether an annotation names addresses that a Service can
// have, and the one that the spec of the Service asks for, if it does.
func (o *object) checkAddresses(service *object, key, inSpec string) {
	want, faults := addresses(o.text(key))
	service.loseWishes("annotation "+key, faults)
	if inSpec == "" || len(faults) > 0 {
		return
	}
	if one, err := netip.ParseAddr(inSpec); err != nil || !slices.Contains(want, one.Unmap()) {
		service.lose("spec.loadBalancerIP", "%q is not among what the annotation %s says: %s", inSpec, key, unfulfilled)
	}
}

// checkPools looks whether a pool that a Service asks for is in the document,
// under the name by which it asks.
func (im *importer) checkPools(service *object, names []string, key, product string) {
	var missing []string
	for _, name := range names {
		i := slices.IndexFunc(im.pools, func(p pool) bool { return p.product == product && p.old == name })
		switch {
		case i < 0:
			missing = append(missing, name)
		case im.pools[i].Name != name:
			service.lose("annotation "+key, "the pool %q is called %q now: name that", name, im.pools[i].Name)
		}
	}
	switch {
	case len(missing) == 0:
	case len(missing) == len(names):
		service.lose("annotation "+key, "the document has no pool %s: %s", quoted(missing), unfulfilled)
	default:
		service.note("annotation "+key, "the document has no pool %s; an address of the others is given", quoted(missing))
	}
}

// checkAgreement looks whether annotations of several products say the same.
func (o *object) checkAgreement(service *object, keys []string, same func(a, b string) bool) {
	for i, key := range keys {
		if i > 0 && !same(o.text(keys[0]), o.text(key)) {
			service.lose("annotation "+key, "says %q, and %s says %q: %s", o.text(key), keys[0], o.text(keys[0]), unfulfilled)
		}
	}
}
