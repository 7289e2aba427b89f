package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testClusterIP(t *testing.T, l *Lab, pods []Pod) {
	s := LoadBalancer("shop", "inside", "web")
	s.Spec.Type = corev1.ServiceTypeClusterIP
	policy := corev1.IPFamilyPolicyRequireDualStack
	s.Spec.IPFamilyPolicy = &policy
	s = createService(t, l, s)
	for _, ip := range s.Spec.ClusterIPs {
		addr := netip.AddrPortFrom(netip.MustParseAddr(ip), 80)
		askUntilAll(t, l, "n2", addr, pods)
	}
}

func testLoadBalancer(t *testing.T, l *Lab, pods []Pod) {
	s := createService(t, l, LoadBalancer("shop", "outside", "web"))
	vip := netip.MustParseAddr("198.51.100.100")
	if err := l.SetIngress(t.Context(), s, vip); err != nil {
		t.Fatal(err)
	}
	addrs, err := l.WaitIngress(t.Context(), s)
	if err != nil || !slices.Equal(addrs, []netip.Addr{vip}) {
		t.Fatalf("ingress %v, %v", addrs, err)
	}
	for _, node := range l.Nodes() {
		if err := l.SetNeighbour(t.Context(), Client, vip, node.MAC); err != nil {
			t.Fatal(err)
		}
		askUntilAll(t, l, Client, netip.AddrPortFrom(vip, 80), pods)
	}
	echo, err := l.Echo(t.Context(), Client, netip.AddrPortFrom(vip, PodUDPPort), 200)
	if err != nil {
		t.Fatal(err)
	}
	connects := l.Connects(Client, "http://198.51.100.100/client", 50*time.Millisecond, 5*time.Second)
	time.Sleep(2 * time.Second)
	if loss := echo.Stop(2 * time.Second); loss.Sent < 100 || len(loss.Lost) > 0 {
		t.Errorf("echo: %v", loss)
	}
	if attempts := connects.Stop(); len(attempts) < 10 || len(attempts.Failed()) > 0 {
		t.Errorf("connections: %v", attempts)
	}
}

// askUntilAll asks until every pod has answered once.
func askUntilAll(t *testing.T, l *Lab, host string, addr netip.AddrPort, pods []Pod) {
	t.Helper()
	missing := map[string]bool{}
	for _, p := range pods {
		missing[fmt.Sprintf("pod %s on %s\n", p.Name, p.Node)] = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last error
	for len(missing) > 0 {
		answer, err := l.Get(ctx, host, fmt.Sprintf("http://%s/", addr))
		delete(missing, answer)
		last = err
		if ctx.Err() != nil {
			t.Fatalf("%s from %s: no answer of %v; last error: %v", addr, host, missing, last)
		}
	}
}

func testReadiness(t *testing.T, l *Lab) {
	pods, err := l.RunPods(t.Context(), "shop", "brief", "n1", "n2")
	if err != nil {
		t.Fatal(err)
	}
	createService(t, l, LoadBalancer("shop", "brief", "brief"))
	waitEndpoints(t, l, "brief", pods[0].IPv4.String()+" true", pods[1].IPv4.String()+" true")
	if err := l.SetPodReady(t.Context(), pods[0], false); err != nil {
		t.Fatal(err)
	}
	waitEndpoints(t, l, "brief", pods[0].IPv4.String()+" false", pods[1].IPv4.String()+" true")
	if err := l.TerminatePod(t.Context(), pods[1], time.Hour); err != nil {
		t.Fatal(err)
	}
	waitEndpoints(t, l, "brief", pods[0].IPv4.String()+" false", pods[1].IPv4.String()+" false")
	if err := l.DeletePods(t.Context(), pods...); err != nil {
		t.Fatal(err)
	}
	waitEndpoints(t, l, "brief")
	again, err := l.RunPods(t.Context(), "shop", "brief", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if again[0].IPv4 != pods[0].IPv4 {
		t.Errorf("the address of a deleted pod is not used again: %v, was %v", again[0].IPv4, pods[0].IPv4)
	}
	if err := l.DeletePods(t.Context(), again...); err != nil {
		t.Fatal(err)
	}
}

// waitEndpoints waits until the IPv4 endpoints of a Service are, with their
// readiness, those wanted.
func waitEndpoints(t *testing.T, l *Lab, service string, want ...string) {
	t.Helper()
	var got []string
	wait(t, fmt.Sprintf("endpoints %q of %s", want, service), func() bool {
		list, err := l.Client().DiscoveryV1().EndpointSlices("shop").List(t.Context(), metav1.ListOptions{
			LabelSelector: "kubernetes.io/service-name=" + service})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				got = append(got, fmt.Sprintf("%s %v", e.Addresses[0], *e.Conditions.Ready))
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

func createService(t *testing.T, l *Lab, s *corev1.Service) *corev1.Service {
	t.Helper()
	made, err := l.CreateService(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
