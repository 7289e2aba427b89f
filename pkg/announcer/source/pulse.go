package source

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// silentAfter is for how long nothing may come from the API server. A
	// connection at rest is pinged every few seconds, if it is HTTP/2.
	silentAfter = 12 * time.Second

	dialWithin = 10 * time.Second
)

// pulse knows when the API server was last heard: a connection that is cut
// without a word looks alive for long. It watches the bytes that come in, so
// it costs no request.
type pulse struct {
	born  time.Time
	heard atomic.Int64 // when bytes last came, since born
	pings atomic.Bool  // answers come by HTTP/2, so silence means something
}

// dial connects to the API server.
func (p *pulse) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialWithin, KeepAlive: dialWithin}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return pulseConn{c, p}, nil
}

type pulseConn struct {
	net.Conn
	pulse *pulse
}

func (c pulseConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.pulse.heard.Store(int64(time.Since(c.pulse.born)))
	}
	return n, err
}

// wrap notes by which protocol answers come.
func (p *pulse) wrap(next http.RoundTripper) http.RoundTripper { return pulseTripper{next, p} }

type pulseTripper struct {
	next  http.RoundTripper
	pulse *pulse
}

func (t pulseTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil {
		t.pulse.pings.Store(response.ProtoMajor >= 2)
	}
	return response, err
}

// silentSince returns since when nothing has come from the API server, zero if
// that is not for long, or means nothing.
func (p *pulse) silentSince(now time.Time) time.Time {
	last := p.born.Add(time.Duration(p.heard.Load()))
	if !p.pings.Load() || now.Sub(last) < silentAfter {
		return time.Time{}
	}
	return last
}
