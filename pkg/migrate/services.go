package migrate

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

// lostAnnotations are annotations of other products that mean nothing here,
// with what to do about them. Those that are understood need no mention.
var lostAnnotations = map[string]string{
	"kube-vip.io/serviceInterface":              "the interface is a matter of an advertisement: layer2.interfaces",
	"kube-vip.io/vipHost":                       "which node announces is decided by the announcers",
	"kube-vip.io/loadbalancerHostname":          "a status has addresses, no name",
	"lbipam.cilium.io/sharing-cross-namespace":  "Services share an address in any namespaces if all carry the same key",
	"io.cilium/lb-ipam-sharing-cross-namespace": "Services share an address in any namespaces if all carry the same key",
	"lb.kubesphere.io/v1alpha1":                 "remove it",
	"eip.openelb.kubesphere.io/v1alpha2":        "ask for the pool by ccm-baremetal.io/pool",
	"protocol.openelb.kubesphere.io/v1alpha1":   "how a pool is announced is a matter of an advertisement",
	"projectcalico.org/ipv4pools":               "ask for the pool by ccm-baremetal.io/pool",
	"projectcalico.org/ipv6pools":               "ask for the pool by ccm-baremetal.io/pool",
	"projectcalico.org/loadBalancerIPs":         "ask for the address by ccm-baremetal.io/addresses",
}

// services looks at the Services among the objects: what their annotations
// ask for that nobody will understand, and whether what they hold is in the
// new pools.
func (im *importer) services() {
	for _, o := range im.of("v1", "Service") {
		o.skip("spec", "status", "metadata")
		if o.part("spec").text("type") != "LoadBalancer" {
			continue
		}
		annotations := o.object("metadata").object("annotations")
		for _, key := range annotations.keys() {
			if why, lost := lostAnnotations[key]; lost {
				o.lose("annotation "+key, "not understood here: %s", why)
			}
		}
		for _, s := range wish.SharingKey(o.labels, config.Dialects()).Said {
			o.note("label "+s.Where, "has no effect as a label, in the source neither: it is an annotation")
		}
		im.holds(o)
	}
}

// holds tells of addresses of a Service that are in none of the pools.
func (im *importer) holds(o *object) {
	for _, i := range o.object("status").object("loadBalancer").items("ingress") {
		address, err := netip.ParseAddr(i.text("ip"))
		if err == nil && !slices.ContainsFunc(im.pools, func(p pool) bool { return p.has(address) }) {
			o.lose("status", "has the address %s, which is in no pool of the document: it will be left alone and not announced", address)
		}
	}
}

// has tells whether an address is one of the pool's.
func (p pool) has(address netip.Addr) bool {
	return slices.ContainsFunc(p.Addresses, func(text string) bool { return within(text, address) }) &&
		!slices.ContainsFunc(p.Exclude, func(text string) bool { return within(text, address) })
}

// within tells whether an address is in an address, a CIDR or a range.
func within(text string, address netip.Addr) bool {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Contains(address)
	}
	left, right, isRange := strings.Cut(text, "-")
	first, err := netip.ParseAddr(strings.TrimSpace(left))
	if err != nil || !isRange {
		return err == nil && first == address
	}
	last, err := netip.ParseAddr(strings.TrimSpace(right))
	return err == nil && first.Compare(address) <= 0 && address.Compare(last) <= 0
}

// strangers tells of objects that are no configuration of anything known here.
func (im *importer) strangers() {
	for _, o := range im.objects {
		_, speakers := o.bgpType()
		known := slices.Contains(kinds[o.group], o.kind) || speakers
		switch _, product := kinds[o.group]; {
		case known || o.kind == "" && o.group == "":
		case product && o.group != "v1":
			o.lose("", "a kind that is not known here: nothing of it is carried over")
		default:
			o.note("", "no configuration of a load balancer: nothing of it is carried over")
		}
	}
}

// kinds are the objects that are read, by API group.
var kinds = map[string][]string{
	"v1":         {"ConfigMap", "Service"},
	"metallb.io": {"IPAddressPool", "AddressPool", "L2Advertisement", "BGPAdvertisement", "BGPPeer", "BFDProfile", "Community"},
	"cilium.io": {
		"CiliumLoadBalancerIPPool", "CiliumL2AnnouncementPolicy", "CiliumBGPPeeringPolicy", "CiliumBGPClusterConfig",
		"CiliumBGPPeerConfig", "CiliumBGPAdvertisement", "CiliumBGPNodeConfigOverride",
	},
	groupFRRK8s: {"FRRConfiguration", "FRRK8sConfiguration", "FRRNodeState", "BGPSessionState"},
	"purelb.io": {"ServiceGroup", "LBNodeAgent"},
}
