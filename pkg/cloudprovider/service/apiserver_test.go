package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

var servicesResource = v1.Resource("services")

// An apiserver is what the tests know of the real one: client-go's fake, with
// Services kept here. The fake knows neither versions nor conflicts, nor what a
// change of type does to a status, and answers one request at a time.
type apiserver struct {
	*fake.Clientset

	mu       sync.Mutex
	version  int
	services map[string]*v1.Service // by key
	log      []watch.Event          // everything that ever happened to Services
	wake     chan struct{}          // closed and replaced when the log grows
	patches  []string               // keys of the Services that were patched
	refused  int                    // patches answered with an error

	onList  func()                 // called before Services are listed
	onGet   func(key string) error // called before the controller reads a Service
	onPatch func(key string) error // called before a Service is patched
	after   func(key string) error // called after one was: the answer that gets lost
}

func newAPIServer(objects ...runtime.Object) *apiserver {
	return &apiserver{Clientset: fake.NewClientset(objects...), version: 1, services: map[string]*v1.Service{}, wake: make(chan struct{})}
}

// CoreV1 is the fake's, but for Services.
func (s *apiserver) CoreV1() coreclient.CoreV1Interface {
	return core{s.Clientset.CoreV1(), s}
}

type core struct {
	coreclient.CoreV1Interface
	s *apiserver
}

func (c core) Services(namespace string) coreclient.ServiceInterface {
	return serviceClient{s: c.s, namespace: namespace}
}

// A serviceClient has what the controller uses; all else panics.
type serviceClient struct {
	coreclient.ServiceInterface
	s         *apiserver
	namespace string
}

func (c serviceClient) List(context.Context, metav1.ListOptions) (*v1.ServiceList, error) {
	return c.s.list(), nil
}

func (c serviceClient) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return c.s.watch(o.ResourceVersion)
}

func (c serviceClient) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Service, error) {
	key := c.namespace + "/" + name
	c.s.mu.Lock()
	first := c.s.onGet
	c.s.mu.Unlock()
	if first != nil {
		if err := first(key); err != nil {
			return nil, err
		}
	}
	return c.s.get(key)
}

func (c serviceClient) Patch(_ context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, subresources ...string) (*v1.Service, error) {
	if !slices.Equal(subresources, []string{"status"}) || kind != types.StrategicMergePatchType || o.FieldManager != FieldManager {
		return nil, apierrors.NewBadRequest("only strategic merge patches of the status are expected here")
	}
	return c.s.patch(c.namespace+"/"+name, patch)
}

func (s *apiserver) list() *v1.ServiceList {
	s.mu.Lock()
	wait := s.onList
	s.mu.Unlock()
	if wait != nil {
		wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &v1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for key := range s.services { // in any order: nobody may rely on one
		list.Items = append(list.Items, *s.services[key].DeepCopy())
	}
	return list
}

func (s *apiserver) get(key string) (*v1.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc, ok := s.services[key]
	if !ok {
		return nil, apierrors.NewNotFound(servicesResource, key)
	}
	return svc.DeepCopy(), nil
}

// patch answers a patch of the status subresource as the real one does.
func (s *apiserver) patch(key string, patch []byte) (*v1.Service, error) {
	s.mu.Lock()
	first := s.onPatch
	s.mu.Unlock()
	var err error
	if first != nil {
		err = first(key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patches = append(s.patches, key)
	var out *v1.Service
	if err == nil {
		out, err = s.merge(key, patch)
	}
	if err == nil && s.after != nil {
		err = s.after(key)
	}
	if err != nil {
		s.refused++
		return nil, err
	}
	return out, nil
}

func (s *apiserver) merge(key string, patch []byte) (*v1.Service, error) {
	was, ok := s.services[key]
	if !ok {
		return nil, apierrors.NewNotFound(servicesResource, key)
	}
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(before, patch, &v1.Service{})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	is := &v1.Service{}
	if err := json.Unmarshal(merged, is); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if is.ResourceVersion != was.ResourceVersion {
		return nil, apierrors.NewConflict(servicesResource, key, fmt.Errorf("version %s, not %s", was.ResourceVersion, is.ResourceVersion))
	}
	is.Spec = was.Spec
	s.record(watch.Modified, is)
	return is.DeepCopy(), nil
}

// record gives an object its version and shows it to the watchers. It is gone
// with its last finalizer if it is being deleted.
func (s *apiserver) record(kind watch.EventType, svc *v1.Service) {
	s.version++
	svc.ResourceVersion = strconv.Itoa(s.version)
	key := svc.Namespace + "/" + svc.Name
	s.services[key] = svc
	if kind != watch.Deleted && svc.DeletionTimestamp != nil && len(svc.Finalizers) == 0 {
		kind = watch.Deleted
	}
	if kind == watch.Deleted {
		delete(s.services, key)
	}
	s.log = append(s.log, watch.Event{Type: kind, Object: svc.DeepCopy()})
	close(s.wake)
	s.wake = make(chan struct{})
}

// watch shows what happens after a version. Nothing is lost, however slow the
// reader is.
func (s *apiserver) watch(version string) (watch.Interface, error) {
	from, err := strconv.Atoi(version)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		for next := 0; ; {
			s.mu.Lock()
			log, wake := s.log, s.wake
			s.mu.Unlock()
			for ; next < len(log); next++ {
				version, _ := strconv.Atoi(log[next].Object.(*v1.Service).ResourceVersion)
				if version <= from {
					continue
				}
				select {
				case events <- watch.Event{Type: log[next].Type, Object: log[next].Object.DeepCopyObject()}:
				case <-w.StopChan():
					return
				}
			}
			select {
			case <-wake:
			case <-w.StopChan():
				return
			}
		}
	}()
	return w, nil
}

// create adds a Service as a user would.
func (s *apiserver) create(svc *v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	svc = svc.DeepCopy()
	if svc.UID == "" {
		svc.UID = types.UID(fmt.Sprintf("uid-%d", s.version+1))
	}
	if svc.CreationTimestamp.IsZero() {
		svc.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000+int64(s.version), 0))
	}
	s.record(watch.Added, svc)
}

// edit changes a Service as a user would.
func (s *apiserver) edit(t *testing.T, key string, change func(*v1.Service)) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.services[key]
	if !ok {
		t.Fatalf("edit %s: no such service", key)
	}
	is := was.DeepCopy()
	change(is)
	if was.Spec.Type == v1.ServiceTypeLoadBalancer && is.Spec.Type != v1.ServiceTypeLoadBalancer {
		is.Status.LoadBalancer = v1.LoadBalancerStatus{}
	}
	s.record(watch.Modified, is)
}

// remove deletes a Service as a user would.
func (s *apiserver) remove(t *testing.T, key string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.services[key]
	if !ok {
		t.Fatalf("delete %s: no such service", key)
	}
	is := was.DeepCopy()
	now := metav1.Now()
	is.DeletionTimestamp = &now
	s.record(watch.Modified, is)
}

// patched returns how many patches were asked for, of all Services or of one.
func (s *apiserver) patched(keys ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, key := range s.patches {
		if len(keys) == 0 || slices.Contains(keys, key) {
			n++
		}
	}
	return n
}

// set changes the callbacks.
func (s *apiserver) set(change func(*apiserver)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}
