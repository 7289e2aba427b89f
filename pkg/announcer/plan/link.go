package plan

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// virtual are links that container networks, hypervisors and tunnels make:
// names, or beginnings of names where a star follows.
var virtual = [...]string{
	"cilium_*", "lxc*", "cali*", "vxlan.calico", "flannel*", "cni*", "veth*", "docker*", "kube-ipvs0", "ovn*", "ovs*",
	"br-int", "antrea*", "genev*", "weave", "wg*", "tun*", "tap*", "virbr*", "podman*",
}

// chooseLinks returns the links of a node on which it announces address,
// sorted by name: for each wish with patterns all links that they match, for
// one without the link that the address belongs to. Of several links in one
// LAN only the best is left, so that a LAN sees one MAC per address. Links
// that are down are left out, unless none of those wanted is up.
func chooseLinks(links []Link, address netip.Addr, wishes []config.Layer2) []Link {
	best := slices.SortedFunc(slices.Values(links), preference(address))
	wanted := make([]bool, len(best))
	for _, w := range wishes {
		if len(w.Interfaces) == 0 {
			if i := home(best, address); i >= 0 {
				wanted[i] = true
			}
			continue
		}
		for i, link := range best {
			wanted[i] = wanted[i] || matches(w.Interfaces, link.Name)
		}
	}
	var chosen []Link
	for i, link := range best { // those that are up come first
		alive := link.Up || len(chosen) == 0 || !chosen[0].Up
		if wanted[i] && alive && !slices.ContainsFunc(chosen, link.sameLAN) {
			chosen = append(chosen, link)
		}
	}
	slices.SortFunc(chosen, func(a, b Link) int { return cmp.Compare(a.Name, b.Name) })
	return chosen
}

// preference sorts links that are up first, then those whose subnet holds
// address, the one with the Node's address, the lowest metric, the lowest index.
func preference(address netip.Addr) func(a, b Link) int {
	return func(a, b Link) int {
		return cmp.Or(
			trueFirst(a.Up, b.Up),
			trueFirst(a.holds(address), b.holds(address)),
			trueFirst(a.NodeIP, b.NodeIP),
			cmp.Compare(a.Metric, b.Metric),
			cmp.Compare(a.Index, b.Index),
		)
	}
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// home returns the place of the link that an address belongs to if nobody
// names one: the link whose subnet holds it, else the default route's. It is
// -1 if there is none. If all links in the address's subnet are down, another
// LAN is no place for it.
func home(best []Link, address netip.Addr) int {
	real := func(l Link) bool { return !isVirtual(l.Name) }
	i := slices.IndexFunc(best, func(l Link) bool { return real(l) && l.holds(address) })
	if i >= 0 {
		return i
	}
	return slices.IndexFunc(best, func(l Link) bool { return real(l) && l.Default })
}

func (l Link) holds(address netip.Addr) bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
}

// sameLAN tells whether two links share a subnet. A link-local prefix is on
// every link, and that of a single address is no subnet.
func (l Link) sameLAN(other Link) bool {
	for _, p := range l.Prefixes {
		if p.IsSingleIP() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		shares := func(q netip.Prefix) bool { return !q.IsSingleIP() && p.Overlaps(q) }
		if slices.ContainsFunc(other.Prefixes, shares) {
			return true
		}
	}
	return false
}

// matches tells whether any pattern matches the name of a link. A virtual link
// must be meant: by its name, or by a pattern that begins with a part of it.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if isVirtual(name) && (pattern == "" || strings.ContainsRune(`*?[\`, rune(pattern[0]))) {
			return false
		}
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}

// MayUse tells whether an advertisement of c could ever announce on a link of
// that name. Whoever tells links to others leaves the rest out: on a busy node
// hundreds of virtual links come and go with its pods.
func MayUse(c config.Config, name string) bool {
	return !isVirtual(name) || slices.ContainsFunc(c.Advertisements, func(ad config.Advertisement) bool {
		return ad.Layer2 != nil && matches(ad.Layer2.Interfaces, name)
	})
}

func isVirtual(name string) bool {
	return slices.ContainsFunc(virtual[:], func(pattern string) bool {
		start, open := strings.CutSuffix(pattern, "*")
		return name == start || open && strings.HasPrefix(name, start)
	})
}
