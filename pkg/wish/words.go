package wish

import (
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Our own annotations of a Service that are wishes. Changing a name is an API change.
const (
	AnnotationAddresses  = prefix + "addresses"   // the addresses it wants, comma-separated, one per family
	AnnotationPool       = prefix + "pool"        // the pools that it may have addresses from, comma-separated
	AnnotationSharingKey = prefix + "sharing-key" // Services with one key may share an address
)

const prefix = "ccm-baremetal.io/"

// ours is our own dialect, which has no name in a document.
const ours config.Dialect = ""

// vocabulary is how one product spells what a Service can ask for.
type vocabulary struct {
	addresses, pools, sharing []string
}

// words returns the annotations of a dialect.
func words(d config.Dialect) vocabulary {
	switch d {
	case ours:
		return vocabulary{
			addresses: []string{AnnotationAddresses},
			pools:     []string{AnnotationPool},
			sharing:   []string{AnnotationSharingKey},
		}
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

// Words returns all annotations that are wishes, in our own dialect and in
// others.
func Words(dialects []config.Dialect) []string {
	var out []string
	for _, d := range slices.Concat([]config.Dialect{ours}, dialects) {
		v := words(d)
		out = append(out, slices.Concat(v.addresses, v.pools, v.sharing)...)
	}
	return out
}
