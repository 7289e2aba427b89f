package migrate

import (
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
		for _, keys := range [][]string{addressKeys, poolKeys, sharingKeys} {
			annotations.checkAgreement(o, said(keys))
		}
		for _, key := range said(addressKeys) {
			annotations.checkAddresses(o, key, spec.text("loadBalancerIP"))
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

// checkAddresses looks whether an annotation names addresses, and the one that the
// spec of the Service asks for, if it does.
func (o *object) checkAddresses(service *object, key, inSpec string) {
	for _, item := range items(o.text(key)) {
		if _, err := netip.ParseAddr(item); err != nil {
			service.lose("annotation "+key, "%q is no address: %s", item, unfulfilled)
		}
	}
	if inSpec != "" && !slices.Contains(items(o.text(key)), inSpec) {
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
func (o *object) checkAgreement(service *object, keys []string) {
	for i, key := range keys {
		if i > 0 && !slices.Equal(slices.Sorted(slices.Values(items(o.text(keys[0])))), slices.Sorted(slices.Values(items(o.text(key))))) {
			service.lose("annotation "+key, "says %q, and %s says %q: %s", o.text(key), keys[0], o.text(keys[0]), unfulfilled)
		}
	}
}
