package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An engine is podman with a store of its own, which is gone after the test.
type engine struct{ dir string }

func newEngine(t *testing.T) engine {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CCM_REQUIRE_NETNS") == "" {
		t.Skip("running containers needs root")
	}
	dir := must[string](t)(os.MkdirTemp("", "podman-"))
	e := engine{dir}
	t.Cleanup(func() {
		if out, err := e.command(context.Background(), "rm", "--all", "--force", "--time", "1").CombinedOutput(); err != nil {
			t.Errorf("remove the containers: %v: %s", err, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return e
}

// command is a command line of podman. It needs no overlay file system, which not
// every machine that runs tests has, and takes control groups as they are.
func (e engine) command(ctx context.Context, args ...string) *exec.Cmd {
	own := []string{
		"--root", filepath.Join(e.dir, "root"), "--runroot", filepath.Join(e.dir, "run"), "--tmpdir", filepath.Join(e.dir, "tmp"),
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--runtime", "runc",
	}
	return exec.CommandContext(ctx, "podman", append(own, args...)...)
}

func (e engine) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, complaints bytes.Buffer
	cmd := e.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("podman %s: %v: %s%s", strings.Join(args, " "), err, out.String(), complaints.String())
	}
	return strings.TrimSpace(out.String())
}

// confined are the restrictions of the manifests, without any network. The limits are
// low ones, because a machine may forbid to raise its own.
func confined(more ...string) []string {
	return append([]string{"run", "--network", "none", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"}, more...)
}

// kubeconfig writes a file that names an API server which does not exist.
func kubeconfig(t *testing.T) string {
	t.Helper()
	const text = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: nobody, user: {token: none}}]
contexts: [{name: none, context: {cluster: none, user: nobody}}]
current-context: none
`
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A container engine loads the images, each program says which commit it is, is
// found by kubectl exec, and answers about its health though there is neither an
// API server nor a network.
func TestImagesRunInAContainerEngine(t *testing.T) {
	e := newEngine(t)
	config := kubeconfig(t)
	head := must[string](t)(git(t.Context(), "../..", "rev-parse", "HEAD"))
	says := tested + " (commit " + head + ")"
	if must[string](t)(git(t.Context(), "../..", "status", "--porcelain")) != "" {
		says = tested + " (commit " + head + ", dirty)"
	}
	for _, c := range []struct {
		program, health string
		options, args   []string
	}{
		{"announcer", "http://127.0.0.1:7957/healthz", []string{"--cap-add", "NET_RAW", "--env", "NODE_NAME=n1"}, nil},
		{"ccm-baremetal", "https://127.0.0.1:10258/healthz?exclude=configuration-controller", nil, []string{"--leader-elect"}},
	} {
		t.Run(c.program, func(t *testing.T) {
			e.run(t, "load", "--input", filepath.Join(built, c.program+"-amd64.tar"))
			image := c.program + ":" + tested
			version := e.run(t, append(confined("--rm"), image, "--version")...)
			if !strings.Contains(version, c.program) || !strings.HasSuffix(version, " "+says) {
				t.Errorf("it says that it is %q, want %s", version, says)
			}
			options := append(confined("--detach", "--name", c.program, "--volume", config+":/kubeconfig:ro"), c.options...)
			e.run(t, append(append(options, image, "--kubeconfig", "/kubeconfig"), c.args...)...)
			e.waitHealthy(t, c.program, c.health)
			if again := e.run(t, "exec", c.program, c.program, "--version"); again != version {
				t.Errorf("kubectl exec would say %q", again)
			}
			e.run(t, "stop", "--time", "20", c.program)
			if code := e.run(t, "wait", c.program); code != "0" {
				t.Errorf("it ended with %s on SIGTERM; it said:\n%s", code, e.run(t, "logs", c.program))
			}
		})
	}
}

// waitHealthy asks a container about its health, within its network, until it
// says that it is well.
func (e engine) waitHealthy(t *testing.T, container, url string) {
	t.Helper()
	pid := e.run(t, "inspect", "--format", "{{.State.Pid}}", container)
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := exec.Command("nsenter", "--net=/proc/"+pid+"/ns/net", "curl", "--silent", "--show-error", "--fail", "--insecure", "--max-time", "2", url).CombinedOutput()
		if err == nil && strings.HasPrefix(string(out), "ok") {
			return
		}
		if time.Now().After(deadline) {
			logs := e.command(context.Background(), "logs", container)
			said, _ := logs.CombinedOutput() // the best that can be had
			t.Fatalf("%s is not healthy: %v: %s\nit said:\n%s", container, err, out, said)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
