// Package apistub serves a world that exists in memory only, of any size, in
// the way that an API server would: lists, streaming lists and watches in
// Protobuf. It is for measuring what a client makes of a cluster that no
// machine of ours could hold.
//
// It knows no selectors, and no rights: what a client asks for by resource and
// namespace it gets. What is written is accepted and forgotten.
package apistub

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// Object is a Kubernetes object of a kind that client-go knows.
type Object interface {
	runtime.Object
	metav1.Object
}

// Server is an http.Handler. Create one with New.
type Server struct {
	// NoStreaming makes it refuse streaming lists, as servers did that did not
	// know them yet.
	NoStreaming bool

	protobuf runtime.SerializerInfo

	mu       sync.Mutex
	version  int
	objects  map[string][]Object // by resource, in the order in which they came
	watchers map[chan watch.Event]string
}

// New returns a Server that has nothing to show.
func New() *Server {
	protobuf, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return &Server{protobuf: protobuf, version: 1, objects: map[string][]Object{}, watchers: map[chan watch.Event]string{}}
}

// Add shows an object of a resource. All that is to be listed is added before
// the first request; watchers do not learn of it.
func (s *Server) Add(resource string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[resource] = append(s.objects[resource], o)
}

// Change makes another version of object number i of a resource, and tells all
// who watch that resource.
func (s *Server) Change(resource string, i int, change func(Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o := s.objects[resource][i].DeepCopyObject().(Object)
	change(o)
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[resource][i] = o
	for w, what := range s.watchers {
		if what == resource {
			w <- watch.Event{Type: watch.Modified, Object: o}
		}
	}
}

// ServeHTTP answers as the API server would.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	resource, namespace, name := split(r.URL.Path)
	switch {
	case r.Method != http.MethodGet:
		_, _ = io.Copy(w, r.Body) // whoever writes gets back what it wrote
	case name != "":
		s.get(w, resource, namespace, name)
	case q.Get("sendInitialEvents") == "true" && s.NoStreaming:
		s.refuse(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	case q.Get("watch") != "":
		s.watch(w, r, resource, namespace, q.Get("sendInitialEvents") == "true")
	default:
		s.list(w, resource, namespace)
	}
}

// split takes a path apart: /api/v1/[namespaces/NAMESPACE/]RESOURCE[/NAME], and
// the same below /apis/GROUP/VERSION.
func split(path string) (resource, namespace, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 0 {
		resource = parts[0]
	}
	return resource, namespace, name
}

// snapshot returns the objects of a resource in a namespace, in all of them if
// it is empty, and the version that they belong to.
func (s *Server) snapshot(resource, namespace string) ([]Object, int) {
	var found []Object
	for _, o := range s.objects[resource] {
		if namespace == "" || o.GetNamespace() == namespace {
			found = append(found, o)
		}
	}
	return found, s.version
}

func (s *Server) get(w http.ResponseWriter, resource, namespace, name string) {
	s.mu.Lock()
	all, _ := s.snapshot(resource, namespace)
	s.mu.Unlock()
	for _, o := range all {
		if o.GetName() == name {
			s.write(w, o)
			return
		}
	}
	s.refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name))
}

func (s *Server) list(w http.ResponseWriter, resource, namespace string) {
	s.mu.Lock()
	all, version := s.snapshot(resource, namespace)
	s.mu.Unlock()
	list, err := listOf(all)
	if err != nil {
		s.refuse(w, apierrors.NewInternalError(err))
		return
	}
	list.(metav1.ListInterface).SetResourceVersion(strconv.Itoa(version))
	s.write(w, list)
}

// listOf makes a list of its kind from objects, of which there is at least one.
func listOf(all []Object) (runtime.Object, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no object to tell the kind of the list from")
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(all[0])
	if err != nil {
		return nil, err
	}
	list, err := scheme.Scheme.New(kinds[0].GroupVersion().WithKind(kinds[0].Kind + "List"))
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, len(all))
	for i, o := range all {
		items[i] = o
	}
	return list, meta.SetList(list, items)
}

// watch sends what happens to a resource, and before that all there is if the
// client wants that, until the client goes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource, namespace string, initial bool) {
	news := make(chan watch.Event, 1000)
	s.mu.Lock()
	all, version := s.snapshot(resource, namespace)
	s.watchers[news] = resource
	s.mu.Unlock()
	defer s.forget(news)

	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	send := s.sender(w, all)
	if initial {
		for _, o := range all {
			send(watch.Event{Type: watch.Added, Object: o})
		}
		if len(all) > 0 {
			send(watch.Event{Type: watch.Bookmark, Object: endOfList(all[0], version)})
		}
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-news:
			send(e)
			w.(http.Flusher).Flush()
		}
	}
}

// forget ends a watch. The client's going is no reason for others to wait.
func (s *Server) forget(news chan watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, news)
}

// endOfList is the bookmark that ends a streaming list.
func endOfList(like Object, version int) Object {
	o := like.DeepCopyObject().(Object)
	o.SetResourceVersion(strconv.Itoa(version))
	o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o
}

// sender returns a function that writes events. A client that has gone is
// noticed by its context.
func (s *Server) sender(w io.Writer, all []Object) func(watch.Event) {
	stream := s.protobuf.StreamSerializer
	frames := streaming.NewEncoder(stream.Framer.NewFrameWriter(w), scheme.Codecs.EncoderForVersion(stream.Serializer, schema.GroupVersion{Version: "v1"}))
	encoder := restwatch.NewEncoder(frames, s.encoder(all))
	return func(e watch.Event) { _ = encoder.Encode(&e) }
}

func (s *Server) encoder(all []Object) runtime.Encoder {
	version := schema.GroupVersion{Version: "v1"}
	if len(all) > 0 {
		if kinds, _, err := scheme.Scheme.ObjectKinds(all[0]); err == nil {
			version = kinds[0].GroupVersion()
		}
	}
	return scheme.Codecs.EncoderForVersion(s.protobuf.Serializer, version)
}

func (s *Server) write(w http.ResponseWriter, o runtime.Object) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_ = scheme.Codecs.EncoderForVersion(s.protobuf.Serializer, kinds[0].GroupVersion()).Encode(o, w) // to a client that may have gone
}

func (s *Server) refuse(w http.ResponseWriter, e *apierrors.StatusError) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(int(e.ErrStatus.Code))
	_ = scheme.Codecs.EncoderForVersion(s.protobuf.Serializer, schema.GroupVersion{Version: "v1"}).Encode(&e.ErrStatus, w)
}
