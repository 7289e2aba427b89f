package source

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// texts keeps what Follow reads, and how that last went.
type texts struct {
	mu    sync.Mutex
	items map[string][]byte
	err   error
}

func (x *texts) do(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

func (x *texts) Replace(items map[string][]byte) { x.do(func() { x.items = items }) }
func (x *texts) Put(name string, text []byte)    { x.do(func() { x.items[name] = text }) }
func (x *texts) Delete(name string)              { x.do(func() { delete(x.items, name) }) }
func (x *texts) tell(err error)                  { x.do(func() { x.err = err }) }

func (x *texts) waitFor(t *testing.T, part string, names ...string) {
	t.Helper()
	eventually(t, "the objects", func() string {
		x.mu.Lock()
		defer x.mu.Unlock()
		has := slices.Sorted(maps.Keys(x.items))
		if !slices.Equal(has, names) {
			return "are " + strings.Join(has, ", ")
		}
		for name, text := range x.items {
			if !strings.Contains(string(text), part) {
				return name + " is " + string(text)
			}
		}
		return ""
	})
}

func TestKindsWithoutATypeAreFollowed(t *testing.T) {
	api := newFakeAPI(t)
	api.put(balancer("web", "a", "192.0.2.1"))
	api.put(balancer("other", "b", "192.0.2.1"))
	x := &texts{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		api.client().Raw().Follow(t.Context(), Selection{Version: "v1", Resource: "services", Namespace: "web"}, x, x.tell)
	}()
	t.Cleanup(func() {
		api.stop()
		<-done
	})
	x.waitFor(t, `"192.0.2.1"`, "a")
	api.put(balancer("web", "a", "192.0.2.2"))
	api.put(balancer("web", "c", "192.0.2.2"))
	x.waitFor(t, `"192.0.2.2"`, "a", "c")
	api.remove(balancer("web", "a"))
	x.waitFor(t, `"192.0.2.2"`, "c")

	api.forbid("services", true)
	api.cutWatches()
	eventually(t, "the fault is told", func() string {
		x.mu.Lock()
		defer x.mu.Unlock()
		if !apierrors.IsForbidden(x.err) {
			return "it is not"
		}
		return ""
	})
	x.waitFor(t, `"192.0.2.2"`, "c")
}
