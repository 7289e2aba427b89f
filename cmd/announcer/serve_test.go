package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// asAnnouncer makes the test binary be the announcer, so that tests can start
// one, send it signals and see how it ends.
const asAnnouncer = "CCM_TEST_AS_ANNOUNCER"

func TestMain(m *testing.M) {
	os.Unsetenv("NODE_NAME") // of the machine that runs the tests
	if os.Getenv(asAnnouncer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// fakeAPI is an API server of a cluster with one Node, on the loopback. What
// it serves never changes but for the Secret.
type fakeAPI struct {
	*httptest.Server

	mu     sync.Mutex
	secret *corev1.Secret
	asked  map[string]int // requests by their first words
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{asked: map[string]int{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *fakeAPI) put(s *corev1.Secret) {
	s.Name, s.Namespace, s.ResourceVersion = "ccm-baremetal-gossip", "kube-system", "2"
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secret = s
}

// kubeconfig returns a file that leads to the server.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": [{"name": "x", "cluster": {"server": %q}}], "contexts": [{"name": "x", "context": {"cluster": "x"}}]}`, url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	f.mu.Lock()
	f.asked[r.Method+" "+r.URL.Path+" by "+r.UserAgent()]++
	secret := f.secret
	f.mu.Unlock()
	switch {
	case q.Get("sendInitialEvents") != "":
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case strings.HasSuffix(r.URL.Path, "/secrets") && q.Get("watch") == "":
		if q.Get("fieldSelector") != "metadata.name=ccm-baremetal-gossip" {
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
			return
		}
		if secret == nil {
			list[corev1.Secret](w, "v1", "SecretList")
			return
		}
		list(w, "v1", "SecretList", *secret)
	case strings.HasSuffix(r.URL.Path, "/secrets") && q.Get("watch") != "":
		f.watchSecret(w, r, secret)
	case q.Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(r.URL.Path, "/nodes"):
		list(w, "v1", "NodeList", corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}},
		})
	case strings.HasSuffix(r.URL.Path, "/services"):
		list[corev1.Service](w, "v1", "ServiceList")
	case strings.HasSuffix(r.URL.Path, "/endpointslices"):
		list[corev1.Service](w, "discovery.k8s.io/v1", "EndpointSliceList")
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		write(w, corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{UID: "cluster-a"}})
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// watchSecret tells what has become of the Secret until the watcher goes.
func (f *fakeAPI) watchSecret(w http.ResponseWriter, r *http.Request, told *corev1.Secret) {
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for ; r.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
		f.mu.Lock()
		now := f.secret
		f.mu.Unlock()
		if now != told {
			write(w, map[string]any{"type": "MODIFIED", "object": now})
			w.(http.Flusher).Flush()
			told = now
		}
	}
}

func list[T any](w io.Writer, version, kind string, items ...T) {
	write(w, map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]string{"resourceVersion": "1"}, "items": append([]T{}, items...)})
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	write(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: int32(code)})
}

func write(w io.Writer, v any) {
	_ = json.NewEncoder(w).Encode(v) // the client that has gone will ask again
}

// running is an announcer at work.
type running struct {
	public, debug string
	process       *os.Process
	ended         chan error // what became of the process, for everybody who asks
	log           *wire.Log
}

// start runs the announcer of n1, as a process, until the test ends.
func start(t *testing.T, api string, args ...string) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("apiVersion: ccm-baremetal.io/v1alpha1\nkind: CloudConfig\npools: [{addresses: [192.0.2.0/24]}]\nmembership: {port: %s}\n", port(t))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	metrics := port(t)
	r := &running{public: "127.0.0.1:" + metrics, debug: "127.0.0.1:" + port(t), ended: make(chan error, 1), log: &wire.Log{}}
	cmd := exec.Command(self, append([]string{
		"--node-name", "n1", "--kubeconfig", kubeconfig(t, api), "--cloud-config", file,
		"--bind-address", "127.0.0.1", "--metrics-port", metrics, "--debug-address", r.debug,
	}, args...)...)
	cmd.Env = append(os.Environ(), asAnnouncer+"=1")
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.process = cmd.Process
	go func() { r.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.process.Kill() // unless it has ended
		<-r.ended
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r
}

// ends waits for the end of the process.
func (r *running) ends(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(time.Minute):
		t.Fatal("does not end")
		return nil
	}
}

func (r *running) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// givenPorts are those that port has returned.
var givenPorts sync.Map

// port returns one that is free, and that the kernel gives to nobody who asks for
// any: it lies below those.
func port(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := fmt.Sprint(20000 + rand.IntN(12000))
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal("no port is free")
	return ""
}

// says waits until a path of the announcer answers with a text that contains part.
func (r *running) says(t *testing.T, path, part string) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		response, err := http.Get("http://" + r.public + path)
		if err != nil {
			last = err.Error()
			continue
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		last = response.Status + " " + string(body)
		if strings.Contains(last, part) {
			return
		}
	}
	t.Fatalf("%s says %s, want %s", path, last, part)
}

func TestB110MissingSecretIsWaitedFor(t *testing.T) {
	api := newFakeAPI(t)
	r := start(t, api.URL)
	r.says(t, "/readyz", "503 Service Unavailable NotSynced: waiting for the gossip key: there is no Secret kube-system/ccm-baremetal-gossip yet")
	r.says(t, "/healthz", "200 OK ok")
	api.put(&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{}})
	r.says(t, "/readyz", "the Secret kube-system/ccm-baremetal-gossip has no key")
	api.put(&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"key": []byte("of any length")}})
	r.says(t, "/readyz", "200 OK ok")
	r.says(t, "/metrics", "announcer_members 1\n")

	var out bytes.Buffer
	if err := run(context.Background(), []string{"members", "--server", "http://" + r.debug}, &out, &out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.HasPrefix(got, "NAME STATE OWNS RULES CONFIG LINKS n1 * active 0 2 ") {
		t.Errorf("members: %s", &out)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	for request := range api.asked {
		if !strings.HasPrefix(request, "GET ") || !strings.HasSuffix(request, " by announcer") {
			t.Errorf("asked for %s", request)
		}
	}
}

func TestInsecureMembershipNeedsNoSecret(t *testing.T) {
	api := newFakeAPI(t)
	r := start(t, api.URL, "--insecure-membership")
	r.says(t, "/readyz", "200 OK ok")
	api.mu.Lock()
	defer api.mu.Unlock()
	for request := range api.asked {
		if strings.Contains(request, "secrets") {
			t.Errorf("asked for %s", request)
		}
	}
}

func TestStartWithoutAPIServerWaits(t *testing.T) {
	r := start(t, "http://127.0.0.1:"+port(t))
	r.says(t, "/readyz", "NotSynced: waiting for EndpointSlices, Nodes, Service default/kubernetes, Services")
	r.says(t, "/healthz", "200 OK ok")
	r.signal(t, syscall.SIGTERM)
	if err := r.ends(t); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestTermEndsWithoutError(t *testing.T) {
	r := start(t, newFakeAPI(t).URL, "--insecure-membership")
	r.says(t, "/readyz", "200 OK ok")
	r.signal(t, syscall.SIGTERM)
	if err := r.ends(t); err != nil {
		t.Errorf("ended with %v", err)
	}
	if log := r.log.String(); !strings.Contains(log, "msg=leaving") || !strings.Contains(log, "msg=left") {
		t.Errorf("has not left:\n%s", log)
	}
}

func TestB169NodeNameIsRequired(t *testing.T) {
	for _, args := range [][]string{{}, {"--node-name", ""}} {
		err := run(context.Background(), args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "set NODE_NAME from spec.nodeName, or --node-name") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, taken, err := net.SplitHostPort(busy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	node := []string{"--node-name", "n1", "--kubeconfig", kubeconfig(t, "http://127.0.0.1:1"), "--bind-address", "127.0.0.1"}
	tests := map[string][]string{
		"--debug-address: address nowhere: missing port":    {"--node-name", "n1", "--debug-address", "nowhere"},
		`--log-format is text or json, not "xml"`:           {"--node-name", "n1", "--log-format", "xml"},
		"unknown flag: --nodename; see announcer --help":    {"--nodename", "n1"},
		`invalid argument "loud" for "--log-level" flag`:    {"--log-level", "loud"},
		`unknown command "explode" for "announcer"`:         {"explode"},
		"find the API server: ":                             {"--node-name", "n1", "--kubeconfig", "/nonexistent"},
		"health and metrics: listen tcp 127.0.0.1:" + taken: append(node, "--metrics-port", taken),
		"debug pages: listen tcp 127.0.0.1:" + taken:        append(node, "--metrics-port", port(t), "--debug-address", busy.Addr().String()),
	}
	for want, args := range tests {
		err := run(context.Background(), args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", args, err, want)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), []string{"--help"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"What it needs:", "What it never does:", "NET_RAW", "--node-name", "explain", "members", "Examples:"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the help says nothing of %s", part)
		}
	}
	for line := range strings.Lines(help) {
		if len(line) > 81 {
			t.Errorf("too wide for a terminal: %s", line)
		}
	}
}

func TestMessagesOfClientGoAreForDebuggingOnly(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelInfo:  "",
		slog.LevelDebug: "level=DEBUG msg=\"Failed to watch\" reflector=Nodes\n",
	} {
		var out bytes.Buffer
		drop := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		handler := demoted{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: drop})}
		slog.New(handler.WithAttrs([]slog.Attr{slog.String("reflector", "Nodes")})).Error("Failed to watch")
		unasked := slog.NewRecord(time.Now(), slog.LevelError, "not asked before", 0)
		if err := handler.Handle(context.Background(), unasked); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(out.String(), "level=DEBUG msg=\"not asked before\""); got != want {
			t.Errorf("at %s: %q, want %q", level, got, want)
		}
	}
}
