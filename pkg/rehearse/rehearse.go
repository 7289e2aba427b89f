// Package rehearse lets a program run on a cluster without changing it.
//
// A Rehearsal stands where requests leave the process. What only reads passes,
// and so do questions about who somebody is and what he may do. Everything else
// is withheld: it does not leave the process, is counted, and is logged once
// until it would say something else. Whoever made the request gets ErrWithheld,
// an error of the transport and not an answer of the API server, so that nothing
// is taken for refused. Only whoever tells an event believes that it was written.
package rehearse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// ErrWithheld is why a write was not made: the program only observes.
var ErrWithheld = errors.New("only observing")

const (
	bodyAtMost  = 64 << 10 // of a write, that is looked at
	shownAtMost = 1 << 10  // of it, in the log

	// rememberAtMost bounds what was logged once. Beyond, all is logged again.
	rememberAtMost = 10_000
)

// A Rehearsal withholds writes. Its methods may be called concurrently.
type Rehearsal struct {
	log *slog.Logger

	mu     sync.Mutex
	said   map[string]string // what was last withheld, by method and path
	counts map[Count]uint64  // with N = 0
}

// A Count says how often one kind of write was withheld.
type Count struct {
	Verb     string // create, update, patch or delete
	Resource string // as in services/status
	N        uint64
}

// New returns a Rehearsal that has withheld nothing yet.
func New(log *slog.Logger) *Rehearsal {
	return &Rehearsal{log: log, said: map[string]string{}, counts: map[Count]uint64{}}
}

// Withheld returns what was withheld since the start, sorted by resource and verb.
func (r *Rehearsal) Withheld() []Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Count, 0, len(r.counts))
	for c, n := range r.counts {
		c.N = n
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return out
}

// Wrap puts the rehearsal before a transport.
func (r *Rehearsal) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{rehearsal: r, next: next}
}

type transport struct {
	rehearsal *Rehearsal
	next      http.RoundTripper
}

// RoundTrip lets r pass, or withholds it. It never blocks on what is withheld.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if harmless(r) {
		return t.next.RoundTrip(r)
	}
	body := drain(r)
	t.rehearsal.withhold(r, body)
	if ResourceOf(r.URL.Path) == events {
		return told(r), nil
	}
	return nil, fmt.Errorf("%s %s was not sent: %w", r.Method, r.URL.Path, ErrWithheld)
}

const events = "events"

// told answers as if an event had been written: nobody decides by what becomes
// of one, and the client library would try it a dozen times.
func told(r *http.Request) *http.Response {
	const event = `{"apiVersion":"v1","kind":"Event"}`
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(strings.NewReader(event)),
		ContentLength: int64(len(event)),
		Request:       r,
	}
}

// WrappedRoundTripper lets the client library find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// harmless tells whether a request changes nothing.
func harmless(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return strings.Contains(r.URL.Path, "/apis/authentication.k8s.io/") && strings.HasSuffix(r.URL.Path, "reviews") ||
		strings.Contains(r.URL.Path, "/apis/authorization.k8s.io/")
}

// drain reads the body and closes it, as a RoundTripper must.
func drain(r *http.Request) []byte {
	if r.Body == nil {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, bodyAtMost)) // what cannot be read is not shown
	_ = r.Body.Close()
	return body
}

// withhold counts a write, and logs it if it is not the one that was withheld
// before. Events have new names all the time, and are not remembered.
func (r *Rehearsal) withhold(request *http.Request, body []byte) {
	resource := ResourceOf(request.URL.Path)
	count := Count{Verb: verbOf(request.Method), Resource: resource}
	shown := show(request, resource, body)
	key, says := request.Method+" "+request.URL.Path, fleeting.ReplaceAllString(shown, "")
	level := slog.LevelInfo
	r.mu.Lock()
	r.counts[count]++
	before, known := r.said[key]
	switch {
	case resource == events:
		level = slog.LevelDebug
	case known && before == says:
		r.mu.Unlock()
		return
	default:
		if len(r.said) >= rememberAtMost {
			clear(r.said)
		}
		r.said[key] = says
	}
	r.mu.Unlock()
	r.log.Log(context.Background(), level, "only observing, would "+count.Verb, "resource", resource, "path", request.URL.Path, "body", shown)
}

// fleeting is what differs each time although the same is meant.
var fleeting = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|"(renewTime|resourceVersion)":"[^"]*"`)

// show returns of a body what may be logged: text, and nothing of a Secret.
func show(r *http.Request, resource string, body []byte) string {
	switch {
	case len(body) == 0:
		return ""
	case strings.HasPrefix(resource, "secrets"):
		return "of a Secret, not shown"
	case !strings.Contains(r.Header.Get("Content-Type"), "json"):
		return fmt.Sprintf("%d bytes, not text", len(body))
	}
	text := string(bytes.TrimSpace(body))
	if len(text) > shownAtMost {
		text = strings.ToValidUTF8(text[:shownAtMost], "") + "..."
	}
	return text
}

func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	}
	return strings.ToLower(method)
}

// ResourceOf returns the resource that the path of a request is about, and its
// subresource: services/status, for example, or "other" if it is about none.
func ResourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := map[string]int{"api": 2, "apis": 3}[parts[0]] // and version, with or without a group
	if skip == 0 || len(parts) <= skip {
		return "other"
	}
	parts = parts[skip:]
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
