package service

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// An audience knows which addresses a configuration has announced by some
// Node. It looks at what configuration and labels say and at nothing that
// passes, such as taints or the health of a Node: else the same document would
// be refused today and accepted tomorrow.
type audience struct {
	config         config.Config
	advertisements []config.Advertisement // those that select a Node
}

func newAudience(c config.Config, nodes []*v1.Node) audience {
	a := audience{config: c}
	for _, ad := range c.Advertisements {
		if slices.ContainsFunc(nodes, func(n *v1.Node) bool {
			return announces(n, ad, c.ExcludeLabel) && (ad.Layer2 != nil || advertises(n, ad, c.BGP.Peers))
		}) {
			a.advertisements = append(a.advertisements, ad)
		}
	}
	return a
}

// announces tells whether an advertisement may be announced by a Node.
func announces(n *v1.Node, ad config.Advertisement, rule config.ExcludeLabel) bool {
	return n.Labels[v1.LabelOSStable] != "windows" && !rule.Excludes(n.Labels) && ad.NodeSelector.Matches(n.Labels)
}

// advertises tells whether a Node has a session that an advertisement is for.
func advertises(n *v1.Node, ad config.Advertisement, peers []config.Peer) bool {
	return ad.BGP != nil && slices.ContainsFunc(peers, func(p config.Peer) bool {
		return p.NodeSelector.Matches(n.Labels) && (len(ad.BGP.Peers) == 0 || slices.Contains(ad.BGP.Peers, p.Name))
	})
}

// has tells whether an address that these Services hold is announced. One
// Service is enough: where not all can be announced together, the announcers
// settle for some. An address in no pool is announced by all advertisements.
func (a audience) has(address netip.Addr, holders []*v1.Service) bool {
	pool, found := a.config.PoolOf(address)
	return slices.ContainsFunc(a.advertisements, func(ad config.Advertisement) bool {
		if found && len(ad.Pools) > 0 && !slices.Contains(ad.Pools, pool.Name) {
			return false
		}
		return slices.ContainsFunc(holders, func(svc *v1.Service) bool { return ad.ServiceSelector.Matches(svc.Labels) })
	})
}
