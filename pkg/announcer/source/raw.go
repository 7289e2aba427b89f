package source

import (
	"context"
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Raw asks the API server about kinds of which the announcer has no types. What
// is asked for is in JSON, and errors are those of the API.
type Raw struct{ api *API }

// Raw returns a client for kinds that are not known here.
func (a *API) Raw() Raw { return Raw{a} }

func (r Raw) request(q *rest.Request, path string, query url.Values) *rest.Request {
	q = q.AbsPath(path).SetHeader("Accept", "application/json")
	for name, values := range query {
		for _, value := range values {
			q = q.Param(name, value)
		}
	}
	return q
}

// Get returns an object or a list.
func (r Raw) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return r.request(r.api.core.Get(), path, query).DoRaw(ctx)
}

// Selection is some objects of one kind.
type Selection struct {
	Group, Version, Resource string
	Namespace                string // empty: of the cluster
	Fields, Labels           string // selectors, empty: all
}

// Texts keeps objects as JSON, by name. The texts are its own.
type Texts interface {
	Replace(map[string][]byte)
	Put(name string, text []byte)
	Delete(name string)
}

// Follow keeps texts equal to the objects that are selected, until ctx ends.
// While they cannot be read texts keeps what it has. After each attempt tell
// hears how it went.
func (r Raw) Follow(ctx context.Context, s Selection, texts Texts, tell func(error)) {
	k := otherKind{r.api.others.Resource(schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource}).Namespace(s.Namespace)}
	follow(ctx, k, &unstructured.Unstructured{}, textStore{texts}, followOptions{what: s.Resource, fields: s.Fields, labels: s.Labels, tell: tell})
}

// otherKind lists and watches a kind without a type.
type otherKind struct{ dynamic.ResourceInterface }

func (k otherKind) get(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return k.List(ctx, o)
}

func (k otherKind) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return k.Watch(ctx, o)
}

// textStore hands what a reflector reads on as texts.
type textStore struct{ texts Texts }

func (s textStore) Add(o any) error {
	u := o.(*unstructured.Unstructured)
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("write %s as text: %w", u.GetName(), err)
	}
	s.texts.Put(u.GetName(), text)
	return nil
}

func (s textStore) Update(o any) error { return s.Add(o) }

func (s textStore) Delete(o any) error {
	s.texts.Delete(o.(*unstructured.Unstructured).GetName())
	return nil
}

func (s textStore) Replace(all []any, _ string) error {
	texts := make(map[string][]byte, len(all))
	for _, o := range all {
		u := o.(*unstructured.Unstructured)
		text, err := u.MarshalJSON()
		if err != nil {
			return fmt.Errorf("write %s as text: %w", u.GetName(), err)
		}
		texts[u.GetName()] = text
	}
	s.texts.Replace(texts)
	return nil
}

func (textStore) Resync() error { return nil }

// Apply makes an object what is given, by server-side apply in the name of a
// field manager that takes every field over, and returns it. A field that the
// API server does not know is an error.
func (r Raw) Apply(ctx context.Context, path, manager string, object []byte) ([]byte, error) {
	query := url.Values{"fieldManager": {manager}, "force": {"true"}, "fieldValidation": {"Strict"}}
	return r.request(r.api.core.Patch(types.ApplyYAMLPatchType), path, query).Body(object).DoRaw(ctx)
}

// Delete deletes an object.
func (r Raw) Delete(ctx context.Context, path string) error {
	return r.request(r.api.core.Delete(), path, nil).Do(ctx).Error()
}
