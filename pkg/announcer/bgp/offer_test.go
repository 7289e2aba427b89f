package bgp_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Capabilities, as they are on the wire.
var (
	fourBytes = []byte{65, 4, 0, 0, 64501 >> 8, 64501 & 0xff}
	speaksSix = []byte{1, 4, 0, wire.AFI_IP6, 0, wire.SAFI_UNICAST}
)

// parameter is an optional parameter with capabilities in it.
func parameter(capabilities ...[]byte) []byte {
	all := slices.Concat(capabilities...)
	return append([]byte{wire.BGP_OPT_CAPABILITY, byte(len(all))}, all...)
}

// extended is an OPEN whose parameters have lengths of two bytes (RFC 9072).
func extended(parameters ...[]byte) []byte {
	var all []byte
	for _, p := range parameters {
		all = append(all, p[0], 0, p[1])
		all = append(all, p[2:]...)
	}
	return framed(wire.BGP_MSG_OPEN, slices.Concat([]byte{4, 64501 >> 8, 64501 & 0xff, 0, 90, 10, 0, 0, 1, 255, 255, byte(len(all) >> 8), byte(len(all))}, all)...)
}

func TestOpensThatAreUnderstood(t *testing.T) {
	speaksFour := []byte{1, 4, 0, wire.AFI_IP, 0, wire.SAFI_UNICAST}
	large := append([]byte{200, 250}, make([]byte, 250)...)
	for name, test := range map[string]struct {
		open     []byte
		families []config.Family
	}{
		"no parameters":                     {opening(90), []config.Family{config.IPv4}},
		"each capability in one of its own": {opening(90, slices.Concat(parameter(speaksFour), parameter(speaksSix), parameter(fourBytes))...), []config.Family{config.IPv4, config.IPv6}},
		"extended parameters":               {extended(parameter(speaksSix), parameter(fourBytes)), []config.Family{config.IPv6}},
		"more than 255 bytes of them":       {extended(parameter(large), parameter(speaksSix)), []config.Family{config.IPv6}},
		"an unknown capability":             {opening(90, parameter([]byte{250, 1, 7}, speaksSix)...), []config.Family{config.IPv6}},
		"an unreadable name of the router":  {opening(90, parameter([]byte{73, 0}, speaksSix)...), []config.Family{config.IPv6}},
		"an unreadable version of it":       {opening(90, parameter([]byte{75, 2, 80, 'x'}, speaksSix)...), []config.Family{config.IPv6}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
				s.Set([]plan.Peering{peering("r1", "192.0.2.1", both)})
				f := <-ends
				f.answer(test.open)
				synctest.Wait()
				if got := s.Sessions()[0]; got.State != bgp.Established || !slices.Equal(got.Families, test.families) || got.ASN != 64501 {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

// RFC 4271, section 6.2, RFC 5492, section 5, and RFC 7607.
func TestOpensAreRefusedAsTheStandardSays(t *testing.T) {
	numbered := func(asn byte) []byte {
		return framed(wire.BGP_MSG_OPEN, 4, 0, asn, 0, 90, 10, 0, 0, 1, 0)
	}
	version := opening(90)
	version[19] = 3
	for name, test := range map[string]struct {
		open    []byte
		peer    func(*config.Peer)
		subcode uint8
		data    []byte
	}{
		"version 3":                      {version, nil, wire.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER, []byte{0, 4}},
		"AS 0":                           {numbered(0), func(p *config.Peer) { p.ASN, p.Kind = 0, config.External }, wire.BGP_ERROR_SUB_BAD_PEER_AS, nil},
		"AS 0 of four bytes":             {opening(90, parameter([]byte{65, 4, 0, 0, 0, 0})...), func(p *config.Peer) { p.ASN, p.Kind = 0, config.External }, wire.BGP_ERROR_SUB_BAD_PEER_AS, nil},
		"a parameter that is none":       {opening(90, 1, 0), nil, wire.BGP_ERROR_SUB_UNSUPPORTED_OPTIONAL_PARAMETER, nil},
		"a parameter cut off":            {opening(90, 2, 9, 1), nil, 0, nil},
		"half a parameter":               {opening(90, 2), nil, 0, nil},
		"a capability cut off":           {opening(90, parameter([]byte{65, 4, 0})...), nil, 0, nil},
		"a capability of a wrong length": {opening(90, parameter([]byte{65, 2, 0, 1})...), nil, 0, nil},
		"fewer parameters than it says":  {append(opening(90)[:28], 7), nil, 0, nil},
		"no family that is asked for":    {opening(90, parameter(speaksSix, fourBytes)...), nil, wire.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY, []byte{1, 4, 0, wire.AFI_IP, 0, wire.SAFI_UNICAST}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
				s.Set([]plan.Peering{peering("r1", "192.0.2.1", test.peer)})
				f := <-ends
				f.expect(wire.BGP_MSG_OPEN)
				f.write(test.open)
				f.expectNotification(wire.BGP_ERROR_OPEN_MESSAGE_ERROR, test.subcode, test.data...)
			})
		})
	}
}

// What a router refuses an OPEN for is shown in words that lead to the cause.
func TestRefusalsOfARouterAreShown(t *testing.T) {
	for why, want := range map[[2]byte]string{
		{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER}:             "Bad BGP Identifier, it knows another session with our router ID, or has it itself",
		{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_BAD_PEER_AS}:                    "it expects another AS number of us",
		{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME}:         "it does not accept our hold time",
		{wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_CONNECTION_REJECTED}:                         "it has rejected the connection",
		{wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED}:          "it takes no more prefixes",
		{wire.BGP_ERROR_CEASE, wire.BGP_ERROR_SUB_OUT_OF_RESOURCES}:                            "out of resources",
		{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER}:     "unsupported version number",
		{wire.BGP_ERROR_OPEN_MESSAGE_ERROR, wire.BGP_ERROR_SUB_UNSUPPORTED_OPTIONAL_PARAMETER}: "it knows no capabilities (RFC 5492)",
	} {
		inBubble(t, func(t *testing.T, s *bgp.Speaker, ends <-chan *far) {
			s.Set([]plan.Peering{peering("r1", "192.0.2.1", nil)})
			f := <-ends
			f.expect(wire.BGP_MSG_OPEN)
			f.write(framed(wire.BGP_MSG_NOTIFICATION, why[:]...))
			synctest.Wait()
			got := s.Sessions()[0]
			if got.State != bgp.Idle || !strings.HasPrefix(got.Why, "the router has closed the session: ") || !strings.Contains(got.Why, want) {
				t.Errorf("%d/%d: %s because of %q, want %q", why[0], why[1], got.State, got.Why, want)
			}
		})
	}
}
