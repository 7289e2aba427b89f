package source

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const usual = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP | unix.IFF_BROADCAST | unix.IFF_MULTICAST

// attrs returns the attributes of a link as the kernel reports a plain
// Ethernet link that is up.
func attrs(index int, name string, change ...func(*netlink.LinkAttrs)) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Index, a.Name, a.EncapType, a.RawFlags, a.OperState = index, name, "ether", usual, netlink.OperUp
	a.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}
	for _, c := range change {
		c(&a)
	}
	return a
}

func enslavedTo(index int) func(*netlink.LinkAttrs) {
	return func(a *netlink.LinkAttrs) { a.MasterIndex = index }
}

func flag(set uint32) func(*netlink.LinkAttrs) {
	return func(a *netlink.LinkAttrs) { a.RawFlags |= set }
}

// It stands in for the kinds of link that not every kernel has: it feeds what
// the netlink library makes of them.
func TestB092LinksThatAreLeftOut(t *testing.T) {
	table := newLinkTable([]netlink.Link{
		&netlink.Device{LinkAttrs: attrs(1, "lo", flag(unix.IFF_LOOPBACK), func(a *netlink.LinkAttrs) { a.EncapType = "loopback" })},
		&netlink.Device{LinkAttrs: attrs(2, "eth0", enslavedTo(4))},
		&netlink.Device{LinkAttrs: attrs(3, "eth1", enslavedTo(4))},
		&netlink.Bond{LinkAttrs: attrs(4, "bond0")},
		&netlink.Vlan{LinkAttrs: attrs(5, "bond0.20", func(a *netlink.LinkAttrs) { a.ParentIndex = 4 })},
		&netlink.Bridge{LinkAttrs: attrs(6, "br0")},
		&netlink.Veth{LinkAttrs: attrs(7, "veth1234", enslavedTo(6))},
		&netlink.Dummy{LinkAttrs: attrs(8, "kube-ipvs0", flag(unix.IFF_NOARP))},
		&netlink.Wireguard{LinkAttrs: attrs(9, "wg0", func(a *netlink.LinkAttrs) { a.EncapType, a.HardwareAddr = "none", nil })},
		&netlink.Vrf{LinkAttrs: attrs(10, "red", flag(unix.IFF_NOARP))},
		&netlink.Device{LinkAttrs: attrs(11, "eth2", enslavedTo(10))},
		&netlink.Device{LinkAttrs: attrs(12, "ib0", func(a *netlink.LinkAttrs) { a.EncapType, a.HardwareAddr = "infiniband", make([]byte, 20) })},
		&netlink.Device{LinkAttrs: attrs(13, "usb0", func(a *netlink.LinkAttrs) { a.HardwareAddr = make([]byte, 6) })},
		&netlink.Device{LinkAttrs: attrs(14, "eth9", enslavedTo(99))},
		&netlink.Macvlan{LinkAttrs: attrs(15, "mac0", func(a *netlink.LinkAttrs) { a.ParentIndex = 3 })},
	}, nil, nil)
	wantOut := map[string]Cause{
		"lo": Loopback, "eth0": Enslaved, "eth1": Enslaved, "veth1234": Enslaved, "kube-ipvs0": NoARP,
		"wg0": NotEthernet, "red": NoARP, "ib0": NotEthernet, "usb0": NotEthernet,
		"eth9": Enslaved, // to something in another namespace
	}
	if diff := cmp.Diff(wantOut, table.leftOut); diff != "" {
		t.Error(diff)
	}
	var in []string
	for _, l := range table.links {
		in = append(in, l.Name+" "+l.MAC)
	}
	want := []string{
		"bond0 02:00:00:00:00:04", "bond0.20 02:00:00:00:00:05", "br0 02:00:00:00:00:06",
		"eth2 02:00:00:00:00:0b", "mac0 02:00:00:00:00:0f",
	}
	if diff := cmp.Diff(want, in); diff != "" {
		t.Error(diff)
	}
}

func TestLinkIsUp(t *testing.T) {
	tests := []struct {
		name  string
		flags uint32
		state netlink.LinkOperState
		want  bool
	}{
		{"up", usual, netlink.OperUp, true},
		{"set down", usual &^ unix.IFF_UP, netlink.OperUp, false},
		{"no carrier", usual &^ unix.IFF_LOWER_UP, netlink.OperDown, false},
		{"the far end is down", usual, netlink.OperLowerLayerDown, false},
		{"waiting for authentication", usual, netlink.OperDormant, false},
		{"the driver keeps no state, carrier", usual, netlink.OperUnknown, true},
		{"the driver keeps no state, no carrier", usual &^ unix.IFF_LOWER_UP, netlink.OperUnknown, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := attrs(2, "eth0")
			a.RawFlags, a.OperState = tt.flags, tt.state
			if got := up(&a); got != tt.want {
				t.Errorf("up = %v", got)
			}
		})
	}
}

func ipNet(text string) *net.IPNet {
	ip, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return &net.IPNet{IP: ip, Mask: n.Mask}
}

func TestLinkAddressesAndRoutes(t *testing.T) {
	route := func(index, metric int, dst string) netlink.Route {
		r := netlink.Route{LinkIndex: index, Priority: metric, Type: unix.RTN_UNICAST}
		if dst != "" {
			r.Dst = ipNet(dst)
		}
		return r
	}
	blackhole := route(2, 0, "198.18.0.0/15")
	blackhole.Type = unix.RTN_BLACKHOLE
	table := newLinkTable(
		[]netlink.Link{
			&netlink.Device{LinkAttrs: attrs(2, "eth0")},
			&netlink.Device{LinkAttrs: attrs(3, "eth1")},
			&netlink.Device{LinkAttrs: attrs(4, "eth2")},
			&netlink.Device{LinkAttrs: attrs(5, "eth3")},
		},
		[]netlink.Addr{
			{IPNet: ipNet("192.0.2.11/24"), LinkIndex: 2},
			{IPNet: ipNet("192.0.2.12/24"), LinkIndex: 2},
			{IPNet: ipNet("2001:db8::11/64"), LinkIndex: 2},
			{IPNet: ipNet("fe80::11/64"), LinkIndex: 2},
			{IPNet: ipNet("2001:db8:bad::1/64"), LinkIndex: 2, Flags: unix.IFA_F_DADFAILED},
			{IPNet: ipNet("198.51.100.11/25"), LinkIndex: 3},
		},
		[]netlink.Route{
			route(2, 100, "0.0.0.0/0"), route(2, 90, "192.0.2.0/24"), blackhole,
			route(3, 0, "fe80::/64"), route(3, 200, "198.51.100.0/25"), route(3, 1024, "::/0"),
			{Priority: 300, Type: unix.RTN_UNICAST, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 3}, {LinkIndex: 4}}},
		})
	want := []link{
		{Link: plan.Link{Name: "eth0", Index: 2, MAC: "02:00:00:00:00:02", Up: true, Default: true, Metric: 90,
			Prefixes: prefixes("192.0.2.0/24", "2001:db8::/64")}, addresses: addrs("192.0.2.11", "192.0.2.12", "2001:db8::11")},
		{Link: plan.Link{Name: "eth1", Index: 3, MAC: "02:00:00:00:00:03", Up: true, Default: true, Metric: 200,
			Prefixes: prefixes("198.51.100.0/25")}, addresses: addrs("198.51.100.11")},
		{Link: plan.Link{Name: "eth2", Index: 4, MAC: "02:00:00:00:00:04", Up: true, Default: true, Metric: 300}},
		{Link: plan.Link{Name: "eth3", Index: 5, MAC: "02:00:00:00:00:05", Up: true}},
	}
	if diff := cmp.Diff(want, table.links, compareNet, cmp.AllowUnexported(link{})); diff != "" {
		t.Error(diff)
	}
}
