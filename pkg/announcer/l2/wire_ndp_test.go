package l2

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// A router's unicast check is answered, whatever source it has, each field as
// it should be.
func TestB096UnicastSolicitationsAreAnswered(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[1])
	node := p.node.mac("eth0")
	set(t, p.speaker, p.own(vip6))
	p.station.resolve(vip6)
	for _, source := range []netip.Addr{clientIP6, addr("fe80::c1"), addr("2001:db8:77::1")} {
		q := p.station.solicitation(vip6)
		q.dst, q.destIP, q.sourceIP = node, vip6, source
		want := ndpPacket{
			dst: p.station.mac, src: node, sourceIP: vip6, destIP: source,
			kind: neighborAdvertisement, flags: solicited | override, target: vip6, option: node,
		}
		answers := func() int {
			n := 0
			for _, v := range p.station.answers(vip6) {
				if v.ndp == want {
					n++
				}
			}
			return n
		}
		before := answers()
		for range 10 {
			p.station.send(q.appendTo(nil))
		}
		eventually(t, fmt.Sprintf("ten answers to %s", source), func() bool { return answers() >= before+10 })
	}
}

// A link without any address, not even a link-local one, answers both families.
func TestB101LinkWithoutAnyAddress(t *testing.T) {
	t.Parallel()
	node, client := newHost(t, "node"), newHost(t, "client")
	node.Sysctl("net/ipv6/conf/default/addr_gen_mode", "1")
	cable(node, "eth1", client, "eth0")
	client.Address("eth0", "192.0.2.200/24")
	client.Address("eth0", "2001:db8::c1/64")
	before, err := node.Net.AddrList(node.Link("eth1"), netlink.FAMILY_ALL)
	node.Must(err)
	if len(before) != 0 {
		t.Fatalf("the link has addresses: %v", before)
	}
	s := node.speaker()
	set(t, s, own(vip, node.link("eth1")), own(vip6, node.link("eth1")))
	talk := newTalker(client)
	talk.resolves("eth0", vip, node.mac("eth1"))
	talk.resolves("eth0", vip6, node.mac("eth1"))
}

// IPv6 is switched off on the link: the kernel joins nothing, we still answer.
func TestLinkWithIPv6SwitchedOff(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[1])
	p.node.Sysctl("net/ipv6/conf/eth0/disable_ipv6", "1")
	if err := p.speaker.Set(t.Context(), []plan.Announcement{p.own(vip6)}); err != nil {
		t.Logf("Set: %v", err)
	}
	newTalker(p.client).resolves("eth0", vip6, p.node.mac("eth0"))
}

// Each kind of solicitation, unusual but legal or plain garbage, ten times.
func TestUnusualSolicitations(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[1])
	node := p.node.mac("eth0")
	sentinel := addr("2001:db8::11")
	set(t, p.speaker, p.own(vip6), p.own(sentinel))
	edit := func(f func(q *ndpPacket)) []byte {
		q := p.station.solicitation(vip6)
		f(&q)
		return q.appendTo(nil)
	}
	base := edit(func(*ndpPacket) {})
	patch := func(at int, v byte) []byte {
		b := append([]byte{}, base...)
		b[at] = v
		return seal(b)
	}
	broken := append([]byte{}, base...)
	broken[icmpSumAt] ^= 0xff
	for _, c := range []struct {
		name  string
		frame []byte
		want  int
	}{
		{"multicast", base, 10},
		{"priority tag, VID 0", vlan(0, base), 10},
		{"to all nodes", edit(func(q *ndpPacket) { q.dst, q.destIP = groupMAC(allNodes), allNodes }), 10},
		{"foreign VLAN", vlan(5, base), 0},
		{"hop limit 254", patch(hopLimitAt, 254), 0},
		{"hop limit 64", patch(hopLimitAt, 64), 0},
		{"wrong checksum", broken, 0},
		{"code 1", patch(icmpCodeAt, 1), 0},
		{"truncated", base[:70], 0},
		{"option without length", patch(optionsAt+1, 0), 0},
		{"another address in the group", edit(func(q *ndpPacket) { q.target = addr("2001:db8:1::10") }), 0},
		{"to another station", edit(func(q *ndpPacket) { q.dst = winnerMAC }), 0},
	} {
		before := p.station.count(node, vip6)
		for range 10 {
			p.station.send(c.frame)
		}
		p.station.resolve(sentinel)
		if got := p.station.count(node, vip6) - before; got != c.want {
			t.Errorf("%s: %d answers, want %d", c.name, got, c.want)
		}
	}
	if n := len(p.station.answers(addr("2001:db8:1::10"))); n != 0 {
		t.Errorf("%d answers for another address", n)
	}
}

// A host that gives itself our address finds out that it is taken.
func TestDuplicateAddressDetectionFindsUs(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[1])
	set(t, p.speaker, p.own(vip6))
	p.station.resolve(vip6)
	p.client.Sysctl("net/ipv6/conf/eth0/accept_dad", "1")
	p.client.Sysctl("net/ipv6/conf/all/accept_dad", "1")
	a, err := netlink.ParseAddr(vip6.String() + "/64")
	p.client.Must(err)
	p.client.Must(p.client.Net.AddrAdd(p.client.Link("eth0"), a))
	p.client.eventually("the kernel to find the duplicate", func() bool {
		all, err := p.client.Net.AddrList(p.client.Link("eth0"), netlink.FAMILY_V6)
		p.client.Must(err)
		for _, x := range all {
			if x.IP.Equal(a.IP) && x.Flags&unix.IFA_F_DADFAILED != 0 {
				return true
			}
		}
		return false
	})
}
