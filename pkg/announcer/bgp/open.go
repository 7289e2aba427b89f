package bgp

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// asTrans stands for a number that does not fit two bytes (RFC 6793).
const asTrans = 23456

// families by their names, as messages have them.
var families = map[config.Family]bgp.Family{config.IPv4: bgp.RF_IPv4_UC, config.IPv6: bgp.RF_IPv6_UC}

// terms is what both sides of a session have agreed on.
type terms struct {
	asn       uint32        // the router's
	hold      time.Duration // 0: signs of life are not asked for
	keepalive time.Duration
	wide      bool // AS numbers have four bytes
	families  []config.Family
	overIPv6  bool // IPv4 routes may have an IPv6 next hop (RFC 8950)
	restart   bool // it keeps our routes while we restart (RFC 4724)
}

// openMessage returns our OPEN. restarting says that the announcer has just
// started: a router that has kept our routes goes on doing so until End-of-RIB.
func (p *peer) openMessage(restarting bool) (*bgp.BGPMessage, error) {
	c := p.config
	var capabilities []bgp.ParameterCapabilityInterface
	for _, f := range c.Families {
		capabilities = append(capabilities, bgp.NewCapMultiProtocol(families[f]))
	}
	capabilities = append(capabilities, bgp.NewCapRouteRefresh())
	if c.Address.Is6() && slices.Contains(c.Families, config.IPv4) {
		capabilities = append(capabilities, bgp.NewCapExtendedNexthop(
			[]*bgp.CapExtendedNexthopTuple{bgp.NewCapExtendedNexthopTuple(bgp.RF_IPv4_UC, bgp.AFI_IP6)}))
	}
	if c.GracefulRestart > 0 {
		var kept []*bgp.CapGracefulRestartTuple
		for _, f := range c.Families {
			// The kernel forwards whether the announcer lives or not.
			kept = append(kept, bgp.NewCapGracefulRestartTuple(families[f], true))
		}
		// Without the N bit (RFC 8538): a NOTIFICATION ends it, as leaves and dead nodes need.
		capabilities = append(capabilities, bgp.NewCapGracefulRestart(restarting, false, uint16(c.GracefulRestart/time.Second), kept))
	}
	capabilities = append(capabilities, bgp.NewCapFourOctetASNumber(c.LocalASN))
	short := uint16(asTrans)
	if c.LocalASN <= math.MaxUint16 {
		short = uint16(c.LocalASN)
	}
	id := RouterID(p.o.Node, c)
	return bgp.NewBGPOpenMessage(short, uint16(c.HoldTime/time.Second), id,
		[]bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(capabilities)})
}

// agree works out what an OPEN of the router means, or a *fault.
func (p *peer) agree(body []byte) (terms, error) {
	o, err := readOffer(body)
	if err != nil {
		return terms{}, err
	}
	t := terms{asn: uint32(o.asn), hold: min(p.config.HoldTime, o.hold)}
	spoken := map[bgp.Family]bool{}
	multiprotocol := false
	for _, c := range o.capabilities {
		if mp, ok := c.(*bgp.CapMultiProtocol); ok {
			multiprotocol, spoken[mp.CapValue] = true, true
		}
		t.take(c)
	}
	// A router that speaks of no family means IPv4 (RFC 4760, section 8).
	spoken[bgp.RF_IPv4_UC] = spoken[bgp.RF_IPv4_UC] || !multiprotocol
	for _, f := range p.config.Families {
		if spoken[families[f]] {
			t.families = append(t.families, f)
		}
	}
	t.restart = t.restart && p.config.GracefulRestart > 0
	t.keepalive = min(p.config.KeepaliveTime, t.hold/3)
	return t, p.judge(o, t)
}

// take reads one capability.
func (t *terms) take(c bgp.ParameterCapabilityInterface) {
	switch c := c.(type) {
	case *bgp.CapFourOctetASNumber:
		t.wide, t.asn = true, c.CapValue
	case *bgp.CapExtendedNexthop:
		t.overIPv6 = slices.ContainsFunc(c.Tuples, func(x *bgp.CapExtendedNexthopTuple) bool {
			return x.NLRIAFI == bgp.AFI_IP && x.NLRISAFI == uint16(bgp.SAFI_UNICAST) && x.NexthopAFI == bgp.AFI_IP6
		})
	case *bgp.CapGracefulRestart:
		t.restart = true
	}
}

// judge says what of the router's OPEN we do not accept (RFC 4271, section
// 6.2).
func (p *peer) judge(o offer, t terms) error {
	c := p.config
	ours := t.asn == c.LocalASN
	switch {
	case t.asn == 0: // RFC 7607
		return refuse(bgp.BGP_ERROR_SUB_BAD_PEER_AS, "the router has AS 0")
	case c.Kind == config.ByNumber && t.asn != c.ASN:
		return refuse(bgp.BGP_ERROR_SUB_BAD_PEER_AS, "the router has AS %d, not %d", t.asn, c.ASN)
	case c.Kind == config.Internal && !ours:
		return refuse(bgp.BGP_ERROR_SUB_BAD_PEER_AS, "the router has AS %d, which is not ours", t.asn)
	case c.Kind == config.External && ours:
		return refuse(bgp.BGP_ERROR_SUB_BAD_PEER_AS, "the router has our own AS %d", t.asn)
	case o.hold > 0 && o.hold < 3*time.Second:
		return refuse(bgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, "the router wants a hold time of %s", o.hold)
	case o.id.IsUnspecified():
		return refuse(bgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, "the router has no router ID")
	case ours && o.id == RouterID(p.o.Node, c):
		return refuse(bgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, "Bad BGP Identifier: the router has our router ID %s", o.id)
	case len(t.families) == 0:
		return p.lacking()
	}
	return nil
}

// lacking refuses a router for its families, and names those it should speak
// (RFC 5492, section 5).
func (p *peer) lacking() error {
	var missing []byte
	for _, f := range p.config.Families {
		b, err := bgp.NewCapMultiProtocol(families[f]).Serialize()
		if err != nil {
			return fmt.Errorf("encode a capability: %w", err)
		}
		missing = append(missing, b...)
	}
	text := fmt.Sprintf("the router speaks none of the families %v", p.config.Families)
	return &fault{bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY, missing, text}
}
