// Package scale measures the announcer in a cluster that is bigger than any
// lab: the real program, and a stand-in for the API server.
package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/apistub"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// What the announcer is promised to stay below. Memory does not depend on how
// busy the machine is; the time that a CPU takes for something does.
const (
	memoryBound = 60 << 20
	cpuBound    = 2 * 0.01 // of a core

	// allBound is for who announces all addresses of such a cluster alone,
	// which nothing is promised of.
	allBound = 90 << 20

	// plainBound holds for a moment after the start, where the API server is
	// older than streaming lists and sends each list as one message.
	plainBound = 160 << 20
)

// programs is the directory with the built product.
var programs string

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (code int, err error) {
	ctx := context.Background()
	root, err := product.Root(ctx)
	if err != nil {
		return 1, err
	}
	if programs, err = os.MkdirTemp("", "scale"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	if err := product.Build(ctx, root, programs, os.Stderr); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// An announcer of 5,000 Services with 20,000 endpoints and of 500 Nodes, from
// its first list on: what it takes while it announces its share, how busy it is
// when nothing happens but heartbeats, and what it does, and takes, when all
// addresses are suddenly its own.
func TestAnnouncerOfABigCluster(t *testing.T) {
	api, namespace := bigCluster(), network(t)
	heard := listen(t, namespace)
	a := start(t, namespace, api)
	t.Run("IsSmall", func(t *testing.T) { a.fits(t, share, memoryBound) })
	t.Run("IsIdle", func(t *testing.T) { a.idles(t, api) })
	t.Run("B164AnnouncesAllSoonButPaced", func(t *testing.T) {
		began := time.Now()
		api.Change("configmaps", 0, func(o apistub.Object) { o.(*corev1.ConfigMap).Data[product.ConfigKey] = allHere })
		a.fits(t, services, allBound)
		judgePace(t, heard, began)
	})
}

// listen hears the announcements of all addresses at the other end of the link.
func listen(t *testing.T, namespace string) *observe.Watcher {
	t.Helper()
	c := observe.Config{
		Link: "wire", Interval: time.Hour, // it asks for each once, before anybody could answer
		SendersV4: []netip.Addr{netip.MustParseAddr("192.0.2.250")},
	}
	for i := range services {
		c.Addresses = append(c.Addresses, netip.MustParseAddr(addressOf(i)))
	}
	var w *observe.Watcher
	must(t, netns.Do(namespace, func() (err error) {
		w, err = observe.Watch(c)
		return err
	}))
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

// What is promised: every address is announced soon, and not faster
// than the network is meant to bear.
const (
	soon      = 2 * 30 * time.Second
	perSecond = 1000 // frames on a link
)

func judgePace(t *testing.T, heard *observe.Watcher, began time.Time) {
	var last time.Time
	var frames []time.Time
	for _, a := range heard.Addresses() {
		all := heard.Of(a).Announcements(time.Time{}, time.Time{})
		for ; len(all) == 0 && time.Since(began) < 2*soon; time.Sleep(100 * time.Millisecond) {
			all = heard.Of(a).Announcements(time.Time{}, time.Time{})
		}
		if len(all) == 0 {
			t.Fatalf("%s has not been announced", a)
		}
		if first := all[0].Time; first.After(last) {
			last = first
		}
		for _, announced := range all {
			frames = append(frames, announced.Time)
		}
	}
	slices.SortFunc(frames, time.Time.Compare)
	most := 0
	for i, j := 0, 0; i < len(frames); i++ {
		for frames[i].Sub(frames[j]) >= time.Second {
			j++
		}
		most = max(most, i-j+1)
	}
	t.Logf("all %d addresses announced %.1f s after the change; at most %d frames in a second", services, last.Sub(began).Seconds(), most)
	if last.Sub(began) > soon || most > perSecond*5/4 {
		t.Errorf("want at most %s, and %d frames a second", soon, perSecond)
	}
}

func TestListsOfOlderServersFitToo(t *testing.T) {
	api := bigCluster()
	api.NoStreaming = true
	start(t, network(t), api).fits(t, share, plainBound)
}

// fits waits until so many addresses are announced, and looks at the memory.
func (a announcer) fits(t *testing.T, addresses, bound int) {
	t.Helper()
	a.announces(t, addresses)
	time.Sleep(8 * time.Second) // the first rounds of announcements
	m := a.memory(t)
	t.Logf("announcing %d addresses: %s", addresses, m)
	if m.peak > bound {
		t.Errorf("want at most %d MiB", bound>>20)
	}
}

// announcer is one at work, in a network of its own.
type announcer struct {
	namespace string
	process   *os.Process
	http      *http.Client
}

func start(t *testing.T, namespace string, api *apistub.Server) announcer {
	t.Helper()
	listener, err := netns.Listen(namespace, "tcp", "127.0.0.1:0")
	must(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: api}}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	must(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": [{"name": "x", "cluster": {"server": %q}}], "contexts": [{"name": "x", "context": {"cluster": "x"}}]}`, server.URL), 0o600))

	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command("ip", "netns", "exec", namespace, filepath.Join(programs, product.Announcer), "--kubeconfig", kubeconfig, "--node-name", nodeName(0))
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if b, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%.3000s", b)
		}
	})
	return announcer{namespace, cmd.Process, &http.Client{Transport: &http.Transport{DialContext: netns.Dialer(namespace)}}}
}

// network makes a network namespace with one link that leads nowhere.
func network(t *testing.T) string {
	t.Helper()
	lab.Require(t)
	name := fmt.Sprintf("scale-test-%d", os.Getpid())
	for i, command := range []string{
		"netns add " + name,
		"-n " + name + " link set lo up",
		"-n " + name + " link add eth0 type veth peer name wire",
		"-n " + name + " link set eth0 up",
		"-n " + name + " link set wire up",
		"-n " + name + " address add 192.0.2.1/24 dev eth0",
		"-n " + name + " route add default via 192.0.2.254",
	} {
		must(t, run("ip", strings.Fields(command)...))
		if i == 0 {
			t.Cleanup(func() { must(t, run("ip", "netns", "delete", name)) })
		}
	}
	return name
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// announces waits until the announcer says that it owns so many addresses.
func (a announcer) announces(t *testing.T, want int) {
	t.Helper()
	line := fmt.Sprintf("announcer_addresses{reason=\"Owner\"} %d\n", want)
	var page string
	for limit := time.Now().Add(2 * time.Minute); time.Now().Before(limit); time.Sleep(time.Second) {
		response, err := a.http.Get("http://127.0.0.1:7957/metrics")
		if err != nil {
			continue // not yet
		}
		b, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if page = string(b); strings.Contains(page, line) {
			return
		}
	}
	t.Fatalf("its metrics do not say %q:\n%s", line, page)
}

// idles measures how busy the announcer is while the Nodes of the cluster do
// nothing but report, each once in five minutes, that they are well.
func (a announcer) idles(t *testing.T, api *apistub.Server) {
	t.Helper()
	const length = 20 * time.Second
	begin, before := time.Now(), a.cpu(t)
	for i := range int(length.Seconds() * nodes / 300) {
		time.Sleep(300 * time.Second / nodes)
		api.Change("nodes", i, func(o apistub.Object) {
			o.(*corev1.Node).Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		})
	}
	share := float64(a.cpu(t)-before) / float64(time.Since(begin))
	t.Logf("idle: %.2f %% of a core; %s", 100*share, a.memory(t))
	if share > cpuBound {
		t.Errorf("want at most %.0f %%", 100*cpuBound)
	}
}

// memory is what a process takes, in bytes.
type memory struct{ peak, now, own int }

func (m memory) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("%.1f MiB at most, now %.1f, of which %.1f are the program's text", float64(m.peak)/mib, float64(m.now)/mib, float64(m.now-m.own)/mib)
}

func (a announcer) memory(t *testing.T) memory {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.process.Pid))
	must(t, err)
	found := map[string]int{}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "kB" {
			found[fields[0]], err = strconv.Atoi(fields[1])
			must(t, err)
		}
	}
	m := memory{peak: found["VmHWM:"] << 10, now: found["VmRSS:"] << 10, own: found["RssAnon:"] << 10}
	if m.peak == 0 || m.now == 0 || m.own == 0 {
		t.Fatalf("no figures in\n%s", b)
	}
	return m
}

// cpu is the time that the process has had on a CPU.
func (a announcer) cpu(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.process.Pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	const user, system, perSecond = 11, 12, 100 // of proc(5), after the name
	var ticks int
	for _, field := range []int{user, system} {
		n, err := strconv.Atoi(fields[field])
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / perSecond
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
