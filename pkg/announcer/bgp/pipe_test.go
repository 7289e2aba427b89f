package bgp_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// far is a router's end of a connection without a network or a kernel: what it
// does not read holds the other side up at once. Time is the test's own
// (testing/synctest), so a test knows what has happened by when.
type far struct {
	net.Conn
	t *testing.T
}

// near gives a pipe the address that a session looks for.
type near struct{ net.Conn }

func (near) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 11)} }

// inPipe returns a Speaker, and the routers' ends of what it connects to.
func inPipe(t *testing.T) (*bgp.Speaker, <-chan *far) {
	ends := make(chan *far, 100)
	s := newSpeaker(t, func(context.Context, bgp.Target) (bgp.Transport, error) {
		a, b := net.Pipe()
		ends <- &far{b, t}
		return bgp.Transport{Conn: near{a}, IPv4: netip.MustParseAddr("192.0.2.11"), IPv6: netip.MustParseAddr("2001:db8::11")}, nil
	})
	return s, ends
}

// framed returns a message around a body.
func framed(kind uint8, body ...byte) []byte {
	b := append(slices.Repeat([]byte{0xff}, 16), 0, 0, kind)
	binary.BigEndian.PutUint16(b[16:], uint16(19+len(body)))
	return append(b, body...)
}

// opening returns an OPEN of AS 64501 with a hold time, and optional parameters
// as they are on the wire, after their length.
func opening(hold uint8, parameters ...byte) []byte {
	return framed(wire.BGP_MSG_OPEN, append([]byte{4, 64501 >> 8, 64501 & 0xff, 0, hold, 10, 0, 0, 1, byte(len(parameters))}, parameters...)...)
}

// usual is the OPEN of a router that knows AS numbers of four bytes.
func usual(hold uint8) []byte { return opening(hold, 2, 6, 65, 4, 0, 0, 64501>>8, 64501&0xff) }

// write sends bytes as they are.
func (f *far) write(b []byte) {
	f.t.Helper()
	if _, err := f.Write(b); err != nil {
		f.t.Fatalf("send to the session: %v", err)
	}
}

// next returns the type and the body of the next message.
func (f *far) next() (kind uint8, body []byte) {
	f.t.Helper()
	b, err := readWhole(f)
	if err != nil {
		f.t.Fatalf("read from the session: %v", err)
	}
	return b[18], b[19:]
}

// expect reads the next message, which must be of a type.
func (f *far) expect(kind uint8) []byte {
	f.t.Helper()
	got, body := f.next()
	if got != kind {
		f.t.Fatalf("got a message of type %d with %x, want type %d", got, body, kind)
	}
	return body
}

// answer brings a session up with an OPEN, as far as the first UPDATE.
func (f *far) answer(open []byte) {
	f.t.Helper()
	f.expect(wire.BGP_MSG_OPEN)
	f.write(open)
	f.expect(wire.BGP_MSG_KEEPALIVE)
	f.write(framed(wire.BGP_MSG_KEEPALIVE))
}

// expectNotification reads a NOTIFICATION, and then the end.
func (f *far) expectNotification(code, subcode uint8, data ...byte) {
	f.t.Helper()
	got := f.expect(wire.BGP_MSG_NOTIFICATION)
	if want := append([]byte{code, subcode}, data...); !slices.Equal(got, want) {
		f.t.Errorf("got the NOTIFICATION %v, want %v", got, want)
	}
	if n, err := io.Copy(io.Discard, f); n != 0 || err != nil {
		f.t.Errorf("after it: %d bytes, %v", n, err)
	}
}

// inBubble runs tests of sessions in pipes.
func inBubble(t *testing.T, test func(t *testing.T, s *bgp.Speaker, ends <-chan *far)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, ends := inPipe(t)
		defer s.Close()
		test(t, s, ends)
	})
}

// graceful is the OPEN of a router that keeps routes over a restart.
func graceful() []byte { return gracefulWith(90) }

func gracefulWith(hold uint8) []byte {
	return opening(hold, 2, 10, 65, 4, 0, 0, 64501>>8, 64501&0xff, 64, 2, 0, 120)
}

func keptFor(d time.Duration) func(*config.Peer) {
	return func(p *config.Peer) { p.GracefulRestart = d }
}
