package bgp

import (
	"bufio"
	"context"
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
	again   bool         // it wants to be told all of it again
	torn    bool         // a message has not got through whole: nothing can follow it
	leaving <-chan time.Time
	refresh chan struct{} // capacity 1: the router asks to be told everything again
	reading bool          // there is a reader
	broke   error         // why it has ended; to be read after ended only
	ended   chan struct{} // closed when the reader takes no more
	done    chan struct{} // closed after that, when it touches the connection no more
}

func newSession(p *peer, via Transport) *session {
	return &session{
		p: p, via: via, in: bufio.NewReaderSize(via, mostMessage),
		refresh: make(chan struct{}, 1), ended: make(chan struct{}), done: make(chan struct{}),
	}
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
	select {
	case <-s.ended:
		<-s.done
	default:
	}
	if s.torn || s.via.SetDeadline(time.Now().Add(closeWithin)) != nil || s.write(bgp.NewBGPNotificationMessage(code, subcode, data)) != nil {
		return // there is nobody to hear it
	}
	half, ok := s.via.Conn.(interface{ CloseWrite() error })
	switch {
	case !ok || half.CloseWrite() != nil:
	case s.reading:
		select {
		case <-s.ended:
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
	_, err := s.via.Write(b)
	s.torn = err != nil
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the router takes nothing of what is sent to it")
	case err != nil:
		return fmt.Errorf("send to the router: %w", bare(err))
	}
	return nil
}

// serve advertises until the session ends.
func (s *session) serve() error {
	defer context.AfterFunc(s.p.ctx, s.via.hangUp)() // whatever is being sent
	s.up()
	s.reading = true
	go s.read()
	var keepalive <-chan time.Time
	if s.t.hold > 0 {
		keepalive = time.After(Jitter(s.t.keepalive))
	}
	for first := true; ; first = false {
		switch err := s.step(first); {
		case errors.Is(err, errFarewell):
			return err // whatever the router has said or done after that
		case err != nil:
			return s.cause(err)
		}
		select {
		case <-s.p.kick:
		case <-keepalive:
			if err := s.keepalive(); err != nil {
				return s.cause(err)
			}
			keepalive = time.After(Jitter(s.t.keepalive))
		case <-s.refresh:
			s.again = true
		case <-s.leaving:
			return s.depart()
		case <-s.ended:
			return s.broke
		case <-s.p.ctx.Done():
			return s.p.ctx.Err()
		}
	}
}

// cause returns why sending failed. What is read last says it better: a router
// that has closed the connection may have said why.
func (s *session) cause(err error) error {
	select {
	case <-s.ended:
		return s.broke
	case <-time.After(closeWithin):
		return err
	}
}

// up notes that the session is established.
func (s *session) up() {
	p := s.p
	s.send, s.mute = newSender(p.config, s.t, s.via)
	p.fresh, p.told, p.since = false, "", time.Now()
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

// step brings the router's knowledge up to date, or begins to take leave.
func (s *session) step(first bool) error {
	w, ending := s.p.wanted()
	routes := slices.DeleteFunc(slices.Clone(w.Routes), func(r plan.Route) bool {
		return !s.send.sends(config.FamilyOf(r.Prefix.Addr()))
	})
	leaving := ending != staying || w.Leaving != ""
	switch {
	case ending == stopping && w.Leaving == "" && s.t.restart:
		if err := s.tell(routes); err != nil {
			return err
		}
		return errFarewell // the router keeps the routes, and must hear of no end (RFC 4724, section 4)
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
	subcode := uint8(bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN) // RFC 4486, section 4
	switch ending {
	case removed:
		subcode = bgp.BGP_ERROR_SUB_PEER_DECONFIGURED
	case replaced:
		subcode = bgp.BGP_ERROR_SUB_OTHER_CONFIGURATION_CHANGE
	}
	s.notify(bgp.BGP_ERROR_CEASE, subcode, nil)
	s.p.o.Log.Info("BGP session closed", "peer", s.p.config.Name, "address", s.p.config.Address, "because", string(w.Leaving))
	return errFarewell
}

// tell sends what differs between routes and what the router knows:
// withdrawals first, but a changed route is replaced in place.
func (s *session) tell(routes []plan.Route) error {
	gone, changed := difference(s.sent, routes)
	if s.again {
		changed = routes
	}
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
	s.sent, s.again = routes, false
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
	if err := s.limit(); err != nil {
		return err
	}
	if err := s.writeBytes(b); err != nil {
		return err
	}
	s.p.note(func(x *Session) { x.UpdatesSent++ })
	return nil
}

func (s *session) keepalive() error {
	if err := s.limit(); err != nil {
		return err
	}
	return s.write(bgp.NewBGPKeepAliveMessage())
}

// limit bounds the next write: a router that reads nothing for the hold time is
// gone. An error says that there must be none: the reader cuts short what is
// being sent when it ends, but not what begins later.
func (s *session) limit() error {
	_ = s.via.SetWriteDeadline(time.Now().Add(s.patience())) // fails on a closed connection, and so does the write
	select {
	case <-s.ended:
		return s.broke
	default:
		return nil
	}
}

// patience is for how long a side that is not heard counts as there. A router
// that asks for no signs of life says nothing of it: then it is what we would
// have agreed to.
func (s *session) patience() time.Duration {
	if s.t.hold == 0 {
		return s.p.config.HoldTime
	}
	return s.t.hold
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
