package bgp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	// connectWithin bounds an attempt to connect, openWithin how long a router
	// that has accepted may say nothing.
	connectWithin = 5 * time.Second
	openWithin    = 10 * time.Second

	// closeWithin bounds the last word on a connection.
	closeWithin = time.Second

	longestPassword = 80 // bytes, of the kernel
)

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

// connect brings a session up and keeps it until it ends. The error says why.
func (p *peer) connect() error {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	p.begin(cancel)
	target, err := p.target(ctx)
	if err != nil {
		return err
	}
	dialing, stop := context.WithTimeout(ctx, connectWithin)
	defer stop()
	via, err := p.o.Dial(dialing, target)
	if err != nil {
		return p.unreachable(err, target)
	}
	defer via.hangUp()
	p.note(func(s *Session) {
		s.State, s.Local = Opening, via.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	})
	s := &session{p: p, via: via, in: bufio.NewReaderSize(via, mostMessage), refresh: make(chan struct{}, 1), ended: make(chan error, 1)}
	stopWatching := context.AfterFunc(ctx, via.hangUp)
	err = s.open()
	if err == nil {
		stopWatching() // from here on the session takes leave by itself
		err = s.serve()
	}
	if p.leftBeforeUp(ctx) {
		return errFarewell
	}
	s.report(err)
	return err
}

// begin lets end cut an attempt short.
func (p *peer) begin(cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.State != Connecting {
		p.state.State, p.state.Since = Connecting, time.Now()
	}
	p.attempt = cancel
	if p.ending != staying {
		cancel()
	}
}

// leftBeforeUp tells whether an attempt was cut short by end.
func (p *peer) leftBeforeUp(attempt context.Context) bool {
	return attempt.Err() != nil && p.ctx.Err() == nil
}

// target says how to connect.
func (p *peer) target(ctx context.Context) (Target, error) {
	c := p.config
	t := Target{Address: c.Address, Port: c.Port, Source: c.SourceAddress}
	switch {
	case c.TTLSecurity > 0:
		t.TTL, t.MinimumTTL = 255, 256-c.TTLSecurity // RFC 5082, section 3
	case !c.Internal():
		t.TTL = c.Multihop
	}
	if c.PasswordSecret == "" {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	password, err := p.o.Password(ctx, c.PasswordSecret)
	switch {
	case err == nil && len(password) > longestPassword:
		return t, fmt.Errorf("the password in Secret %s has more than %d bytes", c.PasswordSecret, longestPassword)
	case err == nil && password == "":
		return t, fmt.Errorf("the password in Secret %s is empty", c.PasswordSecret)
	case err == nil:
		p.password = password
	case p.password == "":
		return t, fmt.Errorf("the password: %w", err)
	}
	t.Password = p.password
	return t, nil
}

// unreachable puts into words why a router could not be connected to.
func (p *peer) unreachable(err error, t Target) error {
	if p.ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return errFarewell
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return bare(err)
	}
	hint := "it is away, drops our packets, or expects a password"
	if t.Password != "" {
		hint = "authentication is failing, or it is away: routers do not answer what is signed with another password than theirs"
	}
	if t.TTL == 1 {
		hint += "; a router that is not on our link needs multihop"
	}
	return fmt.Errorf("connect: no answer within %s: %s", connectWithin, hint)
}

// bare leaves the addresses out, which everybody knows and one of which is new
// each time.
func bare(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// open exchanges OPEN and KEEPALIVE (RFC 4271, section 8.2.2).
func (s *session) open() error {
	p := s.p
	if err := s.via.SetDeadline(time.Now().Add(openWithin)); err != nil {
		return fmt.Errorf("set a time limit: %w", err)
	}
	open, err := p.openMessage(p.fresh)
	if err != nil {
		return fmt.Errorf("make an OPEN: %w", err)
	}
	if err := s.write(open); err != nil {
		return err
	}
	body, err := s.expect(bgp.BGP_MSG_OPEN)
	if err != nil {
		return err
	}
	if s.t, err = p.agree(body); err != nil {
		return err
	}
	if err := s.write(bgp.NewBGPKeepAliveMessage()); err != nil {
		return err
	}
	_, err = s.expect(bgp.BGP_MSG_KEEPALIVE)
	return err
}

// expect reads the next message, which must be of a kind.
func (s *session) expect(kind uint8) ([]byte, error) {
	m, err := readMessage(s.in, make([]byte, mostMessage))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &fault{bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil, fmt.Sprintf("the router accepts the connection and says nothing for %s", openWithin)}
	case err != nil:
		return nil, lost(err)
	case m.kind == bgp.BGP_MSG_NOTIFICATION:
		return nil, notified(m.body)
	case m.kind != kind:
		return nil, &fault{bgp.BGP_ERROR_FSM_ERROR, 0, nil, fmt.Sprintf("the router sends a message of type %d before the session is up", m.kind)}
	}
	return m.body, nil
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
