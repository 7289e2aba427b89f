package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Target is where a session goes, and what its packets are like.
type Target struct {
	Address    netip.Addr
	Port       int
	Source     netip.Addr // invalid: as the kernel chooses
	TTL        int        // 0: the kernel's
	MinimumTTL int        // packets with less are dropped; 0: none
	Password   string     // empty: none; 80 bytes at most
}

// Transport is a connection and the addresses that packets for this node can
// be sent to on its link.
type Transport struct {
	net.Conn
	IPv4      netip.Addr // invalid: the link has none
	IPv6      netip.Addr // global
	LinkLocal netip.Addr // without its zone; invalid unless the router is on the link
}

// hangUp closes the connection. Whoever does so has no use for it any more.
func (t Transport) hangUp() { _ = t.Close() }

var errNoMD5 = errors.New("MD5 is not supported by this kernel, and the session is not brought up without the password")

// Dial connects to a router. It fails rather than connect without a password.
func Dial(ctx context.Context, t Target) (Transport, error) {
	d := net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var fault error
		err := c.Control(func(fd uintptr) { fault = t.prepare(int(fd)) })
		return errors.Join(err, fault)
	}}
	if t.Source.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: t.Source.AsSlice()}
	}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(t.Address.String(), strconv.Itoa(t.Port)))
	if err != nil {
		return Transport{}, err
	}
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	links, err := net.Interfaces()
	if err != nil {
		return Transport{}, errors.Join(fmt.Errorf("list links: %w", err), conn.Close())
	}
	return nextHops(Transport{Conn: conn}, local, t.Address, linkAddresses(links)), nil
}

// networkControl is the class of packets without which there is no network
// (RFC 4271, appendix E): a flood of others does not end the session.
const networkControl = 6 << 5

// prepare sets the options of a socket before it connects.
func (t Target) prepare(fd int) error {
	if t.Password != "" {
		err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, signature(t.Address, t.Password))
		switch {
		case errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.EPERM):
			return errNoMD5
		case err != nil:
			return fmt.Errorf("set the password: %w", err)
		}
	}
	level, class, ttl, minimum := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL, unix.IP_MINTTL
	if t.Address.Is6() {
		level, class, ttl, minimum = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT
	}
	for option, value := range map[int]int{class: networkControl, ttl: t.TTL, minimum: t.MinimumTTL} {
		if value == 0 {
			continue
		}
		if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
			return fmt.Errorf("set the class or the TTL of packets: %w", err)
		}
	}
	return nil
}

// signature is what the kernel has to know to sign segments (RFC 2385).
func signature(a netip.Addr, password string) *unix.TCPMD5Sig {
	s := &unix.TCPMD5Sig{}
	s.Keylen = uint16(copy(s.Key[:], password))
	if a.Is4() {
		s.Addr.Family = unix.AF_INET
		copy(s.Addr.Data[2:], a.AsSlice()) // after the port
	} else {
		s.Addr.Family = unix.AF_INET6
		copy(s.Addr.Data[6:], a.AsSlice()) // after port and flow label
	}
	return s
}

// link is a link of the node with its addresses.
type link struct {
	name      string
	addresses []netip.Prefix
}

// linkAddresses returns all links; one that has just gone has no addresses.
func linkAddresses(links []net.Interface) []link {
	var out []link
	for _, l := range links {
		addresses, err := l.Addrs()
		if err != nil {
			continue
		}
		of := link{name: l.Name}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				of.addresses = append(of.addresses, p)
			}
		}
		out = append(out, of)
	}
	return out
}

// holds tells whether an address is the link's. Several links may have the
// same link-local one, which therefore has the link's name with it.
func (l link) holds(a netip.Addr) bool {
	return (a.Zone() == "" || a.Zone() == l.name) &&
		slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr() == a.WithZone("") })
}

// nextHops adds the addresses of the link that the local end of a session is
// on: the local end itself, and the first of each other kind.
func nextHops(t Transport, local, router netip.Addr, links []link) Transport {
	t.add(local.WithZone(""))
	i := slices.IndexFunc(links, func(l link) bool { return l.holds(local) })
	if i < 0 {
		return t
	}
	neighbour := slices.ContainsFunc(links[i].addresses, func(p netip.Prefix) bool { return p.Contains(router.WithZone("")) })
	for _, p := range links[i].addresses {
		if !p.Addr().IsLinkLocalUnicast() || neighbour {
			t.add(p.Addr())
		}
	}
	return t
}

func (t *Transport) add(a netip.Addr) {
	slot := &t.IPv6
	switch {
	case a.IsLoopback():
		return
	case a.Is4():
		slot = &t.IPv4
	case a.IsLinkLocalUnicast():
		slot = &t.LinkLocal
	}
	if !slot.IsValid() {
		*slot = a
	}
}
