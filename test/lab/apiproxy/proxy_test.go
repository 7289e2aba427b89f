package apiproxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// server is an API server that answers every request with its path, and a
// watch with an event that never gets a second one.
type server struct {
	requests atomic.Int64
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	fmt.Fprintln(w, r.URL.Path, r.Header.Get("Authorization"))
	if r.URL.Query().Get("watch") == "true" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// start runs a proxy in front of a server and returns a client of it and the
// URL.
func start(t *testing.T) (*Proxy, *server, *http.Client, string) {
	t.Helper()
	s := &server{}
	behind := httptest.NewUnstartedServer(s)
	behind.EnableHTTP2 = true
	behind.StartTLS()
	t.Cleanup(func() {
		behind.CloseClientConnections() // a watch would never end
		behind.Close()
	})
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := Start(Config{Listener: listener, Cert: behind.TLS.Certificates[0], Server: target, Transport: behind.Client().Transport})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}}
	t.Cleanup(client.CloseIdleConnections)
	return p, s, client, "https://" + listener.Addr().String()
}

const services = "/api/v1/services"

func get(client *http.Client, url string) (code int, body string, err error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer token")
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

func TestPassesOn(t *testing.T) {
	_, _, client, base := start(t)
	code, body, err := get(client, base+services)
	if code != 200 || body != services+" Bearer token\n" || err != nil {
		t.Errorf("%d %q %v", code, body, err)
	}
}

func TestWatchEventsPassAtOnce(t *testing.T) {
	p, _, client, base := start(t)
	response, err := client.Get(base + services + "?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	events := bufio.NewReader(response.Body)
	if line, err := events.ReadString('\n'); err != nil || !strings.HasPrefix(line, services) {
		t.Fatalf("first event: %q, %v", line, err)
	}
	p.Break()
	if _, err := events.ReadString('\n'); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a broken watch ends with %v, want an error that is no proper end", err)
	}
}

func TestFaults(t *testing.T) {
	list := Match{Verb: "list", Resource: "services"}
	for name, test := range map[string]struct {
		fault   Fault
		path    string
		want    int // status, 0 for none
		reached int64
	}{
		"refuse":                      {Refuse(list, 503), services, 503, 0},
		"refuse another verb":         {Refuse(Match{Verb: "get"}, 503), services, 200, 1},
		"refuse one object":           {Refuse(Match{Verb: "get"}, 503), "/api/v1/namespaces/shop/services/web", 503, 0},
		"refuse status, asked object": {Refuse(Match{Resource: "services/status"}, 503), services, 200, 1},
		"refuse in another group":     {Refuse(Match{Resource: "endpointslices"}, 429), "/apis/discovery.k8s.io/v1/endpointslices", 429, 0},
		"drop":                        {Drop(list), services, 0, 0},
		"swallow":                     {Swallow(list), services, 0, 1},
		"gone":                        {GoneOnce("services"), services + "?watch=true", 410, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, s, client, base := start(t)
			p.Set(test.fault)
			code, _, err := get(client, base+test.path)
			if code != test.want || (err == nil) != (test.want != 0) {
				t.Errorf("status %d, %v; want %d", code, err, test.want)
			}
			// A client asks again on its own when a connection breaks under
			// a request that changes nothing.
			if n := s.requests.Load(); n < test.reached || (test.reached == 0) != (n == 0) {
				t.Errorf("%d requests reached the server, want %d", n, test.reached)
			}
			p.Set()
			if code, _, err := get(client, base+services); code != 200 {
				t.Errorf("without faults: %d, %v", code, err)
			}
		})
	}
}

func TestGoneIsSaidOnce(t *testing.T) {
	p, _, client, base := start(t)
	p.Set(GoneOnce("services"), CutWatches("services", 3*time.Second))
	if code, body, _ := get(client, base+services+"?watch=true"); code != 410 || !strings.Contains(body, `"reason":"Expired"`) {
		t.Errorf("first watch: %d %s", code, body)
	}
	code, body, err := get(client, base+services+"?watch=true")
	if code != 200 || !strings.HasPrefix(body, services) || err == nil {
		t.Errorf("second watch: %d %q %v, want an event and then a cut", code, body, err)
	}
}

func TestDelayAndSilenceEndWithTheClient(t *testing.T) {
	p, s, client, base := start(t)
	client.Timeout = 200 * time.Millisecond
	for name, fault := range map[string]Fault{
		"delay":   Delay(Match{}, time.Hour),
		"silence": Silence(Match{}),
	} {
		p.Set(fault)
		if code, _, err := get(client, base+services); err == nil {
			t.Errorf("%s: answered %d", name, code)
		}
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests reached the server", n)
	}
	p.Set(Delay(Match{}, 300*time.Millisecond))
	client.Timeout = time.Minute
	begin := time.Now()
	if code, _, err := get(client, base+services); code != 200 || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("delayed: %d, %v after %v", code, err, time.Since(begin))
	}
}
