package frrk8s

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Input is what an FRRConfiguration is made of.
type Input struct {
	Node      Node
	Namespace string // that frr-k8s is in, and watches

	// Peerings are the sessions. Of those that take leave, which have a reason
	// for it, routers are asked to avoid the routes.
	Peerings []plan.Peering
}

// Node is the Node whose sessions these are.
type Node struct {
	Name, UID string
	Hostname  string // its label kubernetes.io/hostname
}

// Name returns the name of the FRRConfiguration of a node. Changing it is an
// API change: the old object would stay.
func Name(node string) string { return "ccm-baremetal-" + node }

// Render returns the FRRConfiguration of a node, the same for the same input
// in any order. frr-k8s has one AS number and one router ID per VRF: where
// those that stay and those that take leave differ in them, the latter are left
// out.
func Render(in Input) Object {
	o := Object{
		APIVersion: Group + "/" + Version, Kind: kind,
		Metadata: Metadata{
			Name: Name(in.Node.Name), Namespace: in.Namespace,
			Labels:          map[string]string{ManagedBy: Manager, partOf: "ccm-baremetal"},
			OwnerReferences: []Owner{{APIVersion: "v1", Kind: "Node", Name: in.Node.Name, UID: in.Node.UID}},
		},
		Spec: Spec{NodeSelector: Selector{MatchLabels: map[string]string{hostname: in.Node.Hostname}}},
	}
	all := slices.Clone(in.Peerings)
	slices.SortStableFunc(all, func(a, b plan.Peering) int {
		return cmp.Or(staying(a, b), strings.Compare(a.Peer.VRF, b.Peer.VRF), strings.Compare(a.Peer.Router(), b.Peer.Router()))
	})
	profiles := map[string]BFDProfile{}
	for _, p := range all {
		r := o.router(p.Peer)
		if r == nil {
			continue
		}
		n := neighbor(p, in.Namespace)
		if p.Peer.BFD != nil {
			b := profile(*p.Peer.BFD)
			n.BFDProfile, profiles[b.Name] = b.Name, b
		}
		r.Neighbors = append(r.Neighbors, n)
		r.Prefixes = append(r.Prefixes, n.ToAdvertise.Allowed.Prefixes...)
	}
	o.Spec.BGP.arrange(profiles)
	return o
}

// staying orders those that stay before those that take leave.
func staying(a, b plan.Peering) int {
	switch {
	case a.Leaving == "" && b.Leaving != "":
		return -1
	case a.Leaving != "" && b.Leaving == "":
		return 1
	}
	return 0
}

// router returns our side of a peer's session, or nil if the peer cannot be
// beside those that are there.
func (o *Object) router(p config.Peer) *Router {
	b := &o.Spec.BGP
	i := slices.IndexFunc(b.Routers, func(r Router) bool { return r.VRF == p.VRF })
	if i < 0 {
		b.Routers = append(b.Routers, Router{ASN: p.LocalASN, ID: text(p.RouterID), VRF: p.VRF})
		return &b.Routers[len(b.Routers)-1]
	}
	r := &b.Routers[i]
	twice := slices.ContainsFunc(r.Neighbors, func(n Neighbor) bool { return cmp.Or(n.Interface, n.Address) == p.Router() })
	if r.ASN != p.LocalASN || r.ID != text(p.RouterID) || twice {
		return nil
	}
	return r
}

// arrange brings everything into the one order.
func (b *BGP) arrange(profiles map[string]BFDProfile) {
	slices.SortFunc(b.Routers, func(x, y Router) int { return strings.Compare(x.VRF, y.VRF) })
	for i := range b.Routers {
		r := &b.Routers[i]
		slices.SortFunc(r.Neighbors, func(x, y Neighbor) int {
			return cmp.Or(strings.Compare(x.Address, y.Address), strings.Compare(x.Interface, y.Interface))
		})
		slices.Sort(r.Prefixes)
		r.Prefixes = slices.Compact(r.Prefixes)
	}
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		b.BFDProfiles = append(b.BFDProfiles, profiles[name])
	}
}

// text is an address, or nothing.
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// neighbor is a peer, and what it is told.
func neighbor(p plan.Peering, namespace string) Neighbor {
	c := p.Peer
	n := Neighbor{
		ASN: c.ASN, DynamicASN: string(c.Kind), SourceAddress: text(c.SourceAddress),
		Address: text(c.Address), Interface: c.Interface, Port: c.Port,
		HoldTime: c.HoldTime.String(), KeepaliveTime: c.KeepaliveTime.String(), ConnectTime: c.ConnectTime.String(),
		EBGPMultiHop: c.Multihop > 1 && !c.Internal(), GracefulRestart: c.GracefulRestart > 0,
		ToAdvertise: advertise(p), ToReceive: Receive{Allowed: Allowed{Mode: filtered}},
		DualStack: c.Interface == "" && !slices.Equal(c.Families, []config.Family{config.FamilyOf(c.Address)}),
	}
	if c.PasswordSecret != "" {
		n.PasswordSecret = &Secret{Name: c.PasswordSecret, Namespace: namespace}
	}
	return n
}

// usualPreference is the local preference of routes of which nothing is said.
const usualPreference = 100

// advertise is what a peer is told: also to a router that is to avoid it (RFC
// 8326).
func advertise(p plan.Peering) Advertise {
	out := Advertise{Allowed: Allowed{Mode: filtered}}
	preferences := map[uint32][]string{}
	communities := map[config.Community][]string{}
	for _, r := range p.Routes {
		prefix, preference, tags := r.Prefix.String(), r.LocalPref, r.Communities
		if p.Leaving != "" {
			preference = 0
			if !slices.Contains(tags, config.GracefulShutdown) {
				tags = append(slices.Clone(tags), config.GracefulShutdown)
			}
		}
		out.Allowed.Prefixes = append(out.Allowed.Prefixes, prefix)
		if p.Peer.Internal() && preference != usualPreference {
			preferences[preference] = append(preferences[preference], prefix)
		}
		for _, c := range tags {
			communities[c] = append(communities[c], prefix)
		}
	}
	for _, preference := range slices.Sorted(maps.Keys(preferences)) {
		out.WithLocalPref = append(out.WithLocalPref, LocalPrefPrefixes{preference, preferences[preference]})
	}
	for _, c := range slices.SortedFunc(maps.Keys(communities), config.Community.Compare) {
		out.WithCommunity = append(out.WithCommunity, CommunityPrefixes{community(c), communities[c]})
	}
	return out
}

// community is a community as frr-k8s reads it.
func community(c config.Community) string {
	if c.Large {
		return "large:" + c.String()
	}
	return c.String()
}

// profile is a BFD profile. Its name comes from its values: frr-k8s refuses two
// that have one name and differ, whoever has written them.
func profile(p config.BFDProfile) BFDProfile {
	out := BFDProfile{
		ReceiveInterval: p.ReceiveInterval.Milliseconds(), TransmitInterval: p.TransmitInterval.Milliseconds(),
		DetectMultiplier: p.DetectMultiplier, EchoInterval: p.EchoInterval.Milliseconds(),
		EchoMode: p.EchoMode, PassiveMode: p.PassiveMode, MinimumTTL: p.MinimumTTL,
	}
	out.Name = fmt.Sprintf("ccm-%d-%d-%d-%d-%d", out.ReceiveInterval, out.TransmitInterval, out.DetectMultiplier, out.EchoInterval, out.MinimumTTL)
	if out.EchoMode {
		out.Name += "-echo"
	}
	if out.PassiveMode {
		out.Name += "-passive"
	}
	return out
}
