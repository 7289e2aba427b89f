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
	h.t.Helper()
	s := &station{host: h, mac: h.mac(link), ip: ip}
	var err error
	h.do(func() {
		s.conn, err = packet.Listen(&net.Interface{Index: h.byName(link).Attrs().Index}, packet.Raw, etherType, nil)
	})
	h.must(err)
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
	h.t.Cleanup(func() { s.conn.Close(); <-done })
	return s
}

func (s *station) send(frame []byte) {
	s.host.t.Helper()
	if _, err := s.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		s.host.t.Fatalf("%s: send: %v", s.host.name, err)
	}
}

// all returns what was heard so far.
func (s *station) all() []heardFrame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[:len(s.heard):len(s.heard)]
}

// arps returns the ARP packets heard so far.
func (s *station) arps() []arpPacket {
	var out []arpPacket
	for _, f := range s.all() {
		if p, ok := parseARP(f.frame); ok {
			out = append(out, p)
		}
	}
	return out
}

// replies returns the ARP replies to this station about an address.
func (s *station) replies(a netip.Addr) []arpPacket {
	var out []arpPacket
	for _, p := range s.arps() {
		if p.operation == arpReply && p.dst == s.mac && p.senderIP == a {
			out = append(out, p)
		}
	}
	return out
}

// announcements returns the announcements of an address by a MAC.
func (s *station) announcements(a netip.Addr, by mac) []arpPacket {
	var out []arpPacket
	for _, p := range s.arps() {
		if p.dst == broadcast && p.senderIP == a && p.targetIP == a && p.senderMAC == by {
			out = append(out, p)
		}
	}
	return out
}

// request is this station's broadcast request for an address.
func (s *station) request(a netip.Addr) arpPacket {
	return arpPacket{
		dst: broadcast, src: s.mac, operation: arpRequest,
		senderMAC: s.mac, senderIP: s.ip, targetIP: a,
	}
}

// arping asks for an address until it is answered, and returns by which MAC.
func (s *station) arping(a netip.Addr) mac {
	s.host.t.Helper()
	before := len(s.replies(a))
	s.asks(a, func() { s.send(s.request(a).appendTo(nil)) }, func() bool { return len(s.replies(a)) > before })
	return s.replies(a)[before].senderMAC
}

// asks waits for an answer. It asks again only after a time in which an answer
// must have come, so that tests can count answers.
func (s *station) asks(a netip.Addr, ask func(), answered func() bool) {
	s.host.t.Helper()
	for range 3 {
		ask()
		for end := time.Now().Add(patience / 3); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if answered() {
				return
			}
		}
	}
	s.host.t.Fatalf("%s: nobody answers for %s", s.host.name, a)
}

// unanswered asks for an address and fails if there is an answer. The answer to
// a request for sentinel, sent later, proves that there was time for one.
func (s *station) unanswered(a, sentinel netip.Addr) {
	s.host.t.Helper()
	before := len(s.replies(a))
	for range 3 {
		s.send(s.request(a).appendTo(nil))
	}
	s.arping(sentinel)
	if n := len(s.replies(a)) - before; n != 0 {
		s.host.t.Errorf("%s: %d answers for %s, want none", s.host.name, n, a)
	}
}

// neighbour returns what the kernel of the host believes of an address.
func (h *host) neighbour(link string, a netip.Addr) (mac, int) {
	h.t.Helper()
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := h.nl.NeighList(h.byName(link).Attrs().Index, family)
	h.must(err)
	for _, n := range all {
		if got, _ := netip.AddrFromSlice(n.IP); got.Unmap() == a && len(n.HardwareAddr) == 6 {
			return mac(n.HardwareAddr), n.State
		}
	}
	return mac{}, netlink.NUD_NONE
}

// forgetNeighbour removes what the kernel of the host believes of an address.
func (h *host) forgetNeighbour(link string, a netip.Addr) {
	h.t.Helper()
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	err := h.nl.NeighDel(&netlink.Neigh{LinkIndex: h.byName(link).Attrs().Index, Family: family, IP: a.AsSlice()})
	if err != nil && err != unix.ENOENT {
		h.must(err)
	}
}

// talker sends datagrams, so that the kernel of its host resolves addresses.
type talker struct {
	h    *host
	conn *net.UDPConn
}

func newTalker(h *host) talker {
	h.t.Helper()
	var c *net.UDPConn
	var err error
	h.do(func() { c, err = net.ListenUDP("udp", nil) })
	h.must(err)
	h.t.Cleanup(func() { c.Close() })
	return talker{h, c}
}

func (k talker) talkTo(a netip.Addr) {
	_, _ = k.conn.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(a, 9))
}

// resolves waits until the kernel has found out the MAC of an address.
func (k talker) resolves(link string, a netip.Addr, want mac) {
	k.h.t.Helper()
	k.h.eventually(fmt.Sprintf("%s at %s", a, want), func() bool {
		k.talkTo(a)
		got, state := k.h.neighbour(link, a)
		return got == want && state&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) != 0
	})
}
