package lab

import (
	"fmt"
	"net/netip"
	"slices"
)

// The hosts beside the nodes, which are called n1, n2 and so on.
const (
	ControlPlane = "cp" // runs etcd, kube-apiserver and kube-controller-manager
	Client       = "c1" // a machine of a user in the same LAN
	Router       = "r1" // the default route of all others; forwards packets
)

// MaxNodes is how many nodes have room in the LAN below the pools' addresses.
const MaxNodes = 80

// LAN is the network of all hosts, in both families.
var (
	LANv4 = netip.MustParsePrefix("198.51.100.0/24")
	LANv6 = netip.MustParsePrefix("2001:db8:51::/64")
)

const (
	podsV4     = "10.244.0.0/16"
	podsV6     = "fd00:244::/56"
	servicesV4 = "10.96.0.0/16"
	servicesV6 = "fd00:96::/108"
)

// The senders of the questions that Watch asks; nobody has these addresses.
const (
	firstAsker = 201
	lastAsker  = 254
)

func askers() (v4, v6 []netip.Addr) {
	for i := firstAsker; i <= lastAsker; i++ {
		v4 = append(v4, netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", i)))
		v6 = append(v6, netip.MustParseAddr(fmt.Sprintf("2001:db8:51::%d", i)))
	}
	return v4, v6
}

// A Host is a machine of the lab: a network namespace with one link, eth0, in
// the LAN.
type Host struct {
	Name      string
	Namespace string // name of its network namespace, for `ip netns exec`
	MAC       string // of eth0
	IPv4      netip.Addr
	IPv6      netip.Addr

	// Of a node only: the networks of its pods.
	PodsV4 netip.Prefix
	PodsV6 netip.Prefix
}

// IsNode says whether the host is a node of the cluster.
func (h Host) IsNode() bool { return h.PodsV4.IsValid() }

// port names the switch's end of the host's link.
func (h Host) port() string { return "to-" + h.Name }

func planHosts(lab string, nodes int) []Host {
	hosts := []Host{planHost(lab, Router, 1), planHost(lab, ControlPlane, 5), planHost(lab, Client, 200)}
	for i := 1; i <= nodes; i++ {
		h := planHost(lab, fmt.Sprintf("n%d", i), 10+i)
		h.PodsV4 = netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i))
		h.PodsV6 = netip.MustParsePrefix(fmt.Sprintf("fd00:244:0:%d::/64", i))
		hosts = append(hosts, h)
	}
	return hosts
}

// planHost numbers everything of a host alike: 11 is 198.51.100.11,
// 2001:db8:51::11 and 02:51:00:00:00:11.
func planHost(lab, name string, number int) Host {
	return Host{
		Name:      name,
		Namespace: lab + "-" + name,
		MAC:       fmt.Sprintf("02:51:00:00:%02d:%02d", number/100, number%100),
		IPv4:      netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", number)),
		IPv6:      netip.MustParseAddr(fmt.Sprintf("2001:db8:51::%d", number)),
	}
}

// Hosts returns all hosts: the router, the control plane, the client, and the
// nodes in their order.
func (l *Lab) Hosts() []Host { return slices.Clone(l.hosts) }

// Nodes returns the hosts that are nodes, in their order.
func (l *Lab) Nodes() []Host {
	return slices.DeleteFunc(l.Hosts(), func(h Host) bool { return !h.IsNode() })
}

// Host returns the host called name.
func (l *Lab) Host(name string) (Host, error) {
	for _, h := range l.hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return Host{}, fmt.Errorf("lab %s has no host %q", l.state.Name, name)
}

// Of the hosts, planHosts puts these first.
func (l *Lab) router() Host       { return l.hosts[0] }
func (l *Lab) controlPlane() Host { return l.hosts[1] }

// HostOf returns the name of the host whose link has the MAC address mac, or
// mac itself when it is nobody's.
func (l *Lab) HostOf(mac string) string {
	for _, h := range l.hosts {
		if h.MAC == mac {
			return h.Name
		}
	}
	return mac
}

// namespace is where a host's programs run; of an unknown host it is a
// namespace that does not exist, which the program that is run there says.
func (l *Lab) namespace(host string) string { return l.state.Name + "-" + host }
