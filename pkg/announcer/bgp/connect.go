package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

const (
	connectWithin = 5 * time.Second

	// openWithin is how long a router that has accepted may take to open the
	// session: one that has just started has all nodes to answer. Before that,
	// after muteAfter, it is shown that it says nothing.
	openWithin = time.Minute
	muteAfter  = 10 * time.Second

	longestPassword = 80 // bytes, of the kernel
)

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
	s := newSession(p, via)
	stopWatching := context.AfterFunc(ctx, via.hangUp)
	err = s.open()
	if err == nil {
		stopWatching() // from here on the session takes leave by itself
		err = s.serve()
		restart := p.config.GracefulRestart
		if !s.t.restart || errors.Is(err, errFarewell) {
			restart = 0
		}
		p.ended(keptUntil(time.Now(), restart, s.patience()))
	}
	if p.leftBeforeUp(ctx) {
		return errFarewell
	}
	s.report(err)
	return err
}

// keptUntil returns until when a router may keep our routes after a session is
// down for us. It counts the time of a restart, 0 for none, from when it has
// noticed itself: where a link was cut, up to its hold time after us.
func keptUntil(down time.Time, restart, hold time.Duration) time.Time {
	if restart == 0 {
		return down
	}
	return down.Add(hold + restart)
}

// begin lets end cut an attempt short.
func (p *peer) begin(cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.State != Connecting {
		p.state.State, p.state.Since = Connecting, time.Now()
	}
	p.attempt = cancel
	if p.over() {
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
	defer time.AfterFunc(muteAfter, p.mute).Stop()
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

const mute = "the router accepts the connection and says nothing"

// mute shows what a session that is being opened waits for.
func (p *peer) mute() {
	p.note(func(s *Session) {
		if s.State == Opening {
			s.Why = mute
		}
	})
}

// expect reads the next message, which must be of a kind.
func (s *session) expect(kind uint8) ([]byte, error) {
	m, err := readMessage(s.in, make([]byte, mostMessage))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &fault{bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil, mute}
	case err != nil:
		return nil, lost(err)
	case m.kind == bgp.BGP_MSG_NOTIFICATION:
		return nil, notified(m.body)
	case m.kind != kind && kind == bgp.BGP_MSG_OPEN:
		return nil, unexpected(bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENSENT_STATE, m.kind, "instead of OPEN")
	case m.kind != kind:
		return nil, unexpected(bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENCONFIRM_STATE, m.kind, "before the session is up")
	}
	return m.body, nil
}
