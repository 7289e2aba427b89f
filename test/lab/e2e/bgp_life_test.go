package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// waitBoth waits until the router's kernel has so many next hops for both
// addresses of a Service.
func (f *frr) waitBoth(addrs []netip.Addr, want int) {
	f.t.Helper()
	for _, a := range addrs {
		eventually(f.t, fmt.Sprintf("the router to send packets for %s to %d nodes", a, want), func(ctx context.Context) error {
			hops, err := f.hops(ctx, a)
			if err == nil && len(hops) != want {
				err = fmt.Errorf("it sends them to %v", hops)
			}
			return err
		})
	}
}

// hops returns the next hops that the kernel of the router has for an address,
// sorted, each once. Those of IPv6 may be link-local.
func (f *frr) hops(ctx context.Context, a netip.Addr) ([]string, error) {
	family := "-4"
	if a.Is6() {
		family = "-6"
	}
	out, err := cluster.Run(ctx, lab.Router, "ip", family, "route", "show", a.String())
	if err != nil {
		return nil, err
	}
	var hops []string
	for _, match := range gateway.FindAllStringSubmatch(out, -1) {
		hops = append(hops, match[1])
	}
	slices.Sort(hops)
	return slices.Compact(hops), nil
}

// waitCeases waits until a node has ended so many sessions with the word that the
// peer is not configured any more (RFC 4486).
func (f *frr) waitCeases(node string, want int) {
	f.t.Helper()
	host, err := cluster.Host(node)
	must(f.t, err)
	word := fmt.Sprintf("received from neighbor %s 6/3 ", host.IPv4)
	eventually(f.t, fmt.Sprintf("%s to say %d times that it leaves", node, want), func(context.Context) error {
		if n := strings.Count(f.bgpd.Log(), word); n != want {
			return fmt.Errorf("it has %d times", n)
		}
		return nil
	})
}

// dualStack is a Service with an address of each family that the router is told
// of, and these.
func dualStack(t *testing.T) (*corev1.Service, []netip.Addr) {
	t.Helper()
	s := routedService("both")
	s.Annotations["ccm-baremetal.io/pool"] = "wide,wide6"
	policy := corev1.IPFamilyPolicyRequireDualStack
	s.Spec.IPFamilyPolicy = &policy
	s = create(t, s)
	var addrs []netip.Addr
	eventually(t, "an address of each family", func(ctx context.Context) (err error) {
		if addrs, err = cluster.WaitIngress(ctx, s); err == nil && len(addrs) != 2 {
			err = fmt.Errorf("it has %v", addrs)
		}
		return err
	})
	return s, addrs
}

// A node gets a session with the router by a label, and everything is advertised
// there; without the label it takes leave; with it everything comes again (B-120).
// Both families are told on that one session, and clients reach both.
func routesFollowALabel(t *testing.T, router *frr, vip netip.Addr) {
	const node = "n4"
	label := func(value string) {
		must(t, cluster.EditNode(context.Background(), node, func(n *corev1.Node) {
			delete(n.Labels, routedLabel)
			if value != "" {
				n.Labels[routedLabel] = value
			}
		}))
	}
	defer func() {
		label("")
		router.waitNeighbours(routed...)
	}()
	both, addrs := dualStack(t)
	router.waitBoth(addrs, len(routed))
	for _, a := range addrs {
		reachable(t, a)
	}
	before := router.waitNeighbours(routed...)
	everybody := append(slices.Clone(routed), node)
	for round := range 2 {
		label("true")
		router.waitNeighbours(everybody...)
		router.waitForwards(vip, everybody...)
		router.waitBoth(addrs, len(everybody))
		label("")
		router.waitNeighbours(routed...)
		router.waitForwards(vip, routed...)
		router.waitBoth(addrs, len(routed))
		router.waitCeases(node, 1+round)
	}
	remove(t, both)
	router.waitBoth(addrs, 0)
	sameSessions(t, before, router.waitNeighbours(routed...))
}

// An advertisement by layer 2 comes to one by BGP and goes again, and the router
// hears nothing of it.
func layer2ComesAndGoes(t *testing.T, router *frr, vip netip.Addr) {
	sessions := router.waitNeighbours(routed...)
	before := router.updates()
	defer configureRoutes(t, "")
	beside := strings.Replace(routedDocument(""), "{name: lan, pools: [lan], layer2: {}}", "{name: lan, layer2: {}}", 1)
	must(t, installed.Configure(bounded(t), beside))
	inForce(t, beside)
	o := watch(t, vip)
	configureRoutes(t, "")
	eventually(t, "nobody to answer for "+vip.String(), func(context.Context) error {
		if r := o.Replies(time.Now().Add(-300*time.Millisecond), time.Now()); len(r) > 0 {
			return fmt.Errorf("%s does", cluster.HostOf(r[0].MAC))
		}
		return nil
	})
	if after := router.updates(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("UPDATEs while layer 2 came and went: %v, now %v", before, after)
	}
	sameSessions(t, sessions, router.waitNeighbours(routed...))
	reachable(t, vip)
}
