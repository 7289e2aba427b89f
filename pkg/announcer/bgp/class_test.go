package bgp_test

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
)

// RFC 4271, appendix E: under a flood the packets of the session come first.
func TestPacketsOfASessionAreThoseOfTheNetworkItself(t *testing.T) {
	l := newLAN(t, 1)
	for address, option := range map[string][2]int{
		"192.0.2.1": {unix.IPPROTO_IP, unix.IP_TOS}, "2001:db8::1": {unix.IPPROTO_IPV6, unix.IPV6_TCLASS},
	} {
		var listener net.Listener
		var err error
		l.router.Do(func() { listener, err = net.Listen("tcp", net.JoinHostPort(address, "179")) })
		l.router.Must(err)
		t.Cleanup(func() { listener.Close() })
		via, err := l.nodes[0].dial(t.Context(), bgp.Target{Address: netip.MustParseAddr(address), Port: 179})
		l.router.Must(err)
		t.Cleanup(func() { via.Close() })
		raw, err := via.Conn.(*net.TCPConn).SyscallConn()
		l.router.Must(err)
		l.router.Must(raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptInt(int(fd), option[0], option[1]); got != 0xc0 || err != nil {
				t.Errorf("%s: class %#x, %v, want CS6", address, got, err)
			}
		}))
	}
}
