package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go's view of the trouble that tests make
	os.Exit(m.Run())
}

// fakeAPI is as much of an API server as a World talks to: lists and watches
// over HTTP with field selectors and resource versions, and all the ways in
// which they break. Unlike client-go's fake it can be away.
type fakeAPI struct {
	t       *testing.T
	address string

	mu       sync.Mutex
	server   *httptest.Server
	end      context.CancelFunc // ends the requests, also those that are yet to come
	version  int
	oldest   int // watches from before get 410 Gone
	objects  map[string]map[string]runtime.Object
	log      []fakeEvent
	news     chan struct{} // closed and replaced at each change, and when streams are to end
	cut      int           // streams that began before it end
	requests map[string]int

	forbidden map[string]bool // by resource
}

type fakeEvent struct {
	version       int
	resource      string
	before, after runtime.Object
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{t: t, objects: map[string]map[string]runtime.Object{}, news: make(chan struct{}), requests: map[string]int{}, forbidden: map[string]bool{}, version: 1}
	f.start()
	t.Cleanup(f.stop)
	return f
}

// start serves, at the same address as before if there was one.
func (f *fakeAPI) start() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if f.address == "" {
		// Not 127.0.0.1, where the kernel may give the port to somebody else's
		// connection while this server is away.
		f.address = fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	l, err := net.Listen("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: f, BaseContext: func(net.Listener) context.Context { return ctx }}}
	server.Start()
	f.address = server.Listener.Addr().String()
	f.server, f.end = server, cancel
}

// stop ends the server and every connection to it. A client that dials again
// meanwhile must not be served: the server waits for all requests to end.
func (f *fakeAPI) stop() {
	f.end()
	f.server.CloseClientConnections()
	f.server.Close()
}

func (f *fakeAPI) client() *API {
	f.t.Helper()
	c, err := NewAPI(&rest.Config{Host: "http://" + f.address, QPS: -1})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// cutWatches ends all streams that are open.
func (f *fakeAPI) cutWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut++
	f.wake()
}

// forget makes watches from before now impossible.
func (f *fakeAPI) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	f.oldest = f.version
}

func (f *fakeAPI) wake() {
	close(f.news)
	f.news = make(chan struct{})
}

// put stores an object; it is served as it is now, whatever happens to o later.
func (f *fakeAPI) put(o runtime.Object) { f.change(o, o.DeepCopyObject()) }

// remove deletes an object.
func (f *fakeAPI) remove(o runtime.Object) { f.change(o, nil) }

func (f *fakeAPI) change(o, after runtime.Object) {
	kind := reflect.TypeOf(o).Elem().Name()
	resource := strings.ToLower(kind) + "s"
	m := o.(metav1.Object)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	if f.objects[resource] == nil {
		f.objects[resource] = map[string]runtime.Object{}
	}
	before := f.objects[resource][key(m)]
	if after == nil {
		delete(f.objects[resource], key(m))
	} else {
		group := corev1.SchemeGroupVersion
		if resource == "endpointslices" {
			group = discoveryv1.SchemeGroupVersion
		}
		after.GetObjectKind().SetGroupVersionKind(group.WithKind(kind))
		after.(metav1.Object).SetResourceVersion(strconv.Itoa(f.version))
		f.objects[resource][key(m)] = after
	}
	f.log = append(f.log, fakeEvent{f.version, resource, before, after})
	f.wake()
}

// asked returns how many requests began with a method and path that contain part.
func (f *fakeAPI) asked(part string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for uri, count := range f.requests {
		if strings.Contains(uri, part) {
			n += count
		}
	}
	return n
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := segments[len(segments)-1]
	namespace := ""
	if len(segments) > 3 && segments[len(segments)-3] == "namespaces" {
		namespace = segments[len(segments)-2]
	}
	selected := func(o runtime.Object) bool { return o != nil && selects(q.Get("fieldSelector"), namespace, o) }
	f.mu.Lock()
	f.requests[r.Method+" "+r.URL.Path+"?"+q.Get("fieldSelector")]++
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case f.isForbidden(resource):
		f.fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no such right")))
	case q.Get("sendInitialEvents") != "":
		f.fail(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	case q.Get("watch") != "":
		since, _ := strconv.Atoi(q.Get("resourceVersion"))
		f.watch(w, r, resource, since, selected)
	default:
		f.list(w, resource, selected)
	}
}

func (f *fakeAPI) isForbidden(resource string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forbidden[resource]
}

// forbid takes a right away, or gives it.
func (f *fakeAPI) forbid(resource string, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forbidden[resource] = yes
}

func selects(fields, namespace string, o runtime.Object) bool {
	m := o.(metav1.Object)
	if namespace != "" && m.GetNamespace() != namespace {
		return false
	}
	name, value, _ := strings.Cut(fields, "=")
	switch name {
	case "metadata.name":
		return m.GetName() == value
	case "spec.type":
		return string(o.(*corev1.Service).Spec.Type) == value
	default:
		return true
	}
}

func (f *fakeAPI) fail(w http.ResponseWriter, e *apierrors.StatusError) {
	e.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.WriteHeader(int(e.ErrStatus.Code))
	json.NewEncoder(w).Encode(e.ErrStatus)
}

func (f *fakeAPI) list(w http.ResponseWriter, resource string, selected func(runtime.Object) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []runtime.Object{}
	for _, o := range f.objects[resource] {
		if selected(o) {
			items = append(items, o)
		}
	}
	kinds := map[string]string{
		"secrets": "v1 SecretList", "services": "v1 ServiceList", "nodes": "v1 NodeList", "configmaps": "v1 ConfigMapList",
		"endpointslices": "discovery.k8s.io/v1 EndpointSliceList",
	}
	version, kind, _ := strings.Cut(kinds[resource], " ")
	json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": version, "kind": kind, "items": items,
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(f.version)},
	})
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, resource string, since int, selected func(runtime.Object) bool) {
	f.mu.Lock()
	began, gone := f.cut, since < f.oldest
	f.mu.Unlock()
	if gone {
		f.fail(w, apierrors.NewResourceExpired("too old resource version"))
		return
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		f.mu.Lock()
		var lines []string
		for _, e := range f.log {
			if e.resource == resource && e.version > since {
				lines = append(lines, watchLine(e, selected))
			}
		}
		since = f.version
		news, cut := f.news, f.cut != began
		f.mu.Unlock()
		for _, line := range lines {
			fmt.Fprint(w, line)
		}
		w.(http.Flusher).Flush()
		if cut {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-news:
		}
	}
}

// watchLine renders an event as the selector sees it: what begins to match is
// added, what no longer matches deleted.
func watchLine(e fakeEvent, selected func(runtime.Object) bool) string {
	was, is := selected(e.before), selected(e.after)
	object, kind := e.after, "MODIFIED"
	switch {
	case was && !is:
		object, kind = e.before, "DELETED"
	case !was && is:
		kind = "ADDED"
	case !was && !is:
		return ""
	}
	line, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	return string(line) + "\n"
}

// eventually waits until probe returns nothing; it fails with the last answer.
func eventually(t *testing.T, what string, probe func() string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		last := probe()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s", what, last)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
