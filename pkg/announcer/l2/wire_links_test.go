package l2

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// The address lies in no subnet of the node, and its link has no address at all.
func TestB095AndB103OffSubnetAddressOnALinkWithoutAddress(t *testing.T) {
	t.Parallel()
	node, client := newHost(t, "node"), newHost(t, "client")
	cable(node, "eth1", client, "eth0")
	client.address("eth0", "192.0.2.200/24")
	client.must(client.nl.RouteAdd(&netlink.Route{
		LinkIndex: client.byName("eth0").Attrs().Index, Scope: netlink.SCOPE_LINK,
		Dst: &net.IPNet{IP: []byte{203, 0, 113, 50}, Mask: []byte{255, 255, 255, 255}},
	}))
	s := node.speaker()
	listener := newStation(client, "eth0", clientIP, etherTypeARP)
	off := addr("203.0.113.50")
	set(t, s, own(off, node.link("eth1")))
	newTalker(client).resolves("eth0", off, node.mac("eth1"))
	eventually(t, "an announcement", func() bool { return len(listener.announcements(off, node.mac("eth1"))) > 0 })
	addrs, err := node.nl.AddrList(node.byName("eth1"), netlink.FAMILY_V4)
	node.must(err)
	if len(addrs) != 0 {
		t.Errorf("the link has addresses now: %v", addrs)
	}
}

// Two networks: only the link that was asked for answers, each with its MAC.
func TestB082OnlyTheWantedLinkAnswers(t *testing.T) {
	t.Parallel()
	node, c0, c1 := newHost(t, "node"), newHost(t, "c0"), newHost(t, "c1")
	cable(node, "eth0", c0, "eth0")
	cable(node, "eth1", c1, "eth0")
	s := node.speaker()
	st0 := newStation(c0, "eth0", clientIP, etherTypeARP)
	st1 := newStation(c1, "eth0", clientIP, etherTypeARP)
	set(t, s, own(vip, node.link("eth0")), own(vip2, node.link("eth1")))
	if got := st0.arping(vip); got != node.mac("eth0") {
		t.Errorf("answered by %s", got)
	}
	if got := st1.arping(vip2); got != node.mac("eth1") {
		t.Errorf("answered by %s", got)
	}
	st1.unanswered(vip, vip2)
	st0.unanswered(vip2, vip)
}

// Two links in one network: one MAC for the address, and the other link of the
// same node is no foreign station.
func TestB082TwoLinksInOneNetwork(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	node, client := newHost(t, "node"), newHost(t, "client")
	sw.plug(node, "eth0")
	sw.plug(node, "eth1")
	sw.plug(client, "eth0")
	s := node.speaker()
	st := newStation(client, "eth0", clientIP, etherTypeARP)
	set(t, s, own(vip, node.link("eth0")), own(vip2, node.link("eth0"), node.link("eth1")))
	macs := map[mac]int{}
	for range 50 {
		macs[st.arping(vip)]++
	}
	if len(macs) != 1 || macs[node.mac("eth0")] == 0 {
		t.Errorf("answered by %v, want only %s", macs, node.mac("eth0"))
	}
	time.Sleep(200 * time.Millisecond) // two rounds of announcements on both links
	if got := s.Conflicts(); len(got) != 0 {
		t.Errorf("conflicts with ourselves: %+v", got)
	}
}

// A link that is added later, renamed, replaced, and flaps, is answered on and
// announced on every time, and no file descriptor is left behind.
func TestB108LinkLife(t *testing.T) {
	p := newPair(t)
	extra := newHost(t, "extra")
	set(t, p.speaker, p.own(vip))
	p.station.arping(vip)
	before := openFiles(t)
	for round := range 3 {
		cable(p.node, "eth5", extra, "eth0")
		st := newStation(extra, "eth0", clientIP, etherTypeARP)
		set(t, p.speaker, own(vip, p.node.link("eth0"), p.node.link("eth5")))
		if got := st.arping(vip); got != p.node.mac("eth5") {
			t.Errorf("round %d: answered by %s", round, got)
		}
		eventually(t, "an announcement on the new link", func() bool { return len(st.announcements(vip, p.node.mac("eth5"))) > 0 })
		p.node.must(p.node.nl.LinkSetName(p.node.byName("eth5"), "lan5"))
		set(t, p.speaker, own(vip, p.node.link("eth0"), p.node.link("lan5")))
		st.arping(vip)
		st.conn.Close()
		p.node.must(p.node.nl.LinkDel(p.node.byName("lan5")))
		p.station.arping(vip) // the other link does not mind, nor before the next pass
		set(t, p.speaker, p.own(vip))
		p.station.arping(vip)
	}
	for range 20 {
		p.node.down("eth0")
		p.node.up("eth0")
		time.Sleep(5 * time.Millisecond)
	}
	// Nobody called Set: the speaker has noticed by itself.
	heard := len(p.station.announcements(vip, p.node.mac("eth0")))
	p.station.arping(vip)
	eventually(t, "announcements after the flap", func() bool {
		return len(p.station.announcements(vip, p.node.mac("eth0"))) >= heard+12 // more than was left of the last take-over
	})
	eventually(t, "the old file descriptors to be closed", func() bool { return openFiles(t) <= before })
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// After a new MAC every answer has it, and a client's entry follows.
func TestMACChangeOnTheWire(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	set(t, p.speaker, p.own(vip))
	talk := newTalker(p.client)
	talk.resolves("eth0", vip, p.node.mac("eth0"))
	fresh := mac{0x02, 0xab, 0, 0, 0, 7}
	p.node.must(p.node.nl.LinkSetHardwareAddr(p.node.byName("eth0"), fresh[:]))
	set(t, p.speaker, p.own(vip))
	p.client.eventually("the entry to change", func() bool {
		got, _ := p.client.neighbour("eth0", vip)
		return got == fresh
	})
	for range 20 {
		if got := p.station.arping(vip); got != fresh {
			t.Fatalf("answered by %s", got)
		}
	}
	unicast := p.station.request(vip)
	unicast.dst = fresh
	before := p.station.count(fresh, vip)
	p.station.send(unicast.appendTo(nil))
	eventually(t, "an answer to a unicast request", func() bool { return p.station.count(fresh, vip) > before })
}

// One of two links cannot be opened: the other works, the failure is reported once.
func TestB081FailingLinkOnTheWire(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	missing := plan.Link{Name: "docker0", Index: 4711, MAC: ourMAC.String(), Up: true}
	both := own(vip, missing, p.node.link("eth0"))
	if err := p.speaker.Set(t.Context(), []plan.Announcement{both}); err == nil {
		t.Error("a link that does not exist was not reported")
	}
	set(t, p.speaker, both)
	if got := p.station.arping(vip); got != p.node.mac("eth0") {
		t.Errorf("answered by %s", got)
	}
}

// On a bridge and on a MACVLAN the answers carry their own MAC, and requests
// sent to that MAC arrive.
func TestBridgeAndMACVLAN(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(node *host){
		"br0": func(node *host) {
			node.must(node.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{
				Name: "br0", HardwareAddr: []byte{0x02, 0xbb, 0, 0, 0, 1},
			}}))
			node.must(node.nl.LinkSetMaster(node.byName("eth0"), node.byName("br0")))
		},
		"mv0": func(node *host) {
			node.must(node.nl.LinkAdd(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{
				Name: "mv0", ParentIndex: node.byName("eth0").Attrs().Index,
			}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			build(p.node)
			p.node.up(name)
			p.node.eventually("carrier", func() bool { return p.node.link(name).Up })
			set(t, p.speaker, own(vip, p.node.link(name)))
			want := p.node.mac(name)
			if want == p.node.mac("eth0") {
				t.Fatal("the test cannot tell the links apart")
			}
			newTalker(p.client).resolves("eth0", vip, want)
			before := p.station.count(want, vip)
			unicast := p.station.request(vip)
			unicast.dst = want
			for range 10 {
				p.station.send(unicast.appendTo(nil))
			}
			eventually(t, "ten answers", func() bool { return p.station.count(want, vip) >= before+10 })
			if n := p.station.count(p.node.mac("eth0"), vip); n != 0 {
				t.Errorf("%d answers by the link below", n)
			}
		})
	}
}

// Close leaves nothing: no socket, no address.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	before := p.node.state()
	set(t, p.speaker, p.own(vip), p.own(addr("203.0.113.7")))
	p.station.arping(vip)
	if got := p.node.state(); got != before {
		t.Errorf("links and addresses while announcing:\n%s\nbefore:\n%s", got, before)
	}
	if n := p.node.packetSockets(); n != 2 { // one answers, one counts
		t.Errorf("%d sockets while announcing, want 2", n)
	}
	p.speaker.Close()
	if got := p.node.state(); got != before {
		t.Errorf("links and addresses after Close:\n%s\nbefore:\n%s", got, before)
	}
	if n := p.node.packetSockets(); n != 0 {
		t.Errorf("%d sockets are left", n)
	}
}

// state describes links and addresses.
func (h *host) state() string {
	h.t.Helper()
	links, err := h.nl.LinkList()
	h.must(err)
	out := ""
	for _, l := range links {
		a := l.Attrs()
		addrs, err := h.nl.AddrList(l, netlink.FAMILY_ALL)
		h.must(err)
		out += fmt.Sprintln(a.Index, a.Name, a.HardwareAddr, a.Flags, a.Promisc, a.Allmulti)
		for _, x := range addrs {
			out += fmt.Sprintln(" ", x.IPNet, x.Scope)
		}
	}
	return out
}
