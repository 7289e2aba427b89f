package rehearse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// server answers every request that reaches it.
type server struct{ got []string }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.got = append(s.got, r.Method+" "+r.URL.Path)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// stage is a rehearsal with what it lets through and what it says.
type stage struct {
	*Rehearsal
	t      *testing.T
	server server
	said   bytes.Buffer
}

func open(t *testing.T) *stage {
	s := &stage{t: t}
	s.Rehearsal = New(slog.New(slog.NewTextHandler(&s.said, nil)))
	return s
}

func (s *stage) send(method, path, body string) error {
	s.t.Helper()
	r, err := http.NewRequest(method, "https://api"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	closed := &closing{Reader: strings.NewReader(body)}
	r.Body = closed
	response, err := s.Wrap(&s.server).RoundTrip(r)
	if err != nil {
		if !closed.done {
			s.t.Errorf("%s %s: the body was not closed", method, path)
		}
		return err
	}
	return response.Body.Close()
}

type closing struct {
	io.Reader
	done bool
}

func (c *closing) Close() error {
	c.done = true
	return nil
}

func (s *stage) lines() int { return strings.Count(s.said.String(), "\n") }

const service = "/api/v1/namespaces/shop/services/web/status"

func TestWhatOnlyReadsPasses(t *testing.T) {
	s := open(t)
	for _, r := range [][2]string{
		{http.MethodGet, service},
		{http.MethodHead, "/healthz"},
		{http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews"},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews"},
	} {
		if err := s.send(r[0], r[1], "{}"); err != nil {
			t.Errorf("%s %s: %v", r[0], r[1], err)
		}
	}
	if len(s.server.got) != 4 || len(s.Withheld()) != 0 || s.lines() != 0 {
		t.Errorf("the server got %v; withheld %v; said %s", s.server.got, s.Withheld(), &s.said)
	}
}

func TestEveryWriteIsWithheldAndCounted(t *testing.T) {
	s := open(t)
	for _, r := range [][2]string{
		{http.MethodPatch, service},
		{http.MethodPatch, service},
		{http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm-baremetal"},
		{http.MethodPost, "/api/v1/namespaces/kube-system/configmaps"},
		{http.MethodDelete, "/api/v1/nodes/n1"},
		{http.MethodPatch, "/api/v1/nodes/n1/status"},
		{http.MethodPatch, "/api/v1/namespaces/shop"},
		{http.MethodPost, "/api/v1/namespaces/shop/events"},
		{http.MethodPost, "/api/v1/namespaces/kube-system/serviceaccounts/announcer/token"},
		{http.MethodPost, "/elsewhere"},
	} {
		err := s.send(r[0], r[1], "{}")
		if event := strings.HasSuffix(r[1], "/events"); event && err != nil || !event && !errors.Is(err, ErrWithheld) {
			t.Errorf("%s %s: %v", r[0], r[1], err)
		}
	}
	if len(s.server.got) != 0 {
		t.Errorf("the server got %v", s.server.got)
	}
	want := []Count{
		{"create", "configmaps", 1}, {"create", "events", 1}, {"update", "leases", 1}, {"patch", "namespaces", 1}, {"delete", "nodes", 1},
		{"patch", "nodes/status", 1}, {"create", "other", 1}, {"create", "serviceaccounts/token", 1}, {"patch", "services/status", 2},
	}
	if diff := cmp.Diff(want, s.Withheld()); diff != "" {
		t.Error(diff)
	}
}

func TestAWriteIsSaidOnceUntilItSaysSomethingElse(t *testing.T) {
	s := open(t)
	patch := func(address, time string) {
		_ = s.send(http.MethodPatch, service, `{"ip":"`+address+`","lastTransitionTime":"2026-01-02T03:04:`+time+`Z"}`)
	}
	patch("192.0.2.9", "05")
	if !strings.Contains(s.said.String(), "would patch") || !strings.Contains(s.said.String(), "192.0.2.9") {
		t.Errorf("said %s", &s.said)
	}
	patch("192.0.2.9", "06") // the same at another time
	if s.lines() != 1 {
		t.Errorf("said again:\n%s", &s.said)
	}
	patch("192.0.2.10", "07")
	patch("192.0.2.9", "08")
	if s.lines() != 3 {
		t.Errorf("%d lines, want 3:\n%s", s.lines(), &s.said)
	}
}

func TestNothingOfASecretIsSaid(t *testing.T) {
	s := open(t)
	_ = s.send(http.MethodPost, "/api/v1/namespaces/kube-system/secrets", `{"data":{"key":"aHVzaA=="}}`)
	if s.lines() != 1 || strings.Contains(s.said.String(), "aHVzaA") {
		t.Errorf("said %s", &s.said)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	s := open(t)
	for i := range rememberAtMost + 10 {
		_ = s.send(http.MethodPatch, fmt.Sprint(service, i), "{}")
	}
	if n := len(s.Rehearsal.said); n > rememberAtMost {
		t.Errorf("%d remembered", n)
	}
}

// The client library tries an event a dozen times unless it is answered.
func TestEventsCountAsTold(t *testing.T) {
	s := open(t)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://api", ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return s.Wrap(&s.server) },
	})
	if err != nil {
		t.Fatal(err)
	}
	e := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}}
	if _, err := client.CoreV1().Events("shop").CreateWithEventNamespaceWithContext(t.Context(), e); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Events("shop").PatchWithEventNamespaceWithContext(t.Context(), e, []byte("{}")); err != nil {
		t.Error(err)
	}
	want := []Count{{"create", "events", 1}, {"patch", "events", 1}}
	if diff := cmp.Diff(want, s.Withheld()); diff != "" || len(s.server.got) > 0 {
		t.Errorf("the server got %v; withheld (-want +got):\n%s", s.server.got, diff)
	}
}
