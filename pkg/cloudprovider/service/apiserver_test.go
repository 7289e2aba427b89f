package service

import (
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
	clienttesting "k8s.io/client-go/testing"
)

var servicesResource = v1.Resource("services")

// An apiserver is what the tests know of the real one: client-go's fake, with
// Services kept here, since the fake knows neither versions nor conflicts, nor
// what a change of type does to a status.
type apiserver struct {
	*fake.Clientset

	mu       sync.Mutex
	version  int
	services map[string]*v1.Service // by key; nil: deleted
	log      []watch.Event          // everything that ever happened to Services
	wake     chan struct{}          // closed and replaced when the log grows
	patches  []string               // keys of the Services that were patched
	refused  int                    // patches answered with an error

	onList  func()                 // called before Services are listed
	onPatch func(key string) error // called before a Service is patched
	after   func(key string) error // called after one was: the answer that gets lost
}

func newAPIServer(objects ...runtime.Object) *apiserver {
	s := &apiserver{Clientset: fake.NewClientset(objects...), version: 1, services: map[string]*v1.Service{}, wake: make(chan struct{})}
	s.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, s.list(), nil })
	s.PrependReactor("get", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		svc, err := s.get(a.GetNamespace() + "/" + a.(clienttesting.GetAction).GetName())
		return true, svc, err
	})
	s.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		svc, err := s.patch(a.(clienttesting.PatchAction))
		return true, svc, err
	})
	s.PrependWatchReactor("services", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := s.watch(a.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		return true, w, err
	})
	return s
}

// hook calls one of the callbacks without the lock.
func hook[T any](s *apiserver, which func() func(T) error, key T) error {
	s.mu.Lock()
	f := which()
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(key)
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
func (s *apiserver) patch(a clienttesting.PatchAction) (*v1.Service, error) {
	key := a.GetNamespace() + "/" + a.GetName()
	if a.GetSubresource() != "status" || a.GetPatchType() != types.StrategicMergePatchType {
		return nil, apierrors.NewBadRequest("only strategic merge patches of the status are expected here")
	}
	err := hook(s, func() func(string) error { return s.onPatch }, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patches = append(s.patches, key)
	var out *v1.Service
	if err == nil {
		out, err = s.merge(key, a.GetPatch())
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
