package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is for what takes seconds on a machine that does nothing else.
const patience = 90 * time.Second

// TestLab runs one lab through its life. Each part leaves it as it was.
func TestLab(t *testing.T) {
	Require(t)
	var l *Lab
	t.Cleanup(func() { assertGone(t, l) }) // runs after the lab is down
	l = New(t, Options{Nodes: 3})
	pods, err := l.RunPods(t.Context(), "shop", "web", "n1", "n2", "n3", "n3")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the machine is untouched", testMachine)
	t.Run("nodes", func(t *testing.T) { testNodes(t, l) })
	t.Run("ClusterIP reaches all pods", func(t *testing.T) { testClusterIP(t, l, pods) })
	t.Run("LoadBalancer reaches all pods from the client", func(t *testing.T) { testLoadBalancer(t, l, pods) })
	t.Run("readiness and deletion", func(t *testing.T) { testReadiness(t, l) })
	t.Run("watch, cut and heal", func(t *testing.T) { testWatch(t, l) })
	t.Run("watch two hundred addresses", func(t *testing.T) { testWatchMany(t, l) })
	t.Run("cut the API alone", func(t *testing.T) { testCutAPI(t, l) })
	t.Run("cut peers, port, partition", func(t *testing.T) { testCutPeers(t, l) })
	t.Run("API stops and starts", func(t *testing.T) { testStopAPI(t, l) })
	t.Run("service account", func(t *testing.T) { testServiceAccount(t, l) })
	t.Run("proxy", func(t *testing.T) { testProxy(t, l) })
	t.Run("processes", func(t *testing.T) { testProcesses(t, l) })
	t.Run("kill and revive a node", func(t *testing.T) { testKillNode(t, l) })
	t.Run("a second lab crashes beside it", func(t *testing.T) { testSecondLab(t, l) })
	t.Run("attach", func(t *testing.T) { testAttach(t, l) })
}

// assertGone looks for what a lab may not leave. Other labs may come and go at
// the same time.
func assertGone(t *testing.T, l *Lab) {
	t.Helper()
	if l == nil {
		return // it did not come up
	}
	namespaces, err := exec.Command("ip", "netns", "list").Output()
	if err != nil || strings.Contains(string(namespaces), l.Name()+"-") {
		t.Errorf("namespaces are left: %v\n%s", err, namespaces)
	}
	if names, err := Names(); err != nil || slices.Contains(names, l.Name()) {
		t.Errorf("files are left: %v, %v", names, err)
	}
	for _, p := range l.Processes() {
		if p.Running() {
			t.Errorf("%s on %s still runs as process %d", p.Name, p.Host, p.PID)
		}
	}
}

// testMachine looks at the machine itself while the lab is up.
func testMachine(t *testing.T) {
	addresses, err := exec.Command("ip", "-o", "address", "show").Output()
	if err != nil || strings.Contains(string(addresses), " 198.51.100.") {
		t.Errorf("the machine has addresses of the lab: %v\n%s", err, addresses)
	}
	rules, err := exec.Command("nft", "list", "tables").Output()
	if err != nil || strings.Contains(string(rules), "ccm_lab") || strings.Contains(string(rules), "kube-proxy") {
		t.Errorf("the machine has packet filters of the lab: %v\n%s", err, rules)
	}
}

func testNodes(t *testing.T, l *Lab) {
	list, err := l.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range list.Items {
		line := n.Name
		for _, a := range n.Status.Addresses {
			line += " " + a.Address
		}
		for _, c := range n.Status.Conditions {
			line += fmt.Sprintf(" %s=%s", c.Type, c.Status)
		}
		got = append(got, fmt.Sprintf("%s taints=%d", line, len(n.Spec.Taints)))
	}
	want := []string{
		"n1 198.51.100.11 2001:db8:51::11 n1 Ready=True taints=0",
		"n2 198.51.100.12 2001:db8:51::12 n2 Ready=True taints=0",
		"n3 198.51.100.13 2001:db8:51::13 n3 Ready=True taints=0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("nodes\ngot  %q\nwant %q", got, want)
	}
}

func testServiceAccount(t *testing.T, l *Lab) {
	createServiceAccount(t, l, "narrow")
	config, err := l.Kubeconfig(t.Context(), "shop", "narrow")
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	out, err := l.Run(t.Context(), "n1", "kubectl", "--kubeconfig", config, "get", "nodes")
	if err == nil || !strings.Contains(out, "Forbidden") {
		t.Errorf("a service account without rights reads nodes: %v %s", err, out)
	}
	wait(t, "the refusal in the audit log", func() bool {
		log, err := l.Audit(since)
		if err != nil {
			t.Fatal(err)
		}
		return len(log.User("shop/narrow").On("nodes").Forbidden()) == 1
	})
}

func createServiceAccount(t *testing.T, l *Lab, name string) {
	t.Helper()
	_, err := l.Client().CoreV1().ServiceAccounts("shop").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func testProcesses(t *testing.T, l *Lab) {
	p, err := l.Start("n1", "sleeper", []string{"sh", "-c", "echo hello $WHO; exec sleep 1000"}, []string{"WHO=lab"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.WaitLog(ctx, "hello lab"); err != nil {
		t.Error(err)
	}
	if _, err := l.Start("n1", "sleeper", []string{"true"}, nil); err == nil {
		t.Error("a second process got the name of a running one")
	}
	if err := p.Pause(); err != nil {
		t.Error(err)
	}
	wait(t, "the pause", func() bool { f, err := procStat(p.PID); return err == nil && f[statState] == "T" })
	if err := p.Resume(); err != nil {
		t.Error(err)
	}
	if u, err := p.Usage(); err != nil || u.Memory == 0 {
		t.Errorf("usage %v, %v", u, err)
	}
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("a process that ends by SIGTERM: %v", err)
	}
	if p.Running() {
		t.Error("it runs after Stop")
	}
	p, err = l.Restart(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(p.Log(), "hello lab"); n < 1 {
		t.Errorf("log %q", p.Log())
	}
}

// testAttach takes the lab in hand as another program would.
func testAttach(t *testing.T, l *Lab) {
	if _, err := Up(t.Context(), Options{Name: l.Name()}); err == nil || !strings.Contains(err.Error(), "up already") {
		t.Errorf("a second Up of a living lab: %v", err)
	}
	other, err := Attach(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	p, err := other.Start("n1", "guest", []string{"sleep", "1000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Kubectl(t.Context(), "get", "nodes"); err != nil {
		t.Error(err)
	}
	third, err := Attach(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	same, ok := third.Process("n1", "guest")
	if !ok || same.PID != p.PID || !same.Running() {
		t.Fatalf("guest seen by a third program: %v", same)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := same.Stop(ctx); err != nil || p.Running() {
		t.Errorf("stopped by a third program: %v, running %v", err, p.Running())
	}
	for _, lab := range []*Lab{other, third} {
		if err := lab.Release(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Attach("no-such-lab"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("attach to nothing: %v", err)
	}
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := poll(ctx, what, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatal(err)
	}
}
