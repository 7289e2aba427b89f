package source

import (
	"errors"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkMessage is what the kernel sends about a link (RTM_NEWLINK), laid out as
// drivers of this kind fill it in. It stands in for kinds of link that not
// every kernel can make.
type linkMessage struct {
	index, master, parent int
	name, kind, slaveKind string
	hardware              uint16 // ARPHRD_ETHER if 0
	mac                   net.HardwareAddr
	flags                 uint32
	state                 netlink.LinkOperState
	data                  []*nl.RtAttr // of the kind
}

// parse has the netlink library read the message.
func (m linkMessage) parse(t *testing.T) netlink.Link {
	t.Helper()
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Type, info.Index, info.Flags = m.hardware, int32(m.index), m.flags
	if info.Type == 0 {
		info.Type = unix.ARPHRD_ETHER
	}
	body := info.Serialize()
	add := func(a *nl.RtAttr) { body = append(body, a.Serialize()...) }
	add(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(m.name)))
	add(nl.NewRtAttr(unix.IFLA_OPERSTATE, []byte{byte(m.state)}))
	if m.mac != nil {
		add(nl.NewRtAttr(unix.IFLA_ADDRESS, m.mac))
	}
	if m.parent != 0 {
		add(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(m.parent))))
	}
	if m.master != 0 {
		add(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(m.master))))
	}
	linkInfo := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	if m.kind != "" {
		linkInfo.AddRtAttr(nl.IFLA_INFO_KIND, nl.ZeroTerminated(m.kind))
		data := linkInfo.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		for _, a := range m.data {
			data.AddChild(a)
		}
	}
	if m.slaveKind != "" {
		linkInfo.AddRtAttr(nl.IFLA_INFO_SLAVE_KIND, nl.ZeroTerminated(m.slaveKind))
	}
	add(linkInfo)
	l, err := netlink.LinkDeserialize(&unix.NlMsghdr{Type: unix.RTM_NEWLINK}, body)
	if err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
	return l
}

func macOf(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

// The messages of bonds (802.3ad), their members, VLANs on them, dummies and
// InfiniBand. Members of a bond have the bond's own MAC, so that a responder on
// one of them could not even be told from the right one.
func TestB080MessagesOfBondsVLANsAndDummies(t *testing.T) {
	const slave = unix.IFF_SLAVE
	bonded := macOf(0xb0)
	var links []netlink.Link
	for _, m := range []linkMessage{
		{index: 2, name: "eth0", mac: bonded, flags: usual | slave, state: netlink.OperUp, master: 4, slaveKind: "bond"},
		{index: 3, name: "eth1", mac: bonded, flags: usual&^unix.IFF_LOWER_UP&^unix.IFF_RUNNING | slave, state: netlink.OperDown, master: 4, slaveKind: "bond"},
		{index: 4, name: "bond0", mac: bonded, flags: usual | unix.IFF_MASTER, state: netlink.OperUp, kind: "bond",
			data: []*nl.RtAttr{nl.NewRtAttr(nl.IFLA_BOND_MODE, []byte{byte(netlink.BOND_MODE_802_3AD)})}},
		{index: 5, name: "bond0.20", mac: bonded, flags: usual, state: netlink.OperUp, parent: 4, kind: "vlan",
			data: []*nl.RtAttr{nl.NewRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(20))}},
		{index: 6, name: "bond1", mac: macOf(0xb1), flags: usual &^ unix.IFF_LOWER_UP &^ unix.IFF_RUNNING, state: netlink.OperDown, kind: "bond"},
		{index: 7, name: "bond1.30", mac: macOf(0xb1), flags: usual &^ unix.IFF_RUNNING, state: netlink.OperLowerLayerDown, parent: 6, kind: "vlan",
			data: []*nl.RtAttr{nl.NewRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(30))}},
		{index: 8, name: "dummy0", mac: macOf(0xd0), flags: usual&^unix.IFF_MULTICAST | unix.IFF_NOARP, state: netlink.OperUnknown, kind: "dummy"},
		{index: 9, name: "kube-ipvs0", mac: macOf(0xd1), flags: unix.IFF_BROADCAST | unix.IFF_NOARP, state: netlink.OperDown, kind: "dummy"},
		{index: 10, name: "ib0", hardware: unix.ARPHRD_INFINIBAND, mac: make([]byte, 20), flags: usual, state: netlink.OperUp},
		{index: 11, name: "team0", mac: macOf(0xe0), flags: usual, state: netlink.OperUp, kind: "team"},
		{index: 12, name: "eth4", mac: macOf(0xe0), flags: usual, state: netlink.OperUp, master: 11, slaveKind: "team"},
	} {
		links = append(links, m.parse(t))
	}
	table := newLinkTable(links, nil, nil)
	wantOut := map[string]Cause{
		"eth0": Enslaved, "eth1": Enslaved, "eth4": Enslaved, "dummy0": NoARP, "kube-ipvs0": NoARP, "ib0": NotEthernet,
	}
	if diff := cmp.Diff(wantOut, table.leftOut); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for _, l := range table.links {
		got[l.Name] = l.MAC + map[bool]string{true: " up", false: " down"}[l.Up]
	}
	want := map[string]string{
		"bond0": bonded.String() + " up", "bond0.20": bonded.String() + " up",
		"bond1": macOf(0xb1).String() + " down", "bond1.30": macOf(0xb1).String() + " down",
		"team0": macOf(0xe0).String() + " up",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
}

// The same with real links, where the kernel can make them.
func TestB080RealBondsVLANsAndDummies(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	k := newKernel(t)
	k.veth("eth0", "far0")
	named := func(name string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name, a.ParentIndex = name, k.link("eth0").Attrs().Index
		return a
	}
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	dummy := named("dummy0")
	dummy.ParentIndex = 0
	for _, c := range []struct {
		link netlink.Link
		then func()
	}{
		{&netlink.Vlan{LinkAttrs: named("eth0.20"), VlanId: 20}, func() {
			k.must(netlink.LinkSetUp(k.link("eth0.20")))
			k.shows("eth0.20", "up")
		}},
		{&netlink.Dummy{LinkAttrs: dummy}, func() { k.shows("dummy0", "left out: NoARP") }},
		{bond, func() {
			k.must(netlink.LinkSetDown(k.link("eth0")))
			k.must(netlink.LinkSetMaster(k.link("eth0"), k.link("bond0")))
			k.must(netlink.LinkSetUp(k.link("bond0")))
			k.shows("bond0", "up")
			k.shows("eth0", "left out: Enslaved")
		}},
	} {
		err := netlink.LinkAdd(c.link)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Logf("NOT TESTED HERE: this kernel has no links of kind %s; TestB080MessagesOfBondsVLANsAndDummies stands in", c.link.Type())
			continue
		}
		k.must(err)
		c.then()
	}
}
