// Package frr writes the configuration file of FRR for the sessions of a node
// and what is advertised on them: values in, text out.
//
// The text is written as FRR itself shows it, so that comparing it with what
// runs finds no difference. What is numbered has numbers that come from the
// thing itself and not from its place, so that a Service that comes or goes
// changes two lines and renumbers nothing.
package frr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Input is what a configuration file is made of.
type Input struct {
	// Peerings are the sessions, in the order of the document.
	Peerings []Peering

	// RouterID is used in a VRF whose peers have none of their own.
	RouterID netip.Addr

	// Passwords has those of the Secrets that peers name; each fits (see
	// CheckPassword).
	Passwords map[string]string
}

// Peering is a session. One that takes leave has the routes that its router is
// asked to avoid. One that is Closed is told that the session is over, and
// nothing of them.
type Peering struct {
	plan.Peering
	Closed bool
}

// head marks a file as ours. FRR drops comments.
const head = "! written by the announcer of ccm-baremetal, which overwrites changes\n"

// Empty is the configuration of an FRR without sessions.
const Empty = head + "frr defaults traditional\nbfd\nexit\n"

// Ours tells whether a file was written by this package. Others are never
// overwritten by nothing.
func Ours(text string) bool { return strings.HasPrefix(text, head) }

// defaultRestart is the restart time that FRR does not show, because it is the
// default.
const defaultRestart = 120 * time.Second

// Render returns the configuration file. It has the passwords in it: it is for
// nobody's eyes but FRR's.
func Render(in Input) string {
	var b writer
	if len(in.Peerings) == 0 {
		return Empty
	}
	b.WriteString(head + "frr defaults traditional\n")
	b.line(0, "bgp route-map delay-timer 1") // after changes of many lines, and not 5 s
	b.profiles(in.Peerings)
	b.line(0, "route-map %s deny 1", denyAll)
	b.line(0, "exit")
	tags := classify(in.Peerings)
	b.tags(tags)
	for _, p := range in.Peerings {
		b.policy(p, tags)
	}
	for _, vrf := range vrfs(in.Peerings) {
		b.router(in, vrf, tags)
	}
	return b.String()
}

// writer is a configuration in the making.
type writer struct{ strings.Builder }

// line writes a line of a context that is so deep.
func (b *writer) line(deep int, format string, args ...any) {
	b.WriteString(strings.Repeat(" ", deep))
	fmt.Fprintf(b, format, args...)
	b.WriteByte('\n')
}

// profiles writes the BFD profiles that peers have. Values that FRR has by
// itself are not written, for it does not show them.
func (b *writer) profiles(all []Peering) {
	seen := map[string]*config.BFDProfile{}
	for _, p := range all {
		if p.Peer.BFD != nil {
			seen[p.Peer.BFD.Name] = p.Peer.BFD
		}
	}
	b.line(0, "bfd") // also without any: FRR keeps the empty context once it has had one
	for _, name := range sortedKeys(seen) {
		b.profile(*seen[name])
	}
	b.line(0, "exit")
}

func (b *writer) profile(p config.BFDProfile) {
	b.line(1, "profile %s", p.Name)
	if p.DetectMultiplier != 3 {
		b.line(2, "detect-multiplier %d", p.DetectMultiplier)
	}
	for _, t := range []struct {
		what         string
		value, usual time.Duration
	}{
		{"transmit-interval", p.TransmitInterval, 300 * time.Millisecond},
		{"receive-interval", p.ReceiveInterval, 300 * time.Millisecond},
		{"echo transmit-interval", p.EchoInterval, 50 * time.Millisecond},
		{"echo receive-interval", p.EchoInterval, 50 * time.Millisecond},
	} {
		if t.value != t.usual {
			b.line(2, "%s %d", t.what, t.value.Milliseconds())
		}
	}
	if p.EchoMode {
		b.line(2, "echo-mode")
	}
	if p.PassiveMode {
		b.line(2, "passive-mode")
	}
	if p.MinimumTTL != 254 {
		b.line(2, "minimum-ttl %d", p.MinimumTTL)
	}
	b.line(1, "exit")
}

// vrfs returns the VRFs of peers, in order.
func vrfs(all []Peering) []string {
	var out []string
	for _, p := range all {
		out = append(out, p.Peer.VRF)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// routerASN returns the AS number of a VRF; others that its sessions have are
// told by local-as. If it can be, it is the document's and not that of one of
// the peers, because all sessions are reset when it is another one; of two
// documents it is that of the one whose sessions still take leave. Where routers
// are in the ASes of all of these it is one that nobody has.
func routerASN(peerings []Peering) uint32 {
	candidates := []uint32{eldest(peerings).ASN}
	for _, p := range peerings {
		candidates = append(candidates, p.Peer.LocalASN)
	}
	for n := range uint32(len(peerings) + 1) {
		candidates = append(candidates, lastASN-n)
	}
	for _, asn := range candidates {
		if asn != 0 && suits(asn, peerings) {
			return asn
		}
	}
	return peerings[0].Peer.LocalASN
}

// Numbered returns peerings that are wanted together, each with the AS number
// that FRR has for all of its VRF instead of the document's.
func Numbered(all []plan.Peering) []plan.Peering {
	out := slices.Clone(all)
	for i, p := range all {
		var beside []Peering
		for _, other := range all {
			if other.Peer.VRF == p.Peer.VRF {
				beside = append(beside, Peering{Peering: other})
			}
		}
		out[i].ASN = routerASN(beside)
	}
	return out
}

// eldest returns the first that takes leave, else the first.
func eldest(peerings []Peering) Peering {
	return peerings[max(0, slices.IndexFunc(peerings, func(p Peering) bool { return p.Leaving != "" }))]
}

// lastASN is the last AS number for private use (RFC 6996).
const lastASN = 4294967294

// suits tells whether FRR takes all sessions under an AS number: it takes a
// local-as neither for a router of our own AS nor for one that has this number.
func suits(asn uint32, peerings []Peering) bool {
	return !slices.ContainsFunc(peerings, func(p Peering) bool {
		return p.Peer.LocalASN != asn && (p.Peer.Internal() || p.Peer.ASN == asn)
	})
}

// router writes the sessions of a VRF.
func (b *writer) router(in Input, vrf string, tags map[place]uint32) {
	var peerings []Peering
	for _, p := range in.Peerings {
		if p.Peer.VRF == vrf {
			peerings = append(peerings, p)
		}
	}
	suffix := ""
	if vrf != "" {
		suffix = " vrf " + vrf
	}
	asn := routerASN(peerings)
	b.line(0, "router bgp %d%s", asn, suffix)
	id := in.RouterID
	if given := eldest(peerings).Peer.RouterID; given.IsValid() {
		id = given
	}
	b.line(1, "bgp router-id %s", id)
	b.line(1, "no bgp default ipv4-unicast")
	b.restart(peerings)
	b.line(1, "no bgp network import-check") // no route of ours is in the kernel's table
	for _, p := range peerings {
		b.neighbour(p, asn, in.Passwords)
	}
	for _, f := range []config.Family{config.IPv4, config.IPv6} {
		b.family(f, peerings, tags)
	}
	b.line(0, "exit")
}

// restart writes how long routers are to keep routes.
func (b *writer) restart(peerings []Peering) {
	for _, p := range peerings {
		if t := p.Peer.GracefulRestart; t > 0 {
			if t != defaultRestart {
				b.line(1, "bgp graceful-restart restart-time %d", int(t.Seconds()))
			}
			b.line(1, "bgp graceful-restart preserve-fw-state") // kube-proxy goes on meanwhile
			return
		}
	}
}

// family writes what is advertised of a family, and to whom.
func (b *writer) family(f config.Family, peerings []Peering, tags map[place]uint32) {
	var prefixes []netip.Prefix
	var speakers []Peering
	for _, p := range peerings {
		if slices.Contains(p.Peer.Families, f) {
			speakers = append(speakers, p)
		}
		for _, r := range routes(p) {
			if config.FamilyOf(r.Prefix.Addr()) == f {
				prefixes = append(prefixes, r.Prefix)
			}
		}
	}
	if len(speakers) == 0 {
		return
	}
	slices.SortFunc(prefixes, plan.ComparePrefixes)
	b.line(1, "address-family %s unicast", keyword(f))
	for _, p := range slices.Compact(prefixes) {
		b.line(2, "network %s route-map %s", p, tagMap(tags[place{peerings[0].Peer.VRF, p}]))
	}
	for _, p := range speakers {
		b.line(2, "neighbor %s activate", neighbour(p.Peer))
		b.line(2, "neighbor %s route-map %s in", neighbour(p.Peer), denyAll)
		b.line(2, "neighbor %s route-map %s out", neighbour(p.Peer), outMap(p.Peer))
	}
	b.line(1, "exit-address-family")
}

// keyword is the name of a family in address-family, and in match.
func keyword(f config.Family) string {
	if f == config.IPv4 {
		return "ipv4"
	}
	return "ipv6"
}
