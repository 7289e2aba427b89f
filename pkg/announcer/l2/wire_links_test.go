package l2

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// The address lies in no subnet of the node, and its link has no address at all.
func TestB095AndB103OffSubnetAddressOnALinkWithoutAddress(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		node, client := newHost(t, "node"), newHost(t, "client")
		node.Sysctl("net/ipv6/conf/default/addr_gen_mode", "1")
		cable(node, "eth1", client, "eth0")
		s := node.speaker()
		listener := f.station(client, "eth0")
		bits := f.offSubnet.BitLen()
		client.Must(client.Net.RouteAdd(&netlink.Route{
			LinkIndex: client.Link("eth0").Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: &net.IPNet{IP: f.offSubnet.AsSlice(), Mask: net.CIDRMask(bits, bits)},
		}))
		set(t, s, own(f.offSubnet, node.link("eth1")))
		newTalker(client).resolves("eth0", f.offSubnet, node.mac("eth1"))
		eventually(t, "an announcement", func() bool { return len(listener.announcements(f.offSubnet, node.mac("eth1"))) > 0 })
		addrs, err := node.Net.AddrList(node.Link("eth1"), netlink.FAMILY_ALL)
		node.Must(err)
		if len(addrs) != 0 {
			t.Errorf("the link has addresses now: %v", addrs)
		}
	})
}

// Two networks: only the link that was asked for answers, each with its MAC.
func TestB082OnlyTheWantedLinkAnswers(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		node, c0, c1 := newHost(t, "node"), newHost(t, "c0"), newHost(t, "c1")
		cable(node, "eth0", c0, "eth0")
		cable(node, "eth1", c1, "eth0")
		s := node.speaker()
		st0, st1 := f.station(c0, "eth0"), f.station(c1, "eth0")
		set(t, s, own(f.vip, node.link("eth0")), own(f.vip2, node.link("eth1")))
		if got := st0.resolve(f.vip); got != node.mac("eth0") {
			t.Errorf("answered by %s", got)
		}
		if got := st1.resolve(f.vip2); got != node.mac("eth1") {
			t.Errorf("answered by %s", got)
		}
		st1.unanswered(f.vip, f.vip2)
		st0.unanswered(f.vip2, f.vip)
	})
}

// Two links in one network: one MAC for the address, and the other link of the
// same node is no foreign station.
func TestB082TwoLinksInOneNetwork(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		sw := newLAN(t)
		node, client := newHost(t, "node"), newHost(t, "client")
		sw.plug(node, "eth0")
		sw.plug(node, "eth1")
		sw.plug(client, "eth0")
		s := node.speaker()
		st := f.station(client, "eth0")
		set(t, s, own(f.vip, node.link("eth0")), own(f.vip2, node.link("eth0"), node.link("eth1")))
		macs := map[mac]int{}
		for range 50 {
			st.resolve(f.vip)
		}
		for _, v := range st.answers(f.vip) {
			macs[v.by]++
		}
		if len(macs) != 1 || macs[node.mac("eth0")] == 0 {
			t.Errorf("answered by %v, want only %s", macs, node.mac("eth0"))
		}
		time.Sleep(200 * time.Millisecond) // two rounds of announcements on both links
		if got := s.Conflicts(); len(got) != 0 {
			t.Errorf("conflicts with ourselves: %+v", got)
		}
	})
}

// A link that is added later, renamed, replaced, and flaps, is answered on and
// announced on every time, and no file descriptor is left behind.
func TestB108LinkLife(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) { linkLife(t, f) })
	}
}

func linkLife(t *testing.T, f family) {
	p := newPair(t, f)
	extra := newHost(t, "extra")
	set(t, p.speaker, p.own(f.vip))
	p.station.resolve(f.vip)
	before := openFiles(t)
	for round := range 3 {
		cable(p.node, "eth5", extra, "eth0")
		st := f.station(extra, "eth0")
		set(t, p.speaker, own(f.vip, p.node.link("eth0"), p.node.link("eth5")))
		if got := st.resolve(f.vip); got != p.node.mac("eth5") {
			t.Errorf("round %d: answered by %s", round, got)
		}
		eventually(t, "an announcement on the new link", func() bool { return len(st.announcements(f.vip, p.node.mac("eth5"))) > 0 })
		p.node.Must(p.node.Net.LinkSetName(p.node.Link("eth5"), "lan5"))
		set(t, p.speaker, own(f.vip, p.node.link("eth0"), p.node.link("lan5")))
		st.resolve(f.vip)
		st.conn.Close()
		p.node.Must(p.node.Net.LinkDel(p.node.Link("lan5")))
		p.station.resolve(f.vip) // the other link does not mind, nor before the next pass
		set(t, p.speaker, p.own(f.vip))
		p.station.resolve(f.vip)
	}
	for range 20 {
		p.node.Down("eth0")
		p.node.Up("eth0")
		time.Sleep(5 * time.Millisecond)
	}
	// Nobody called Set: the speaker has noticed by itself.
	heard := len(p.station.announcements(f.vip, p.node.mac("eth0")))
	p.station.resolve(f.vip)
	eventually(t, "announcements after the flap", func() bool {
		return len(p.station.announcements(f.vip, p.node.mac("eth0"))) >= heard+6 // more than was left of the last take-over
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
	eachFamily(t, func(t *testing.T, f family) {
		p := newPair(t, f)
		set(t, p.speaker, p.own(f.vip))
		newTalker(p.client).resolves("eth0", f.vip, p.node.mac("eth0"))
		fresh := mac{0x02, 0xab, 0, 0, 0, 7}
		p.node.Must(p.node.Net.LinkSetHardwareAddr(p.node.Link("eth0"), fresh[:]))
		set(t, p.speaker, p.own(f.vip))
		p.client.eventually("the entry to change", func() bool {
			got, _ := p.client.neighbour("eth0", f.vip)
			return got == fresh
		})
		for range 20 {
			if got := p.station.resolve(f.vip); got != fresh {
				t.Fatalf("answered by %s", got)
			}
		}
		before := p.station.count(fresh, f.vip)
		p.station.send(p.station.probing(f.vip, fresh))
		eventually(t, "an answer to a unicast request", func() bool { return p.station.count(fresh, f.vip) > before })
	})
}

// One of two links cannot be opened: the other works, the failure is reported once.
func TestB081FailingLinkOnTheWire(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		p := newPair(t, f)
		missing := plan.Link{Name: "docker0", Index: 4711, MAC: ourMAC.String(), Up: true}
		both := own(f.vip, missing, p.node.link("eth0"))
		if err := p.speaker.Set(t.Context(), []plan.Announcement{both}); err == nil {
			t.Error("a link that does not exist was not reported")
		}
		set(t, p.speaker, both)
		if got := p.station.resolve(f.vip); got != p.node.mac("eth0") {
			t.Errorf("answered by %s", got)
		}
	})
}

// On a bridge and on a MACVLAN the answers carry their own MAC, and requests
// sent to that MAC arrive.
func TestBridgeAndMACVLAN(t *testing.T) {
	for name, build := range map[string]func(node *host){
		"br0": func(node *host) {
			node.Must(node.Net.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{
				Name: "br0", HardwareAddr: []byte{0x02, 0xbb, 0, 0, 0, 1},
			}}))
			node.Must(node.Net.LinkSetMaster(node.Link("eth0"), node.Link("br0")))
		},
		"mv0": func(node *host) {
			node.Must(node.Net.LinkAdd(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{
				Name: "mv0", ParentIndex: node.Link("eth0").Attrs().Index,
			}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, f family) {
				p := newPair(t, f)
				build(p.node)
				p.node.Up(name)
				p.node.eventually("carrier", func() bool { return p.node.link(name).Up })
				p.answersOn(f, name, "eth0")
			})
		})
	}
}

// answersOn announces on a link that others make up, and checks that it answers
// with its MAC, once for each request, and that the links below are silent.
func (p pair) answersOn(f family, name string, below ...string) {
	t := p.node.T
	t.Helper()
	set(t, p.speaker, own(f.vip, p.node.link(name)))
	want := p.node.mac(name)
	newTalker(p.client).resolves("eth0", f.vip, want)
	before := p.station.count(want, f.vip)
	for range 50 {
		p.station.send(p.station.question(f.vip))
		p.station.send(p.station.probing(f.vip, want))
		time.Sleep(time.Millisecond)
	}
	eventually(t, "an answer to each", func() bool { return p.station.count(want, f.vip) >= before+100 })
	for _, name := range below {
		if m := p.node.mac(name); m != want && p.station.count(m, f.vip) != 0 {
			t.Errorf("%s, a link below, answers", name)
		}
	}
}

// A bond answers with its own MAC, its members are silent, and a VLAN on it
// answers on that VLAN only. Where the kernel has no such links their stand-ins
// are source.TestB080MessagesOfBondsVLANsAndDummies, for what is used of them,
// and the frames with tags of TestB094UnusualRequests.
func TestB080BondAndVLAN(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family) {
		p := newPair(t, f)
		bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
		bond.Mode, bond.Miimon = netlink.BOND_MODE_ACTIVE_BACKUP, 100
		if err := p.node.Net.LinkAdd(bond); errors.Is(err, unix.EOPNOTSUPP) {
			t.Logf("NOT TESTED HERE: this kernel has no bonds; stand-ins are named above this test")
			return
		} else if err != nil {
			t.Fatal(err)
		}
		p.node.Down("eth0")
		p.node.Must(p.node.Net.LinkSetMaster(p.node.Link("eth0"), p.node.Link("bond0")))
		p.node.Up("bond0")
		p.node.eventually("carrier", func() bool { return p.node.link("bond0").Up })
		p.answersOn(f, "bond0", "eth0")

		for _, h := range []*host{p.node, p.client} {
			parent := map[*host]string{p.node: "bond0", p.client: "eth0"}[h]
			err := h.Net.LinkAdd(&netlink.Vlan{VlanId: 20, LinkAttrs: netlink.LinkAttrs{
				Name: "vlan20", ParentIndex: h.Link(parent).Attrs().Index,
			}})
			if errors.Is(err, unix.EOPNOTSUPP) {
				t.Logf("NOT TESTED HERE: this kernel has no VLANs; stand-ins are named above this test")
				return
			}
			h.Must(err)
			h.Up("vlan20")
		}
		tagged := f.station(p.client, "vlan20")
		set(t, p.speaker, own(f.vip, p.node.link("bond0")), own(f.vip2, p.node.link("vlan20")))
		tagged.resolve(f.vip2)
		tagged.unanswered(f.vip, f.vip2)
		p.station.unanswered(f.vip2, f.vip)
	})
}

// Close leaves nothing: no socket, no address.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[0])
	before := p.node.state()
	set(t, p.speaker, p.own(vip), p.own(addr("203.0.113.7")))
	p.station.resolve(vip)
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
	// A reader that is still on its way out keeps its socket open.
	eventually(t, "no socket to be left", func() bool { return p.node.packetSockets() == 0 })
}

// state describes links and addresses.
func (h *host) state() string {
	h.T.Helper()
	links, err := h.Net.LinkList()
	h.Must(err)
	out := ""
	for _, l := range links {
		a := l.Attrs()
		addrs, err := h.Net.AddrList(l, netlink.FAMILY_ALL)
		h.Must(err)
		out += fmt.Sprintln(a.Index, a.Name, a.HardwareAddr, a.Flags, a.Promisc, a.Allmulti)
		for _, x := range addrs {
			out += fmt.Sprintln(" ", x.IPNet, x.Scope)
		}
	}
	return out
}
