package source

import (
	"context"
	"io"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
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

// Stream returns what a watch tells until it ends. The caller closes it.
func (r Raw) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return r.request(r.api.core.Get(), path, query).Stream(ctx)
}

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
