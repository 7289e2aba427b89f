package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// crashEnv tells a second run of this test program which lab to make.
const crashEnv = "CCM_LAB_TEST_CRASH"

func TestMain(m *testing.M) {
	if name := os.Getenv(crashEnv); name != "" {
		holdLab(name)
	}
	os.Exit(m.Run())
}

// holdLab makes a lab and holds it until the program is killed.
func holdLab(name string) {
	_, err := Up(context.Background(), Options{Name: name, Nodes: 2, NodeLifecycle: true, Uninitialized: true, Out: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("up")
	select {}
}

// testSecondLab has another program make a second lab, with the options that
// the first does without, and kills that program.
func testSecondLab(t *testing.T, first *Lab) {
	name := first.Name() + "b"
	owner := startOwner(t, name)
	second, err := Attach(name)
	if err != nil {
		t.Fatal(err)
	}
	testUninitialized(t, second)
	testLifecycle(t, second)

	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	wait(t, "the end of all processes of the crashed program", func() bool {
		return !slices.ContainsFunc(second.Processes(), (*Process).Running)
	})
	if second.Alive() || !first.Alive() {
		t.Errorf("the crashed lab is alive: %v, the other: %v", second.Alive(), first.Alive())
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
	sweepFor(t, "another-name")
	assertGone(t, second)
	if _, err := first.Kubectl(t.Context(), "get", "nodes"); err != nil {
		t.Errorf("the first lab after the crash of the second: %v", err)
	}
}

// sweepFor does what Up does before it makes a lab.
func sweepFor(t *testing.T, name string) {
	t.Helper()
	unlock, err := lockLabs()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := sweep(name, t.Output()); err != nil {
		t.Fatal(err)
	}
}

// startOwner starts a program that makes a lab, and waits until that is up.
func startOwner(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+name)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatalf("the second lab did not come up: %v", err)
	}
	return cmd
}

func testUninitialized(t *testing.T, l *Lab) {
	n1, err := l.Client().CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := n1.Annotations[providedNodeIP], "198.51.100.11,2001:db8:51::11"; got != want {
		t.Errorf("provided node IP %q, want %q", got, want)
	}
	if !slices.ContainsFunc(n1.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == taintUninitialized }) {
		t.Errorf("taints %v", n1.Spec.Taints)
	}
}

// testLifecycle cuts a node off until it is not ready, and heals it.
func testLifecycle(t *testing.T, l *Lab) {
	waitNodeReady(t, l, "n2", corev1.ConditionTrue)
	if err := l.Cut(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	waitNodeReady(t, l, "n2", corev1.ConditionUnknown)
	t.Logf("not ready %.1f s after the cut", time.Since(cut).Seconds())
	if err := l.Heal(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	waitNodeReady(t, l, "n2", corev1.ConditionTrue)
}

func waitNodeReady(t *testing.T, l *Lab, node string, want corev1.ConditionStatus) {
	t.Helper()
	wait(t, fmt.Sprintf("%s ready %s", node, want), func() bool {
		n, err := l.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == want
		})
	})
}
