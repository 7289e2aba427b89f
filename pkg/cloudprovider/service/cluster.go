package service

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// cluster collects the addresses that must never be given out: those of Nodes
// (an address that two Nodes claim is the one's whose name sorts first), and
// those under which the API server is reached.
func cluster(nodes []*v1.Node, slice *discovery.EndpointSlice, reserved []netip.Addr) ipam.Cluster {
	c := ipam.Cluster{NodeAddresses: map[netip.Addr]string{}}
	for _, n := range nodes {
		for _, a := range nodeAddresses(n) {
			if other, taken := c.NodeAddresses[a]; !taken || n.Name < other {
				c.NodeAddresses[a] = n.Name
			}
		}
	}
	c.Reserved = append(c.Reserved, reserved...)
	c.Reserved = append(c.Reserved, endpoints(slice)...)
	slices.SortFunc(c.Reserved, netip.Addr.Compare)
	c.Reserved = slices.Compact(c.Reserved)
	return c
}

// nodeAddresses returns the internal and external addresses of a Node, sorted.
func nodeAddresses(n *v1.Node) []netip.Addr {
	var out []netip.Addr
	for _, entry := range n.Status.Addresses {
		if entry.Type != v1.NodeInternalIP && entry.Type != v1.NodeExternalIP {
			continue
		}
		if a, err := netip.ParseAddr(entry.Address); err == nil {
			out = append(out, a.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func endpoints(slice *discovery.EndpointSlice) []netip.Addr {
	var out []netip.Addr
	if slice == nil {
		return nil
	}
	for _, e := range slice.Endpoints {
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				out = append(out, a.Unmap())
			}
		}
	}
	return out
}
