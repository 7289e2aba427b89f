package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// Whoever has lost an address without noticing, or loses and gets it again all
// the time, stops as soon as it sees that.
func TestB071OldOwnerStops(t *testing.T) {
	atRest(t)
	pods := serve(t, "b071", "web")
	s := create(t, lab.LoadBalancer("b071", "web", "web"))
	a := address(t, s)
	o := watch(t, a)
	reachable(t, a)
	time.Sleep(time.Second)

	t.Run("Paused", func(t *testing.T) {
		who := owner(t, o)
		must(t, installed.Announcer(who).Pause())
		time.Sleep(time.Duration(times(10, 30)) * time.Second)
		resumed := time.Now()
		must(t, installed.Announcer(who).Resume())
		single(t, o, resumed, healBound)
		whole(t)
	})
	t.Run("EndpointsFlip", func(t *testing.T) {
		patch(t, s, `{"spec":{"externalTrafficPolicy":"Local"}}`)
		until := time.Now().Add(time.Duration(times(10, 60)) * time.Second)
		for turn := 0; time.Now().Before(until); turn++ {
			for i, p := range pods {
				must(t, cluster.SetPodReady(bounded(t), p, i == turn%2))
			}
			time.Sleep(300 * time.Millisecond)
		}
		for i, p := range pods {
			must(t, cluster.SetPodReady(bounded(t), p, i == 1))
		}
		if now := single(t, o, time.Now(), healBound); now != pods[1].Node {
			eventually(t, "the node with the endpoint to announce", func(context.Context) error {
				if now := single(t, o, time.Now(), healBound); now != pods[1].Node {
					return fmt.Errorf("%s announces", now)
				}
				return nil
			})
		}
		for _, p := range pods {
			must(t, cluster.SetPodReady(bounded(t), p, true))
		}
		patch(t, s, `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
		time.Sleep(3 * time.Second)
		single(t, o, time.Now(), healBound)
	})
	t.Run("LinkDownAndUp", func(t *testing.T) {
		who := owner(t, o)
		before := network(t, who)
		// A link that goes down loses its routes, and its addresses of IPv6, which
		// whoever runs the network of a real node brings back.
		_, err := cluster.Run(bounded(t), who, "sh", "-ec", `
			saved=$(mktemp -d)
			trap 'rm -r $saved' EXIT
			ip route save > $saved/4
			ip -6 route save > $saved/6
			sysctl -qw net.ipv6.conf.eth0.keep_addr_on_down=1
			ip link set eth0 down
			sleep 3
			ip link set eth0 up
			ip route restore < $saved/4
			ip -6 route restore < $saved/6`)
		must(t, err)
		eventually(t, "the network of before", func(context.Context) error {
			if after := network(t, who); after != before {
				return fmt.Errorf("%s had\n%s\nand has\n%s", who, before, after)
			}
			return nil
		})
		single(t, o, time.Now(), healBound)
		whole(t)
	})
	t.Run("OnlyTheAPIBlocked", func(t *testing.T) {
		who := owner(t, o)
		mark := time.Now()
		must(t, cluster.CutAPI(t.Context(), who))
		time.Sleep(10 * time.Second)
		if lost := unanswered(o, mark); len(lost) > 0 {
			t.Errorf("%d questions had no answer", len(lost))
		}
		heal(t, who)
		single(t, o, time.Now(), healBound)
	})
	noAddressOnAnyLink(t, a)
}

// network returns the addresses and routes of a node.
func network(t *testing.T, node string) string {
	t.Helper()
	out, err := cluster.Run(bounded(t), node, "sh", "-ec", "ip -brief address show dev eth0; ip route; ip -6 route")
	must(t, err)
	return out
}
