package l2

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// A switch that snoops MLD forwards what it has seen a report for, and only there.
func TestB097SnoopingSwitchLearnsTheGroup(t *testing.T) {
	t.Parallel()
	sw := newLAN(t)
	n1, n2, client := newHost(t, "n1"), newHost(t, "n2"), newHost(t, "client")
	sw.run("ip", "link", "set", "dev", "br", "type", "bridge", "mcast_snooping", "1", "mcast_querier", "1", "mcast_mld_version", "2",
		"mcast_query_interval", "100", "mcast_startup_query_interval", "100", "mcast_query_response_interval", "50",
		"mcast_last_member_interval", "20")
	for _, h := range []*host{n1, n2, client} {
		sw.plug(h, "eth0")
	}
	client.Address("eth0", "2001:db8::c1/64")
	vip := addr("2001:db8::abcd")
	member := func(port string) bool {
		for line := range strings.Lines(sw.run("bridge", "mdb", "show")) {
			if strings.Contains(line, " port "+port+" ") && strings.Contains(line, " grp ff02::1:ff00:abcd ") {
				return true
			}
		}
		return false
	}
	s1, s2 := n1.speaker(), n2.speaker()
	talk := newTalker(client)

	set(t, s1, own(vip, n1.link("eth0")))
	eventually(t, "the group at n1", func() bool { return member("n1-eth0") })
	if member("n2-eth0") {
		t.Error("the group is at n2 as well")
	}
	talk.resolves("eth0", vip, n1.mac("eth0"))

	set(t, s1, yielded(own(vip, n1.link("eth0")), n2.mac("eth0")))
	set(t, s2, own(vip, n2.link("eth0")))
	eventually(t, "the group at n2 only", func() bool { return member("n2-eth0") && !member("n1-eth0") })
	client.forgetNeighbour("eth0", vip)
	talk.resolves("eth0", vip, n2.mac("eth0"))

	set(t, s2)
	eventually(t, "the group nowhere", func() bool { return !member("n2-eth0") })
}

// run runs a program in the namespace and returns its output.
func (h *host) run(name string, args ...string) string {
	h.T.Helper()
	var out []byte
	var err error
	h.Do(func() { out, err = exec.Command(name, args...).CombinedOutput() })
	if err != nil {
		h.T.Fatalf("%s: %s %v: %v: %s", h.Name, name, args, err, out)
	}
	return string(out)
}

// memberships returns the IPv6 groups of a link as the kernel has them: those
// that it reports, and the Ethernet groups that it receives.
func (h *host) memberships(link string) (reported, received map[string]bool) {
	h.T.Helper()
	index := fmt.Sprint(h.Link(link).Attrs().Index)
	reported, received = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(h.proc("igmp6")) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == index {
			reported[f[2]] = true
		}
	}
	for line := range strings.Lines(h.proc("dev_mcast")) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == index {
			received[f[4]] = true
		}
	}
	return reported, received
}

// The kernel has exactly the groups of the wanted set, on whatever link and
// however it came to be.
func TestW3GroupsInTheKernel(t *testing.T) {
	t.Parallel()
	p := pair{node: newHost(t, "node"), client: newHost(t, "client")}
	p.node.Sysctl("net/ipv6/conf/default/addr_gen_mode", "1") // no groups of its own that come late
	cable(p.node, "eth0", p.client, "eth0")
	p.speaker = p.node.speaker()
	twin, other := addr("2001:db8:7::10"), addr("2001:db8::bb:cccc")
	extra := newHost(t, "extra")
	cable(p.node, "eth1", extra, "eth0") // after the speaker has started
	base := map[string][2]map[string]bool{}
	for _, link := range []string{"eth0", "eth1"} {
		reported, received := p.node.memberships(link)
		base[link] = [2]map[string]bool{reported, received}
	}
	differs := func(link string, want ...netip.Addr) string {
		wantReported, wantReceived := map[string]bool{}, map[string]bool{}
		for g := range base[link][0] {
			wantReported[g] = true
		}
		for g := range base[link][1] {
			wantReceived[g] = true
		}
		for _, a := range want {
			sixteen := solicitedNode(a).As16()
			wantReported[fmt.Sprintf("%x", sixteen)] = true
			m := groupMAC(solicitedNode(a))
			wantReceived[fmt.Sprintf("%x", m[:])] = true
		}
		reported, received := p.node.memberships(link)
		if fmt.Sprint(reported) != fmt.Sprint(wantReported) || fmt.Sprint(received) != fmt.Sprint(wantReceived) {
			return fmt.Sprintf("%s: reported %v, received %v;\nwant %v and %v", link, reported, received, wantReported, wantReceived)
		}
		return ""
	}
	check := func(link string, want ...netip.Addr) {
		t.Helper()
		text := differs(link, want...)
		for end := time.Now().Add(patience); text != "" && time.Now().Before(end); text = differs(link, want...) {
			time.Sleep(10 * time.Millisecond) // a reader that is still on its way out keeps its socket open
		}
		if text != "" {
			t.Error(text)
		}
	}
	eth0, eth1 := p.node.link("eth0"), p.node.link("eth1")
	set(t, p.speaker, own(vip6, eth0), own(twin, eth0), own(other, eth0))
	check("eth0", vip6, other)
	set(t, p.speaker, own(vip6, eth0, eth1))
	check("eth0", vip6)
	check("eth1", vip6)
	p.node.Down("eth1")
	p.node.Up("eth1")
	set(t, p.speaker, own(vip6, eth0, eth1), own(other, eth1))
	families[1].station(extra, "eth0").resolve(other)
	check("eth1", vip6, other)
	set(t, p.speaker, own(vip6, eth1))
	check("eth0")
	p.speaker.Close()
	check("eth0")
	check("eth1")
}

// More groups than one socket may have are spread over several.
func TestThousandsOfGroups(t *testing.T) {
	t.Parallel()
	p := newPair(t, families[1])
	const n = 4000
	var want []plan.Announcement
	for i := range n {
		want = append(want, own(addr(fmt.Sprintf("2001:db8::%x:%x", i>>8+1, i)), p.node.link("eth0")))
	}
	reported, _ := p.node.memberships("eth0")
	base := len(reported)
	start := time.Now()
	set(t, p.speaker, want...)
	t.Logf("joined %d groups in %s", n, time.Since(start))
	if reported, _ = p.node.memberships("eth0"); len(reported) != base+n {
		t.Errorf("%d groups, want %d", len(reported)-base, n)
	}
	p.station.resolve(want[n-1].Address)
	set(t, p.speaker)
	eventually(t, "leave of all groups", func() bool { // a socket is closed when whoever reads it has seen that
		reported, _ = p.node.memberships("eth0")
		return len(reported) == base
	})
}
