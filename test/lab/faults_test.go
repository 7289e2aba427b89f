package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
)

// testWatch watches the address of a node, for which its kernel answers.
func testWatch(t *testing.T, l *Lab) {
	n1, _ := l.Host("n1")
	w, err := l.Watch(Client, 20*time.Millisecond, n1.IPv4, n1.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	waitReplies(t, begin, w.Of(n1.IPv4).WaitReply, w.Of(n1.IPv6).WaitReply)

	if err := l.Cut(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	time.Sleep(time.Second)
	healed := time.Now()
	if err := l.Heal(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	waitReplies(t, healed, w.Of(n1.IPv4).WaitReply, w.Of(n1.IPv6).WaitReply)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for _, addr := range []netip.Addr{n1.IPv4, n1.IPv6} {
		o := w.Of(addr)
		if r := o.Replies(cut, healed); len(r) > 0 {
			t.Errorf("%s: %d replies while cut", addr, len(r))
		}
		gaps := slices.DeleteFunc(o.Gaps(900*time.Millisecond), func(g observe.Gap) bool { return g.Questions == 0 }) // nobody has asked
		if len(gaps) != 1 || gaps[0].Questions < 10 {
			t.Errorf("%s: gaps %v, want one of a second with its questions", addr, gaps)
		}
		if macs := o.MACs(begin, time.Time{}); !slices.Equal(macs, []string{n1.MAC}) {
			t.Errorf("%s: answered by %v, want %s", addr, macs, n1.MAC)
		}
		t.Log(o)
	}
}

// testWatchMany watches addresses that the kernel of one node answers for.
func testWatchMany(t *testing.T, l *Lab) {
	var addrs []netip.Addr
	var add, remove []string
	for i := 100; i < 200; i++ {
		for _, text := range []string{fmt.Sprintf("198.51.100.%d/32", i), fmt.Sprintf("2001:db8:51::1:%d/128", i)} {
			addrs = append(addrs, netip.MustParsePrefix(text).Addr())
			add = append(add, "address add "+text+" dev eth0 nodad")
			remove = append(remove, "address delete "+text+" dev eth0")
		}
	}
	w, err := l.Watch(Client, 500*time.Millisecond, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := ip(t.Context(), l.namespace("n2"), add); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n2, _ := l.Host("n2")
	for _, a := range w.Addresses() {
		if r, err := w.Of(a).WaitReply(ctx, begin); err != nil || r.MAC != n2.MAC {
			t.Fatalf("%v, %v; want a reply of n2", r, err)
		}
	}
	t.Logf("%d addresses answered after %.1f s", len(addrs), time.Since(begin).Seconds())
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := ip(t.Context(), l.namespace("n2"), remove); err != nil {
		t.Fatal(err)
	}
}

func waitReplies[R any](t *testing.T, since time.Time, waits ...func(context.Context, time.Time) (R, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, wait := range waits {
		if _, err := wait(ctx, since); err != nil {
			t.Fatal(err)
		}
	}
}

func testCutAPI(t *testing.T, l *Lab) {
	if err := l.CutAPI(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n2", ControlPlane, false)
	assertReach(t, l, "n2", "n1", true)
	assertReach(t, l, "n1", ControlPlane, true)
	if err := l.Heal(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n2", ControlPlane, true)
}

func testCutPeers(t *testing.T, l *Lab) {
	if err := l.CutPeers(t.Context(), "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n2", false)
	assertReach(t, l, "n3", "n2", false)
	assertReach(t, l, Client, "n2", true)
	assertReach(t, l, "n2", ControlPlane, true)
	if err := l.Heal(t.Context(), "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	if err := l.Partition(t.Context(), "n1", "n2"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n2", true)
	assertReach(t, l, "n1", "n3", false)
	assertReach(t, l, "n3", "n2", false)
	if err := l.Heal(t.Context(), "n1", "n2"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n3", "n2", true)
	if err := l.CutPort(t.Context(), 7956, "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n2", true)
	if err := l.CutPort(t.Context(), 9, "n1"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n2", false)
	assertReach(t, l, "n3", "n1", false)
	assertReach(t, l, "n3", "n2", true)
	if err := l.Heal(t.Context(), "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	if err := l.Split(t.Context(), "n1", "n2"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n2", true)
	assertReach(t, l, "n1", "n3", false)
	if err := l.Heal(t.Context(), "n1", "n2"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n3", true)
	if err := l.CutSilently(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n2", false)
	link, err := l.Run(t.Context(), "n1", "ip", "-o", "link", "show", "eth0")
	if err != nil || strings.Contains(link, "NO-CARRIER") {
		t.Errorf("link of a silently cut host: %v %s", err, link)
	}
	if err := l.Heal(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	assertReach(t, l, "n1", "n2", true)
}

// assertReach sends TCP from one host to another: to the API server's port of
// the control plane, else to a port where nobody listens, whose refusal is as
// good a sign of life.
func assertReach(t *testing.T, l *Lab, from, to string, want bool) {
	t.Helper()
	h, err := l.Host(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []netip.Addr{h.IPv4, h.IPv6} {
		timeout := 10 * time.Second
		if !want {
			timeout = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		_, err := l.Get(ctx, from, fmt.Sprintf("http://%s/", netip.AddrPortFrom(addr, 9)))
		cancel()
		if got := err != nil && strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()); got != want {
			t.Errorf("%s reaches %s at %s: %v (%v), want %v", from, to, addr, got, err, want)
		}
	}
}

func testStopAPI(t *testing.T, l *Lab) {
	if err := l.StopAPI(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the API server answers after it was stopped")
	}
	if err := l.StopEtcd(); err != nil {
		t.Fatal(err)
	}
	if err := l.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := l.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Errorf("nodes after the API server came back: %d, %v", len(list.Items), err)
	}
}

func testKillNode(t *testing.T, l *Lab) {
	p, err := l.Start("n3", "mine", []string{"sleep", "1000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.KillNode(t.Context(), "n3"); err != nil {
		t.Fatal(err)
	}
	if left, err := processesIn(l.namespace("n3")); err != nil || len(left) > 0 || p.Running() {
		t.Errorf("left on a dead node: %v, %v", left, err)
	}
	if err := l.ReviveNode(t.Context(), "n3"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"kube-proxy": true, "mine": false} {
		if p, _ := l.Process("n3", name); p.Running() != want {
			t.Errorf("%s runs on the revived node: %v", name, p.Running())
		}
	}
	wait(t, "pods of the revived node", func() bool {
		_, err := l.Get(t.Context(), "n1", "http://10.244.3.1:8080/")
		return err == nil
	})
}
