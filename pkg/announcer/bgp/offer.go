package bgp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// offer is what a router's OPEN says.
type offer struct {
	asn          uint16
	hold         time.Duration
	id           netip.Addr
	capabilities []bgp.ParameterCapabilityInterface // those that mean something to us
}

// refuse is a fault of an OPEN (RFC 4271, section 6.2).
func refuse(subcode uint8, format string, args ...any) error {
	return &fault{bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, subcode, nil, fmt.Sprintf(format, args...)}
}

// unreadable refuses parameters that are known and malformed: that has no
// subcode.
func unreadable(format string, args ...any) error {
	return refuse(0, "the router's OPEN is unreadable: "+format, args...)
}

// readOffer reads the body of an OPEN, which has its least length. It looks at
// nothing that we have no use for, so that no fault there keeps the session from
// coming up. The error is a *fault.
func readOffer(body []byte) (offer, error) {
	if body[0] != 4 {
		return offer{}, &fault{bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER, []byte{0, 4}, fmt.Sprintf("the router speaks version %d of BGP", body[0])}
	}
	o := offer{
		asn:  binary.BigEndian.Uint16(body[1:]),
		hold: time.Duration(binary.BigEndian.Uint16(body[3:])) * time.Second,
		id:   netip.AddrFrom4([4]byte(body[5:9])),
	}
	parameters, width, err := optional(body[9:])
	if err != nil {
		return offer{}, err
	}
	for len(parameters) > 0 {
		var kind uint8
		var value []byte
		if kind, value, parameters, err = cut(parameters, width); err != nil {
			return offer{}, err
		}
		if kind != bgp.BGP_OPT_CAPABILITY {
			return offer{}, refuse(bgp.BGP_ERROR_SUB_UNSUPPORTED_OPTIONAL_PARAMETER, "the router's OPEN has a parameter of the unknown type %d", kind)
		}
		if err := o.read(value); err != nil {
			return offer{}, err
		}
	}
	return o, nil
}

// optional returns the optional parameters of an OPEN, and of how many bytes
// their lengths are: 1, or 2 where there are too many (RFC 9072, section 2).
func optional(b []byte) (parameters []byte, width int, err error) {
	const extended = 255
	size, rest, width := int(b[0]), b[1:], 1
	if size > 0 && len(rest) >= 3 && rest[0] == extended {
		size, rest, width = int(binary.BigEndian.Uint16(rest[1:])), rest[3:], 2
	}
	if size != len(rest) {
		return nil, 0, unreadable("it has %d bytes of parameters, not %d", len(rest), size)
	}
	return rest, width, nil
}

// cut takes the first of several values off, each of which has its type and its
// length before it.
func cut(b []byte, width int) (kind uint8, value, rest []byte, err error) {
	head := 1 + width
	if len(b) < head {
		return 0, nil, nil, unreadable("it ends within a parameter")
	}
	size := int(b[1])
	if width == 2 {
		size = int(binary.BigEndian.Uint16(b[1:]))
	}
	if len(b) < head+size {
		return 0, nil, nil, unreadable("a parameter of %d bytes has %d", size, len(b)-head)
	}
	return b[0], b[head : head+size], b[head+size:], nil
}

// read takes what means something to us out of a list of capabilities.
func (o *offer) read(list []byte) error {
	for len(list) > 0 {
		kind, value, rest, err := cut(list, 1)
		if err != nil {
			return err
		}
		switch bgp.BGPCapabilityCode(kind) {
		case bgp.BGP_CAP_MULTIPROTOCOL, bgp.BGP_CAP_EXTENDED_NEXTHOP, bgp.BGP_CAP_GRACEFUL_RESTART, bgp.BGP_CAP_FOUR_OCTET_AS_NUMBER:
			c, err := bgp.DecodeCapability(list[:2+len(value)])
			if err != nil {
				return unreadable("capability %d: %s", kind, err)
			}
			o.capabilities = append(o.capabilities, c)
		}
		list = rest
	}
	return nil
}
