package frrhost_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// many are prefixes that nobody else has.
func many(n int) []plan.Route {
	out := make([]plan.Route, n)
	a := netip.MustParseAddr("10.0.0.1")
	for i := range out {
		out[i] = plan.Route{Prefix: netip.PrefixFrom(a, 32), LocalPref: 100, Communities: []config.Community{{Global: 64500, Local1: 7}}}
		a = a.Next()
	}
	return out
}

// How long it takes until a router has many prefixes from a node's FRR, and
// then one more, and what memory FRR takes.
func TestThousandsOfPrefixesReachARouter(t *testing.T) {
	t.Parallel()
	n := 1000
	if os.Getenv("CCM_SOAK") == "1" {
		n = 10000
	}
	node, tor := newHost(t, "m"), newHost(t, "q")
	cable(node, tor, "eth0", "192.0.2.", "2001:db8::")
	tor.frr(torConfiguration)
	dirs := node.volumes("run", "share")
	node.sidecar(dirs...)
	s, _ := node.speakerIn(dirs[1])
	external, _ := peers()
	external.Families = []config.Family{config.IPv4}
	tell := func(routes []plan.Route) time.Duration {
		began := time.Now()
		s.Set([]plan.Peering{{Peer: external, Routes: routes, Pause: time.Second}})
		tor.eventually(func() error {
			if got := tor.vtysh("show bgp ipv4 unicast summary json"); !strings.Contains(got, fmt.Sprintf(`"pfxRcd":%d,`, len(routes))) {
				return fmt.Errorf("the router has %s", got)
			}
			return nil
		})
		return time.Since(began)
	}
	all := many(n + 1)
	t.Logf("session: %s", tell(all[:1]))
	took := tell(all[:n])
	t.Logf("%d prefixes: %s", n, took)
	if took > 30*time.Second { // 5 s for 10,000, and the machine may be busy
		t.Errorf("%d prefixes took %s", n, took)
	}
	t.Logf("one more: %s", tell(all))
	out, _ := exec.Command("sh", "-c", "for p in $(ip netns pids "+node.ns+"); do echo $(cat /proc/$p/comm) $(grep VmRSS /proc/$p/status); done").Output()
	t.Logf("%s", out)
	t.Logf("none: %s", tell(nil))
}
