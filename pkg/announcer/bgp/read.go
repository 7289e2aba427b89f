package bgp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// read takes what the router says until the connection ends.
func (s *session) read() {
	defer close(s.done)
	buffer := make([]byte, mostMessage)
	for {
		var deadline time.Time
		if s.t.hold > 0 {
			deadline = time.Now().Add(s.t.hold)
		}
		err := s.via.SetReadDeadline(deadline)
		if err == nil {
			err = s.readOne(buffer)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = &fault{bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil, fmt.Sprintf("the router has been silent for the hold time of %s", s.t.hold)}
		case err != nil:
			err = lost(err)
		}
		if err != nil {
			s.broke = err
			close(s.ended)
			_ = s.via.SetWriteDeadline(time.Now()) // what is being sent now has nobody to wait for
			return
		}
	}
}

func (s *session) readOne(buffer []byte) error {
	m, err := readMessage(s.in, buffer)
	if err != nil {
		return err
	}
	return s.take(m)
}

// take handles one message. Routes are not for us.
func (s *session) take(m message) error {
	switch m.kind {
	case bgp.BGP_MSG_KEEPALIVE:
	case bgp.BGP_MSG_UPDATE:
		s.p.note(func(x *Session) { x.UpdatesReceived++ })
	case bgp.BGP_MSG_ROUTE_REFRESH:
		if s.t.refreshes(m.body) {
			select {
			case s.refresh <- struct{}{}:
			default:
			}
		}
	case bgp.BGP_MSG_NOTIFICATION:
		return notified(m.body)
	default:
		return unexpected(bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_ESTABLISHED_STATE, m.kind, "when the session is up")
	}
	return nil
}

// refreshes tells whether a ROUTE-REFRESH asks for routes that both sides
// speak of. Any other means nothing (RFC 2918, section 4).
func (t terms) refreshes(body []byte) bool {
	asked := bgp.NewFamily(binary.BigEndian.Uint16(body), body[3])
	return slices.ContainsFunc(t.families, func(f config.Family) bool { return families[f] == asked })
}

// lost puts the end of a connection into words; faults have theirs already.
func lost(err error) error {
	var f *fault
	if errors.As(err, &f) {
		return err
	}
	return fmt.Errorf("the router has closed the connection: %w", bare(err))
}
