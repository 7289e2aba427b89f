package frrhost_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// capabilities returns what the overlay gives to the container of FRR, in the
// words of setpriv.
func capabilities(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../../manifests/bgp-frr/frr.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	out := "-all"
	for _, c := range set.Spec.Template.Spec.InitContainers[0].SecurityContext.Capabilities.Add {
		out += ",+" + strings.ToLower(string(c))
	}
	return out
}

// sidecar runs FRR and what is beside it as the container of the overlay does:
// as root that has the capabilities of the overlay and can gain no others.
func (h *host) sidecar(dirs ...string) *exec.Cmd {
	h.t.Helper()
	script, err := filepath.Abs("../../../../manifests/bgp-frr/reload.py")
	if err != nil {
		h.t.Fatal(err)
	}
	return h.start([]string{"FRR_RUN=" + dirs[0]}, "setpriv", "--bounding-set="+capabilities(h.t), "--inh-caps=-all", "--no-new-privs",
		"python3", script, "--daemons", dirs[1])
}

// volumes makes directories as Kubernetes makes empty volumes.
func (h *host) volumes(names ...string) (out []string) {
	h.t.Helper()
	h.must("chmod", "755", h.dir)
	for _, n := range names {
		dir := filepath.Join(h.dir, n)
		h.must("mkdir", "-m", "777", dir)
		out = append(out, dir)
	}
	return out
}

// With the rights of the overlay FRR has a session with a password and BFD.
// When the pod is replaced, a router that has agreed to graceful restart keeps
// the routes throughout.
func TestB128TheSidecarOfTheOverlayIsReplacedWithoutALostRoute(t *testing.T) {
	t.Parallel()
	node, tor := newHost(t, "s"), newHost(t, "r")
	need(t, "setpriv")
	cable(node, tor, "eth0", "192.0.2.", "2001:db8::")
	tor.frr(torConfiguration)
	dirs := node.volumes("run", "share")
	first := node.sidecar(dirs...)
	s, log := node.speakerIn(dirs[1])
	external, _ := peers()
	some := routes("203.0.113.1/32")
	s.Set([]plan.Peering{{Peer: external, Routes: some, Pause: time.Second}})
	node.waitPeer(s, "tor", 1)
	node.eventually(func() error {
		if x := session(s, "tor"); x.BFD != "up" {
			return fmt.Errorf("BFD is %q", x.BFD)
		}
		return nil
	})

	external.BFD, external.GracefulRestart = nil, 60*time.Second
	s.Set([]plan.Peering{{Peer: external, Routes: some, Pause: time.Second}})
	node.eventually(func() error {
		if x := session(s, "tor"); x.State != bgp.Established || !x.Restarting {
			return fmt.Errorf("%s %q, agreed on graceful restart: %v", x.State, x.Why, x.Restarting)
		}
		return nil
	})
	node.waitPeer(s, "tor", 1)
	up := session(s, "tor").Times
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.Leave(ctx)
	lost := tor.watch("203.0.113.1/32")
	syscall.Kill(-first.Process.Pid, syscall.SIGTERM)
	tor.eventually(func() error {
		if got := tor.vtysh("show bgp ipv4 unicast 203.0.113.1/32"); !strings.Contains(got, "stale") {
			return fmt.Errorf("the router has %s", got)
		}
		return nil
	})
	node.sidecar(dirs...)
	s, _ = node.speakerIn(dirs[1])
	s.Set([]plan.Peering{{Peer: external, Routes: some, Pause: time.Second}})
	node.waitPeer(s, "tor", 1)
	tor.eventually(func() error {
		if got := tor.vtysh("show bgp ipv4 unicast 203.0.113.1/32"); strings.Contains(got, "stale") || !strings.Contains(got, "203.0.113.1") {
			return fmt.Errorf("the router has %s", got)
		}
		return nil
	})
	if n := lost(); n != 0 {
		t.Errorf("the router was without the route %d times; %d sessions before; log:\n%s", n, up, log.String())
	}
}

// waitPeer waits until a session is up, has told so many prefixes, and has
// nothing to complain of.
func (h *host) waitPeer(s sessions, peer string, told int) {
	h.t.Helper()
	h.eventually(func() error {
		if x := session(s, peer); x.State != bgp.Established || len(x.Advertised) != told || x.Why != "" {
			return fmt.Errorf("%s: %s %q, told %d of %d", peer, x.State, x.Why, len(x.Advertised), x.Wanted)
		}
		return nil
	})
}

// watch asks a router for a prefix again and again. What it returns ends that,
// and says how often the router had none.
func (h *host) watch(prefix string) func() int {
	ctx, cancel := context.WithCancel(context.Background())
	missing, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			out, err := exec.Command("ip", h.inside("vtysh", "--vty_socket", h.dir, "-c", "show bgp ipv4 unicast "+prefix)...).Output()
			if err == nil && !strings.Contains(string(out), "BGP routing table entry for "+prefix) {
				missing++
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	end := func() int { cancel(); <-done; return missing }
	h.t.Cleanup(func() { end() })
	return end
}
