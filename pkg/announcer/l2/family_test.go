package l2

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// family is IPv4 with ARP, or IPv6 with NDP. What holds for one on the wire
// holds for the other, and is tested once.
type family struct {
	name      string
	protocol  protocol
	number    int // of netlink
	vip, vip2 netip.Addr
	clientIP  netip.Addr
	offSubnet netip.Addr
	kernel    netip.Addr // of the node
	bits      string     // prefix length of the subnet
}

var families = []family{
	{
		name: "ARP", protocol: arpProtocol{}, number: netlink.FAMILY_V4, vip: vip, vip2: vip2, clientIP: clientIP,
		offSubnet: addr("203.0.113.50"), kernel: addr("192.0.2.1"), bits: "/24",
	},
	{
		name: "NDP", protocol: ndpProtocol{}, number: netlink.FAMILY_V6, vip: vip6, vip2: addr("2001:db8::11"), clientIP: clientIP6,
		offSubnet: addr("2001:db8:113::50"), kernel: addr("2001:db8::1"), bits: "/64",
	},
}

// eachFamily runs a test for both.
func eachFamily(t *testing.T, test func(t *testing.T, f family)) {
	t.Parallel()
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// station returns one on a link of a host that gets the client's address.
func (f family) station(h *host, link string) *station {
	h.T.Helper()
	h.Address(link, f.clientIP.String()+f.bits)
	return newStation(h, link, f.clientIP, f.protocol.etherType())
}

// pair is a node with a speaker and a client, on one cable.
type pair struct {
	node, client *host
	speaker      *Speaker
	station      *station // of the client
}

func newPair(t testing.TB, f family) pair {
	t.Helper()
	p := pair{node: newHost(t, "node"), client: newHost(t, "client")}
	cable(p.node, "eth0", p.client, "eth0")
	p.node.Sysctl("net/ipv4/ip_forward", "1") // as on every node
	p.node.Sysctl("net/ipv6/conf/all/forwarding", "1")
	p.node.Address("eth0", f.kernel.String()+f.bits)
	p.speaker = p.node.speaker()
	p.station = f.station(p.client, "eth0")
	return p
}

// own is an announcement on the node's link as it is now.
func (p pair) own(a netip.Addr) plan.Announcement { return own(a, p.node.link("eth0")) }

// segment is a switch with nodes n1 and n2, a speaker on each, and a client.
type segment struct {
	lan
	n1, n2, client *host
	s1, s2         *Speaker
	station        *station
}

func newSegment(t testing.TB, f family) segment {
	t.Helper()
	s := segment{lan: newLAN(t), n1: newHost(t, "n1"), n2: newHost(t, "n2"), client: newHost(t, "client")}
	for _, h := range []*host{s.n1, s.n2, s.client} {
		s.plug(h, "eth0")
	}
	s.s1, s.s2 = s.n1.speaker(), s.n2.speaker()
	s.station = f.station(s.client, "eth0")
	return s
}

// own is an announcement on a node's link, in a cluster of both nodes.
func (s segment) own(node *host, a netip.Addr) plan.Announcement {
	an := own(a, node.link("eth0"))
	an.Peers = map[string]string{}
	for _, peer := range []*host{s.n1, s.n2} {
		if peer != node {
			an.Peers[peer.mac("eth0").String()] = peer.Name
		}
	}
	return an
}

func (s segment) yielded(node *host, a netip.Addr) plan.Announcement {
	an := s.own(node, a)
	an.Yield = true
	return an
}

// question is what this station sends to all to resolve an address.
func (s *station) question(a netip.Addr) []byte {
	if a.Is4() {
		return s.request(a).appendTo(nil)
	}
	p := s.solicitation(a)
	return p.appendTo(nil)
}

// probing is what this station sends to one MAC to find out whether an address
// is still there.
func (s *station) probing(a netip.Addr, to mac) []byte {
	if a.Is4() {
		p := s.request(a)
		p.dst, p.targetMAC = to, to
		return p.appendTo(nil)
	}
	p := s.solicitation(a)
	p.dst, p.destIP = to, a
	return p.appendTo(nil)
}

func (s *station) request(a netip.Addr) arpPacket {
	return arpPacket{
		dst: broadcast, src: s.mac, operation: arpRequest,
		senderMAC: s.mac, senderIP: s.ip, targetIP: a,
	}
}

func (s *station) solicitation(a netip.Addr) ndpPacket {
	p := solicits(a)
	p.src, p.option, p.sourceIP = s.mac, s.mac, s.ip
	return p
}

// saying is what a frame says about an address.
type saying struct {
	at    time.Time
	by    mac
	toAll bool // an announcement, or else an answer
	toUs  bool
	arp   arpPacket
	ndp   ndpPacket
}

// said returns what was heard about an address so far, other than questions
// and probes.
func (s *station) said(a netip.Addr) []saying {
	var out []saying
	for _, f := range s.all() {
		v := saying{at: f.at}
		if a.Is4() {
			p, ok := parseARP(f.frame)
			toAll := p.dst == broadcast && p.senderIP == p.targetIP
			if !ok || p.senderIP != a || p.operation == arpRequest && !toAll {
				continue
			}
			v.by, v.toAll, v.toUs, v.arp = p.senderMAC, toAll, p.dst == s.mac, p
		} else {
			p, cause := parseNDP(f.frame)
			if cause != accepted || p.kind != neighborAdvertisement || p.target != a {
				continue
			}
			v.by, v.toAll, v.toUs, v.ndp = p.option, p.dst.group(), p.dst == s.mac, p
		}
		out = append(out, v)
	}
	return out
}

// answers returns the answers to this station about an address.
func (s *station) answers(a netip.Addr) []saying {
	var out []saying
	for _, v := range s.said(a) {
		if v.toUs && !v.toAll {
			out = append(out, v)
		}
	}
	return out
}

// announcements returns the announcements of an address by a MAC.
func (s *station) announcements(a netip.Addr, by mac) []saying {
	var out []saying
	for _, v := range s.said(a) {
		if v.toAll && v.by == by {
			out = append(out, v)
		}
	}
	return out
}

// count counts the answers about an address by one MAC, to whomever.
func (s *station) count(by mac, a netip.Addr) int {
	n := 0
	for _, v := range s.said(a) {
		if !v.toAll && v.by == by {
			n++
		}
	}
	return n
}

// resolve asks for an address until it is answered, and returns by which MAC.
// It asks again only after a time in which an answer must have come, so that
// tests can count answers.
func (s *station) resolve(a netip.Addr) mac {
	s.host.T.Helper()
	before := len(s.answers(a))
	for range 3 {
		s.send(s.question(a))
		for end := time.Now().Add(patience / 3); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if got := s.answers(a); len(got) > before {
				return got[before].by
			}
		}
	}
	s.host.T.Fatalf("%s: nobody answers for %s", s.host.Name, a)
	return mac{}
}

// unanswered asks for an address and fails if there is an answer. The answer to
// a request for sentinel, sent later, proves that there was time for one.
func (s *station) unanswered(a, sentinel netip.Addr) {
	s.host.T.Helper()
	before := len(s.answers(a))
	for range 3 {
		s.send(s.question(a))
	}
	s.resolve(sentinel)
	if n := len(s.answers(a)) - before; n != 0 {
		s.host.T.Errorf("%s: %d answers for %s, want none", s.host.Name, n, a)
	}
}
