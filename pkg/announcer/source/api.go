package source

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// API is a client of the API server that knows the two groups that an
// announcer needs. The usual one links all groups there are, which would
// double the memory of a process that runs on every node.
type API struct {
	core, discovery rest.Interface
	others          dynamic.Interface
	params          runtime.ParameterCodec
	pulse           *pulse
}

// NewAPI returns a client. It does not connect.
func NewAPI(c *rest.Config) (*API, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the kinds of the API server: %w", err)
		}
	}
	p := &pulse{born: time.Now()}
	c = rest.CopyConfig(c)
	c.Dial = p.dial
	c.Wrap(p.wrap)
	shared, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	group := func(path string, version schema.GroupVersion) (*rest.RESTClient, error) {
		own := rest.CopyConfig(c)
		own.APIPath, own.GroupVersion, own.NegotiatedSerializer = path, &version, codecs
		client, err := rest.RESTClientForConfigAndClient(own, shared)
		if err != nil {
			return nil, fmt.Errorf("make a client for %s: %w", version, err)
		}
		return client, nil
	}
	core, err := group("/api", corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	discovery, err := group("/apis", discoveryv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	others, err := dynamic.NewForConfigAndClient(c, shared)
	if err != nil {
		return nil, fmt.Errorf("make a client for other groups: %w", err)
	}
	return &API{core: core, discovery: discovery, others: others, params: runtime.NewParameterCodec(scheme), pulse: p}, nil
}

// Namespace returns a Namespace.
func (a *API) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	o := &corev1.Namespace{}
	return o, a.core.Get().Resource("namespaces").Name(name).Do(ctx).Into(o)
}

// Secret returns a Secret.
func (a *API) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	o := &corev1.Secret{}
	return o, a.core.Get().Namespace(namespace).Resource("secrets").Name(name).Do(ctx).Into(o)
}

// CreateEvent writes a new Event.
func (a *API) CreateEvent(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	o := &corev1.Event{}
	return o, a.core.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Into(o)
}

// PatchEvent changes an Event by a strategic merge patch.
func (a *API) PatchEvent(ctx context.Context, e *corev1.Event, patch []byte) (*corev1.Event, error) {
	o := &corev1.Event{}
	return o, a.core.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(patch).Do(ctx).Into(o)
}

// PatchServiceStatus changes the status of a Service by a strategic merge patch,
// in the name of a field manager. What the patch does not name stays.
func (a *API) PatchServiceStatus(ctx context.Context, namespace, name, manager string, patch []byte) error {
	return a.core.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("services").Name(name).
		SubResource("status").Param("fieldManager", manager).Body(patch).Do(ctx).Error()
}

// kind lists and watches one kind of object, in a namespace if it names one.
type kind struct {
	client    rest.Interface
	params    runtime.ParameterCodec
	resource  string
	namespace string
	list      func() runtime.Object // an empty list
}

func (k kind) get(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := k.list()
	return list, k.request(o).Do(ctx).Into(list)
}

func (k kind) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return k.request(o).Watch(ctx)
}

func (k kind) request(o metav1.ListOptions) *rest.Request {
	var timeout time.Duration
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return k.client.Get().NamespaceIfScoped(k.namespace, k.namespace != "").Resource(k.resource).
		VersionedParams(&o, k.params).Timeout(timeout)
}

func (a *API) services(namespace string) kind {
	return kind{a.core, a.params, "services", namespace, func() runtime.Object { return &corev1.ServiceList{} }}
}

func (a *API) nodes() kind {
	return kind{a.core, a.params, "nodes", "", func() runtime.Object { return &corev1.NodeList{} }}
}

func (a *API) configMaps(namespace string) kind {
	return kind{a.core, a.params, "configmaps", namespace, func() runtime.Object { return &corev1.ConfigMapList{} }}
}

func (a *API) endpointSlices() kind {
	return kind{a.discovery, a.params, "endpointslices", "", func() runtime.Object { return &discoveryv1.EndpointSliceList{} }}
}

func (a *API) secrets(namespace string) kind {
	return kind{a.core, a.params, "secrets", namespace, func() runtime.Object { return &corev1.SecretList{} }}
}
