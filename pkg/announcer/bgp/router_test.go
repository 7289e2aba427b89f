package bgp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// router is a router by hand, on the loopback: it does exactly what a test
// says, and remembers everything.
type router struct {
	t        testing.TB
	listener net.Listener
	asn      uint32
	hold     uint16
	id       netip.Addr
	narrow   bool // knows AS numbers of two bytes only
	mute     bool // accepts and says nothing
	keeps    bool // graceful restart
	families []wire.Family

	mu       sync.Mutex
	conn     net.Conn
	opens    []*wire.BGPOpen
	updates  [][]byte // whole messages
	notified []*wire.BGPNotification
	ended    []error // of connections
}

// newRouter returns a router that has not begun to listen for messages.
func newRouter(t testing.TB, edit func(*router)) *router {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &router{
		t: t, listener: l, asn: 64501, hold: 90, id: netip.MustParseAddr("10.0.0.1"),
		families: []wire.Family{wire.RF_IPv4_UC, wire.RF_IPv6_UC},
	}
	if edit != nil {
		edit(r)
	}
	t.Cleanup(func() { l.Close(); r.hangUp() })
	go r.accept()
	return r
}

// peer makes a peer the router.
func (r *router) peer(p *config.Peer) { p.Port = r.listener.Addr().(*net.TCPAddr).Port }

func (r *router) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conn = conn
		r.mu.Unlock()
		err = r.serve(conn)
		conn.Close()
		r.mu.Lock()
		r.ended = append(r.ended, err)
		r.mu.Unlock()
	}
}

func (r *router) serve(conn net.Conn) error {
	if r.mute {
		_, err := io.Copy(io.Discard, conn)
		return err
	}
	var capabilities []wire.ParameterCapabilityInterface
	for _, f := range r.families {
		capabilities = append(capabilities, wire.NewCapMultiProtocol(f))
	}
	short := uint16(r.asn)
	if !r.narrow {
		capabilities = append(capabilities, wire.NewCapFourOctetASNumber(r.asn))
	}
	if r.keeps {
		capabilities = append(capabilities, wire.NewCapGracefulRestart(false, false, 120, nil))
	}
	open, err := wire.NewBGPOpenMessage(short, r.hold, r.id, []wire.OptionParameterInterface{wire.NewOptionParameterCapability(capabilities)})
	if err != nil {
		return err
	}
	if err := errors.Join(r.write(open), r.write(wire.NewBGPKeepAliveMessage())); err != nil {
		return err
	}
	for {
		b, err := readWhole(conn)
		if err != nil {
			return err
		}
		r.take(b)
	}
}

func readWhole(conn io.Reader) ([]byte, error) {
	header := make([]byte, 19)
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint16(header[16:])
	if size < 19 || size > 4096 {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	b := append(header, make([]byte, size-19)...)
	_, err := io.ReadFull(conn, b[19:])
	return b, err
}

func (r *router) take(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch b[18] {
	case wire.BGP_MSG_UPDATE:
		r.updates = append(r.updates, b)
		return
	case wire.BGP_MSG_KEEPALIVE:
		return
	}
	m, err := wire.ParseBGPMessage(b)
	if err != nil {
		r.t.Errorf("unreadable message: %v", err)
		return
	}
	switch body := m.Body.(type) {
	case *wire.BGPOpen:
		r.opens = append(r.opens, body)
	case *wire.BGPNotification:
		r.notified = append(r.notified, body)
	}
}

// write sends a message on the connection there is.
func (r *router) write(m *wire.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return err
	}
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	_, err = conn.Write(b)
	return err
}

func (r *router) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		r.conn.Close()
	}
}

// told is a route as the router has it, or nothing after its withdrawal.
type told struct {
	hop                string
	path               []uint32
	localPref          *uint32
	communities, large string
}

// table returns what all UPDATEs so far come to.
func (r *router) table() map[string]told {
	r.mu.Lock()
	defer r.mu.Unlock()
	table := map[string]told{}
	for _, b := range r.updates {
		m, err := wire.ParseBGPMessage(b)
		if err != nil {
			r.t.Fatalf("unreadable UPDATE: %v", err)
		}
		u := m.Body.(*wire.BGPUpdate)
		for _, gone := range u.WithdrawnRoutes {
			delete(table, gone.NLRI.String())
		}
		route, nlri := read(u)
		for _, n := range nlri {
			table[n.NLRI.String()] = route
		}
		for _, a := range u.PathAttributes {
			if gone, ok := a.(*wire.PathAttributeMpUnreachNLRI); ok {
				for _, n := range gone.Value {
					delete(table, n.NLRI.String())
				}
			}
		}
	}
	return table
}

func read(u *wire.BGPUpdate) (told, []wire.PathNLRI) {
	var route told
	nlri := u.NLRI
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *wire.PathAttributeNextHop:
			route.hop = a.Value.String()
		case *wire.PathAttributeMpReachNLRI:
			route.hop, nlri = a.Nexthop.String(), append(nlri, a.Value...)
		case *wire.PathAttributeLocalPref:
			route.localPref = &a.Value
		case *wire.PathAttributeAsPath:
			for _, s := range a.Value {
				route.path = append(route.path, s.GetAS()...)
			}
		case *wire.PathAttributeCommunities:
			for _, c := range a.Value {
				route.communities += fmt.Sprintf("%d:%d ", c>>16, c&0xffff)
			}
		case *wire.PathAttributeLargeCommunities:
			route.large = fmt.Sprint(a.Values)
		}
	}
	return route, nlri
}

// counts returns how many UPDATEs there were that are no End-of-RIB, and how
// many that are.
func (r *router) counts() (updates, ends int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.updates {
		if isEnd(b) {
			ends++
		} else {
			updates++
		}
	}
	return updates, ends
}

func isEnd(b []byte) bool {
	empty := []byte{0, 0, 0, 0}                         // no withdrawal, no attribute
	six := []byte{0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1}     // an empty MP_UNREACH_NLRI of IPv6
	long := []byte{0, 0, 0, 7, 0x90, 15, 0, 3, 0, 2, 1} // the same with a length of two bytes
	return bytes.Equal(b[19:], empty) || bytes.Equal(b[19:], six) || bytes.Equal(b[19:], long)
}

func (r *router) lastNotified() (code, subcode uint8, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.notified) == 0 {
		return 0, 0, false
	}
	n := r.notified[len(r.notified)-1]
	return n.ErrorCode, n.ErrorSubcode, true
}

func (r *router) endings() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ended)
}

// waitTable waits until the router has exactly so many prefixes.
func (r *router) waitTable(want int) map[string]told {
	r.t.Helper()
	var table map[string]told
	eventually(r.t, func() error {
		if table = r.table(); len(table) != want {
			return fmt.Errorf("the router has %d prefixes, want %d", len(table), want)
		}
		return nil
	})
	return table
}

// waitNotified waits for a NOTIFICATION.
func (r *router) waitNotified(code, subcode uint8) {
	r.t.Helper()
	eventually(r.t, func() error {
		c, s, found := r.lastNotified()
		if !found || c != code || s != subcode {
			return fmt.Errorf("notified %d/%d (%t), want %d/%d", c, s, found, code, subcode)
		}
		return nil
	})
}

// quiet fails if the router gets an UPDATE within some time.
func (r *router) quiet(d time.Duration) {
	r.t.Helper()
	before, _ := r.counts()
	time.Sleep(d)
	if after, _ := r.counts(); after != before {
		r.t.Errorf("%d UPDATEs while nothing changed", after-before)
	}
}
