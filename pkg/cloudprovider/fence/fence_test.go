package fence

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// server answers every request that reaches it.
type server struct {
	code int
	got  []string
	work func()
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.work != nil {
		s.work()
	}
	s.got = append(s.got, r.Method+" "+r.URL.Path)
	return &http.Response{StatusCode: s.code, Body: http.NoBody}, nil
}

// process is a leader with its clock.
type process struct {
	t      *testing.T
	server server
	now    time.Time
	client http.RoundTripper
}

func start(t *testing.T) *process {
	p := &process{t: t, server: server{code: http.StatusOK}, now: time.Now()}
	f := New(10 * time.Second)
	f.now = func() time.Time { return p.now }
	p.client = f.Wrap(&p.server)
	return p
}

func (p *process) send(method, path string) error {
	p.t.Helper()
	r, err := http.NewRequest(method, "https://api"+path, strings.NewReader("{}"))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := p.client.RoundTrip(r)
	if err == nil {
		err = response.Body.Close()
	}
	return err
}

const (
	lease   = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm-baremetal"
	service = "/api/v1/namespaces/a/services/b/status"
)

func (p *process) renew()       { _ = p.send(http.MethodPut, lease) }
func (p *process) write() error { return p.send(http.MethodPatch, service) }

func TestWritesPassWhileTheLeaseIsRenewed(t *testing.T) {
	for _, c := range []struct {
		what   string
		happen func(*process)
		passes bool
	}{
		{"before the first renewal", func(*process) {}, false},
		{"just renewed", func(p *process) { p.renew() }, true},
		{"at the deadline", func(p *process) { p.renew(); p.now = p.now.Add(10 * time.Second) }, true},
		{"after the deadline", func(p *process) { p.renew(); p.now = p.now.Add(10*time.Second + 1) }, false},
		{"frozen, then renewed", func(p *process) { p.renew(); p.now = p.now.Add(time.Hour); p.renew() }, true},
		{"frozen, then refused", func(p *process) {
			p.renew()
			p.now = p.now.Add(time.Hour)
			p.server.code = http.StatusConflict
			p.renew()
		}, false},
		{"refused once, but held", func(p *process) { p.renew(); p.server.code = http.StatusConflict; p.renew() }, true},
		{"frozen while the renewal was under way", func(p *process) {
			p.server.work = func() { p.now = p.now.Add(time.Minute) }
			p.renew()
			p.server.work = nil
		}, false},
		{"asleep: only the clock on the wall went on", func(p *process) { p.renew(); p.now = p.now.Round(0).Add(time.Minute) }, false},
	} {
		p := start(t)
		c.happen(p)
		before := len(p.server.got)
		err := p.write()
		if passes := err == nil; passes != c.passes || passes != (len(p.server.got) > before) {
			t.Errorf("%s: %v, and the server got %v", c.what, err, p.server.got[before:])
		}
		if err != nil && !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestWhatIsNoWriteAlwaysPasses(t *testing.T) {
	p := start(t)
	for _, r := range [][2]string{
		{http.MethodGet, service},
		{http.MethodPut, lease},
		{http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"},
		{http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews"},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews"},
		{http.MethodPost, "/api/v1/namespaces/a/events"},
		{http.MethodPatch, "/api/v1/namespaces/a/events/b"},
	} {
		p.server.code = http.StatusConflict // no renewal succeeds
		if err := p.send(r[0], r[1]); err != nil {
			t.Errorf("%s %s: %v", r[0], r[1], err)
		}
	}
	for _, r := range [][2]string{
		{http.MethodDelete, "/api/v1/nodes/n1"},
		{http.MethodPost, "/api/v1/namespaces/a/secrets"},
		{http.MethodPut, "/api/v1/namespaces/a/configmaps/c"},
		{http.MethodPatch, "/api/v1/namespaces/events/services/web/status"},
		{http.MethodPatch, "/api/v1/nodes/events"},
	} {
		if err := p.send(r[0], r[1]); !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s %s: %v", r[0], r[1], err)
		}
	}
}
