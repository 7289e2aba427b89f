package bgp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// closeWithin bounds the last word on a connection.
const closeWithin = time.Second

// errFarewell: the session has ended as it was wanted to.
var errFarewell = errors.New("farewell")

// session is one connection to a router that has been brought up.
type session struct {
	p    *peer
	via  Transport
	in   *bufio.Reader
	t    terms
	send sender
	mute map[config.Family]string

	sent    []plan.Route // what the router has been told, sorted by prefix
	leaving <-chan time.Time
	refresh chan struct{} // capacity 1: the router wants to be told everything again
	reading bool          // there is a reader
	ended   chan error    // of the reader; capacity 1
}

// lost puts the end of a connection into words; faults have theirs already.
func lost(err error) error {
	var f *fault
	if errors.As(err, &f) {
		return err
	}
	return fmt.Errorf("the router has closed the connection: %w", bare(err))
}

// report sends the NOTIFICATION that belongs to an error.
func (s *session) report(err error) {
	var f *fault
	if errors.As(err, &f) {
		s.notify(f.code, f.subcode, f.data)
	}
}

// notify says the last word and gives the router a moment to read it: closing
// with something unread would take it back.
func (s *session) notify(code, subcode uint8, data []byte) {
	if s.via.SetDeadline(time.Now().Add(closeWithin)) != nil || s.write(bgp.NewBGPNotificationMessage(code, subcode, data)) != nil {
		return // there is nobody to hear it
	}
	half, ok := s.via.Conn.(interface{ CloseWrite() error })
	switch {
	case !ok || half.CloseWrite() != nil:
	case s.reading:
		select {
		case err := <-s.ended:
			s.ended <- err
		case <-time.After(closeWithin):
		}
	default:
		_, _ = io.Copy(io.Discard, s.via) // until the router hangs up, or the deadline
	}
}

func (s *session) write(m *bgp.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	return s.writeBytes(b)
}

func (s *session) writeBytes(b []byte) error {
	if _, err := s.via.Write(b); err != nil {
		return fmt.Errorf("send to the router: %w", bare(err))
	}
	return nil
}

// serve advertises until the session ends.
func (s *session) serve() error {
	s.up()
	s.reading = true
	go s.read()
	keepalive := make(<-chan time.Time)
	if s.t.hold > 0 {
		ticker := time.NewTicker(s.t.keepalive)
		defer ticker.Stop()
		keepalive = ticker.C
	}
	for first := true; ; first = false {
		if err := s.step(first); err != nil {
			return s.cause(err)
		}
		select {
		case <-s.p.kick:
		case <-keepalive:
			s.limit()
			if err := s.write(bgp.NewBGPKeepAliveMessage()); err != nil {
				return s.cause(err)
			}
		case <-s.refresh:
			s.sent = nil
		case <-s.leaving:
			return s.depart()
		case err := <-s.ended:
			s.ended <- err // for notify
			return err
		case <-s.p.ctx.Done():
			return s.p.ctx.Err()
		}
	}
}

// cause returns why sending failed: what was read last says it better.
func (s *session) cause(err error) error {
	select {
	case read := <-s.ended:
		s.ended <- read
		return read
	default:
		return err
	}
}

// up notes that the session is established.
func (s *session) up() {
	p := s.p
	s.send, s.mute = newSender(p.config, s.t, s.via)
	p.fresh, p.told = false, ""
	p.note(func(x *Session) {
		x.State, x.Why, x.ASN, x.Internal, x.Restarting = Established, "", s.t.asn, s.send.internal, s.t.restart
		x.Families, x.Mute = nil, s.mute
		for _, f := range p.config.Families {
			if s.send.sends(f) {
				x.Families = append(x.Families, f)
			}
		}
		x.Times++
	})
	p.o.Log.Info("BGP session established", "peer", p.config.Name, "address", p.config.Address, "asn", s.t.asn, "holdTime", s.t.hold)
	for f, why := range s.mute {
		p.o.Log.Warn("BGP session does not carry a family", "peer", p.config.Name, "family", string(f), "because", why)
	}
}

// read takes what the router says until the connection ends.
func (s *session) read() {
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
			s.ended <- err
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
		select {
		case s.refresh <- struct{}{}:
		default:
		}
	case bgp.BGP_MSG_NOTIFICATION:
		return notified(m.body)
	default:
		return &fault{bgp.BGP_ERROR_FSM_ERROR, 0, nil, fmt.Sprintf("the router sends a message of type %d", m.kind)}
	}
	return nil
}

// step brings the router's knowledge up to date, or begins to take leave.
func (s *session) step(first bool) error {
	w, ending := s.p.wanted()
	routes := slices.DeleteFunc(slices.Clone(w.Routes), func(r plan.Route) bool {
		return !s.send.sends(config.FamilyOf(r.Prefix.Addr()))
	})
	leaving := ending != staying || w.Leaving != ""
	switch {
	case ending == stopping && w.Leaving == "" && s.t.restart:
		return errFarewell // the router keeps the routes, and must not hear a word (RFC 4724, section 4)
	case leaving && len(routes) == 0 && len(s.sent) == 0:
		return s.depart()
	case leaving:
		s.takeLeave(w.Pause)
		routes = avoided(routes)
	case s.leaving != nil:
		s.leaving = nil
		s.p.note(func(x *Session) { x.State = Established })
	}
	if err := s.tell(routes); err != nil {
		return err
	}
	if !first {
		return nil
	}
	return s.toldAll()
}

// takeLeave starts the pause after which the routes are withdrawn.
func (s *session) takeLeave(pause time.Duration) {
	if s.leaving == nil {
		s.leaving = time.After(pause)
		s.p.note(func(x *Session) { x.State = Leaving })
	}
}

// avoided returns routes as routers should use them last (RFC 8326).
func avoided(routes []plan.Route) []plan.Route {
	out := slices.Clone(routes)
	for i := range out {
		communities := append(slices.Clone(out[i].Communities), config.GracefulShutdown)
		slices.SortFunc(communities, config.Community.Compare)
		out[i].Communities, out[i].LocalPref = slices.Compact(communities), 0
	}
	return out
}

// depart withdraws everything and closes the session.
func (s *session) depart() error {
	w, ending := s.p.wanted()
	if err := s.tell(nil); err != nil {
		return s.cause(err)
	}
	subcode := uint8(bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN)
	if ending == removed {
		subcode = bgp.BGP_ERROR_SUB_PEER_DECONFIGURED
	}
	s.notify(bgp.BGP_ERROR_CEASE, subcode, nil)
	s.p.o.Log.Info("BGP session closed", "peer", s.p.config.Name, "address", s.p.config.Address, "because", string(w.Leaving))
	return errFarewell
}

// tell sends what differs between routes and what the router knows:
// withdrawals first, but a changed route is replaced in place.
func (s *session) tell(routes []plan.Route) error {
	gone, changed := difference(s.sent, routes)
	withdrawals, err := s.send.withdrawals(gone)
	if err != nil {
		return err
	}
	announcements, err := s.send.announcements(changed)
	if err != nil {
		return err
	}
	for _, b := range slices.Concat(withdrawals, announcements) {
		if err := s.update(b.bytes); err != nil {
			return err
		}
	}
	s.sent = routes
	s.p.note(func(x *Session) { x.Advertised = routes })
	return nil
}

// toldAll says so for every family both sides speak.
func (s *session) toldAll() error {
	for _, f := range s.t.families {
		b, err := s.send.endOfRIB(f)
		if err != nil {
			return err
		}
		if err := s.update(b); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) update(b []byte) error {
	s.limit()
	if err := s.writeBytes(b); err != nil {
		return err
	}
	s.p.note(func(x *Session) { x.UpdatesSent++ })
	return nil
}

// limit bounds the next write: a router that reads nothing for the hold time is gone.
func (s *session) limit() {
	within := s.t.hold
	if within == 0 {
		within = s.p.config.HoldTime
	}
	_ = s.via.SetWriteDeadline(time.Now().Add(within)) // fails on a closed connection, and so does the write
}

// difference returns the prefixes that are in before only, and the routes of
// after of which a router does not know yet. Both are sorted by prefix.
func difference(before, after []plan.Route) (gone []netip.Prefix, changed []plan.Route) {
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = plan.ComparePrefixes(before[0].Prefix, after[0].Prefix)
		}
		if order < 0 {
			gone = append(gone, before[0].Prefix)
		} else if order > 0 || !before[0].Same(after[0]) {
			changed = append(changed, after[0])
		}
		if order <= 0 {
			before = before[1:]
		}
		if order >= 0 {
			after = after[1:]
		}
	}
	return gone, changed
}
