package bgp_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// dialled returns the connection of a session with a router that the node has
// made as the settings of the peer want it.
func (h *host) dialled(address string, edit func(*config.Peer)) *net.TCPConn {
	h.T.Helper()
	made := make(chan *net.TCPConn, 1)
	s := bgp.New(bgp.Options{
		Node: h.Name, Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, target bgp.Target) (bgp.Transport, error) {
			via, err := h.dial(ctx, target)
			if err == nil {
				select {
				case made <- via.Conn.(*net.TCPConn):
				default: // a later attempt
				}
			}
			return via, err
		},
	})
	h.T.Cleanup(s.Close)
	s.Set([]plan.Peering{peering("r1", address, edit)})
	select {
	case conn := <-made:
		return conn
	case <-time.After(patience):
		h.T.Fatalf("no connection with %s: %+v", address, s.Sessions())
		return nil
	}
}

// RFC 4271, appendix E: under a flood the packets of the session come first.
// Without multihop they go no further than one hop (B-124), and TTL security
// wants them to begin with 255 (RFC 5082, section 3).
func TestPacketsOfASessionAreThoseOfTheNetworkItself(t *testing.T) {
	l := newLAN(t, 1)
	l.router.Sysctl("net/ipv4/ip_default_ttl", "255") // else TTL security drops what it says
	l.router.Sysctl("net/ipv6/conf/br0/hop_limit", "255")
	type options struct{ level, class, ttl, minimum int }
	for address, o := range map[string]options{
		"192.0.2.1":   {unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL, unix.IP_MINTTL},
		"2001:db8::1": {unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT},
	} {
		var listener net.Listener
		var err error
		l.router.Do(func() { listener, err = net.Listen("tcp", net.JoinHostPort(address, "179")) })
		l.router.Must(err)
		t.Cleanup(func() { listener.Close() })
		for name, test := range map[string]struct {
			edit         func(*config.Peer)
			ttl, minimum int
		}{
			"usual":                    {nil, 1, 0},
			"a hop more":               {func(p *config.Peer) { p.Multihop = 2 }, 2, 0},
			"as far as can be":         {func(p *config.Peer) { p.Multihop = 255 }, 255, 0},
			"internal":                 {internal, 64, 0}, // the kernel's own
			"TTL security":             {func(p *config.Peer) { p.TTLSecurity = 1 }, 255, 255},
			"TTL security, three hops": {func(p *config.Peer) { p.TTLSecurity = 3 }, 255, 253},
		} {
			got := optionsOf(t, l.nodes[0].dialled(address, test.edit), o.level, o.class, o.ttl, o.minimum)
			if want := []int{networkControl, test.ttl, test.minimum}; !slices.Equal(got, want) {
				t.Errorf("%s, %s: class, TTL and least TTL are %d, want %d", address, name, got, want)
			}
		}
	}
}

const networkControl = 0xc0 // CS6

// optionsOf returns options of a socket.
func optionsOf(t *testing.T, conn *net.TCPConn, level int, options ...int) []int {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var values []int
	err = raw.Control(func(fd uintptr) {
		for _, option := range options {
			value, err := unix.GetsockoptInt(int(fd), level, option)
			if err != nil {
				t.Errorf("option %d: %v", option, err)
			}
			values = append(values, value)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return values
}
