package l2

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// station sends and records frames of one EtherType on a link.
type station struct {
	host *host
	mac  mac
	ip   netip.Addr
	conn *packet.Conn

	mu    sync.Mutex
	heard []heardFrame
}

type heardFrame struct {
	at    time.Time
	frame []byte
}

func newStation(h *host, link string, ip netip.Addr, etherType int) *station {
	h.T.Helper()
	s := &station{host: h, mac: h.mac(link), ip: ip}
	var err error
	h.Do(func() {
		s.conn, err = packet.Listen(&net.Interface{Index: h.Link(link).Attrs().Index}, packet.Raw, etherType, nil)
	})
	h.Must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, frameRoom); ; {
			n, _, err := s.conn.ReadFrom(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.heard = append(s.heard, heardFrame{time.Now(), bytes.Clone(b[:n])})
			s.mu.Unlock()
		}
	}()
	h.T.Cleanup(func() { s.conn.Close(); <-done })
	return s
}

func (s *station) send(frame []byte) {
	s.host.T.Helper()
	if _, err := s.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		s.host.T.Fatalf("%s: send: %v", s.host.Name, err)
	}
}

// all returns what was heard so far.
func (s *station) all() []heardFrame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[:len(s.heard):len(s.heard)]
}

// neighbour returns what the kernel of the host believes of an address.
func (h *host) neighbour(link string, a netip.Addr) (mac, int) {
	h.T.Helper()
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := h.Net.NeighList(h.Link(link).Attrs().Index, family)
	h.Must(err)
	for _, n := range all {
		if got, _ := netip.AddrFromSlice(n.IP); got.Unmap() == a && len(n.HardwareAddr) == 6 {
			return mac(n.HardwareAddr), n.State
		}
	}
	return mac{}, netlink.NUD_NONE
}

// forgetNeighbour removes what the kernel of the host believes of an address.
func (h *host) forgetNeighbour(link string, a netip.Addr) {
	h.T.Helper()
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	err := h.Net.NeighDel(&netlink.Neigh{LinkIndex: h.Link(link).Attrs().Index, Family: family, IP: a.AsSlice()})
	if err != nil && err != unix.ENOENT {
		h.Must(err)
	}
}

// talker sends datagrams, so that the kernel of its host resolves addresses.
type talker struct {
	h    *host
	conn *net.UDPConn
}

func newTalker(h *host) talker {
	h.T.Helper()
	var c *net.UDPConn
	var err error
	h.Do(func() { c, err = net.ListenUDP("udp", nil) })
	h.Must(err)
	h.T.Cleanup(func() { c.Close() })
	return talker{h, c}
}

func (k talker) talkTo(a netip.Addr) {
	_, _ = k.conn.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(a, 9))
}

// resolves waits until the kernel has found out the MAC of an address.
func (k talker) resolves(link string, a netip.Addr, want mac) {
	k.h.T.Helper()
	k.h.eventually(fmt.Sprintf("%s at %s", a, want), func() bool {
		k.talkTo(a)
		got, state := k.h.neighbour(link, a)
		return got == want && state&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) != 0
	})
}
