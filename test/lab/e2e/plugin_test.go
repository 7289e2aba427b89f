package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// plugin is kubectl-baremetal as it is built, run on the control plane host
// with the administrator's rights.
type plugin struct {
	t    *testing.T
	path string
	url  string // leads to the debug pages, with {node} in it
}

// newPlugin builds the plugin. The lab has no kubelet that could forward a
// port, so the debug pages are behind a server on the loopback of its host.
func newPlugin(t *testing.T) *plugin {
	t.Helper()
	p := &plugin{t: t, path: filepath.Join(t.TempDir(), "kubectl-baremetal")}
	must(t, product.BuildPlugin(bounded(t), p.path))
	host, err := cluster.Host(lab.ControlPlane)
	must(t, err)
	var listener net.Listener
	must(t, netns.Do(host.Namespace, func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		page, err := installed.Debug(r.Context(), node, "/"+path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, page) // the plugin has gone
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close() // the listener is all that could fail to close
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	p.url = fmt.Sprintf("http://%s/{node}", listener.Addr())
	return p
}

// run returns what a command prints, on both outputs, and its exit code.
func (p *plugin) run(args ...string) (string, int) {
	p.t.Helper()
	out, err := cluster.Run(bounded(p.t), lab.ControlPlane, append([]string{p.path, "--announcer-url", p.url}, args...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0
	case errors.As(err, &exit):
		return out, exit.ExitCode()
	}
	p.t.Fatal(err)
	return "", 0
}

// says fails the test unless a command succeeds and prints all parts.
func (p *plugin) says(args []string, parts ...string) string {
	p.t.Helper()
	out, code := p.run(args...)
	for _, part := range parts {
		if !strings.Contains(out, part) {
			p.t.Errorf("%v does not say %q:\n%s", args, part, out)
		}
	}
	if code != 0 {
		p.t.Errorf("%v: exit code %d:\n%s", args, code, out)
	}
	return out
}

// decode reads the JSON that a command prints.
func (p *plugin) decode(into any, args ...string) {
	p.t.Helper()
	out, code := p.run(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil || code != 0 {
		p.t.Fatalf("%v: exit code %d, %v:\n%s", args, code, err, out)
	}
}

// explained is what `explain -o json` says of the first address.
type explained struct {
	Addresses []struct {
		Owner       string
		ObserveOnly bool
	}
}

// checks is what `doctor -o json` says.
type checks struct {
	Checks []struct{ Name, Verdict, Seen string }
}

// TestPlugin runs every command of the built plugin against the API server and
// the announcers of the lab.
func TestPlugin(t *testing.T) {
	atRest(t)
	began := time.Now()
	p := newPlugin(t)
	eventually(t, "all announcers to be active", p.active) // one that was stale would take the address in the middle
	s, a, o := serving(t, "plugin")
	holder := owner(t, o)
	eventually(t, "the Service to say that it is announced", func(context.Context) error {
		if now := get(t, s); !slices.ContainsFunc(now.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "ccm-baremetal.io/Announced" && c.Status == metav1.ConditionTrue
		}) {
			return fmt.Errorf("its conditions are %v", now.Status.Conditions)
		}
		return nil
	})
	t.Run("Views", func(t *testing.T) {
		p.t = t
		p.says([]string{"status"}, "leads", "4 of 4")
		p.says([]string{"pools"}, "lan", "wide")
		p.says([]string{"services", "-n", "plugin"}, "plugin/web", a.String(), holder)
		p.says([]string{"members"}, "n1", "n2", "n3", "n4", "active")
		p.says([]string{"bgp", "--node", "n1"}, "speaks with no router")
		p.says([]string{"simulate", "--drain", holder}, a.String())
		for _, node := range names() {
			var e explained
			p.decode(&e, "explain", "plugin/web", "--node", node)
			if len(e.Addresses) != 1 || e.Addresses[0].Owner != holder || e.Addresses[0].ObserveOnly {
				t.Errorf("on %s: %+v, and %s answers", node, e, holder)
			}
		}
	})
	t.Run("Doctor", func(t *testing.T) { p.t = t; p.testDoctor() })
	t.Run("Dump", func(t *testing.T) { p.t = t; p.testDump(a.String()) })
	t.Run("UI", func(t *testing.T) { p.t = t; p.testUI(a.String(), holder) })
	t.Run("Drain", func(t *testing.T) { p.t = t; p.testDrain(holder, a.String(), func() string { return owner(t, o) }) })
	t.Logf("all of it took %.1f s", time.Since(began).Seconds())
}

// active returns an error unless all announcers are active.
func (p *plugin) active(context.Context) error {
	var got struct {
		Members []struct{ Name, State string }
	}
	out, code := p.run("members", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		return fmt.Errorf("exit code %d, %w: %s", code, err, out)
	}
	for _, m := range got.Members {
		if m.State != "active" {
			return fmt.Errorf("%s is %s", m.Name, m.State)
		}
	}
	return nil
}

func (p *plugin) testDoctor() {
	var got checks
	out, _ := p.run("doctor", "-o", "json") // whether all is well with a lab is not what is asked
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&got); err != nil {
		p.t.Fatalf("%v:\n%s", err, out)
	}
	verdicts := map[string]string{}
	for _, c := range got.Checks {
		verdicts[c.Name] = c.Verdict
	}
	for _, name := range []string{"controller", "announcers", "configuration", "exclude-label", "gossip", "same-configuration", "ports", "rights", "other-products", "rp_filter", "mtu", "bgp"} {
		if verdicts[name] != "ok" {
			p.t.Errorf("%s is %q:\n%s", name, verdicts[name], out)
		}
	}
}

func (p *plugin) testDump(address string) {
	secret, err := cluster.Client().CoreV1().Secrets(product.Namespace).Get(bounded(p.t), product.Secret, metav1.GetOptions{})
	must(p.t, err)
	file := filepath.Join(p.t.TempDir(), "dump.tar.gz")
	p.says([]string{"dump", "-f", file})
	content, err := os.ReadFile(file)
	must(p.t, err)
	files := unpack(p.t, content)
	for _, value := range secret.Data {
		for name, text := range files {
			if bytes.Contains(text, value) {
				p.t.Errorf("%s has the gossip key", name)
			}
		}
	}
	all := bytes.Join(slices.Collect(func(yield func([]byte) bool) {
		for _, text := range files {
			if !yield(text) {
				return
			}
		}
	}), nil)
	if len(files) < 8 || !bytes.Contains(all, []byte(address)) || !bytes.Contains(all, []byte(`"World"`)) {
		p.t.Errorf("%d files, without the address or the announcers' pages", len(files))
	}
}

// unpack returns the files of an archive by their names.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	must(t, err)
	files := map[string][]byte{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		files[h.Name], err = io.ReadAll(r)
		must(t, err)
	}
}

func (p *plugin) testUI(address, holder string) {
	p.says([]string{"ui", "--once"}, "<!doctype html>", address, "plugin/web", holder, "Recent moves")
	served, err := cluster.Start(lab.ControlPlane, "kubectl-baremetal-ui", []string{p.path, "--kubeconfig", cluster.AdminKubeconfig(), "--announcer-url", p.url, "ui"}, nil)
	must(p.t, err)
	defer func() { must(p.t, served.Stop(bounded(p.t))) }()
	eventually(p.t, "the page", func(ctx context.Context) error {
		page, err := cluster.Get(ctx, lab.ControlPlane, "http://127.0.0.1:8958/")
		if err == nil && !strings.Contains(page, address) {
			err = fmt.Errorf("it does not show %s:\n%s", address, page)
		}
		return err
	})
}

func (p *plugin) testDrain(holder, address string, now func() string) {
	draining := func() bool {
		n, err := cluster.Client().CoreV1().Nodes().Get(bounded(p.t), holder, metav1.GetOptions{})
		must(p.t, err)
		return n.Annotations[drainAnnotation] == "true"
	}
	p.says([]string{"drain", holder, "--dry-run"}, address)
	if draining() || now() != holder {
		p.t.Errorf("a dry run drained %s", holder)
	}
	p.says([]string{"drain", holder}, "annotation ccm-baremetal.io/drain is true")
	if next := now(); next == holder {
		p.t.Errorf("%s still answers for %s", holder, address)
	}
	p.says([]string{"members"}, "draining")
	p.says([]string{"ui", "--once"}, "Draining")
	p.says([]string{"undrain", holder})
	eventually(p.t, "the address to come back", func(context.Context) error {
		if next := now(); next != holder {
			return fmt.Errorf("%s answers", next)
		}
		return nil
	})
	if draining() {
		p.t.Errorf("the annotation has stayed on %s", holder)
	}
}
