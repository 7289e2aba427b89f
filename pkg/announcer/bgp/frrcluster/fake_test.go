package frrcluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrcluster"
)

const (
	namespace = "frr-k8s-system"
	groupPath = "/apis/frrk8s.metallb.io/v1beta1"
	own       = groupPath + "/namespaces/" + namespace + "/frrconfigurations/ccm-baremetal-n1"
	secrets   = "/api/v1/namespaces/" + namespace + "/secrets/"
)

// fakeAPI is an API server in memory.
type fakeAPI struct {
	mu        sync.Mutex
	installed bool
	refuse    error            // of writes
	deny      map[string]error // of reads, by path
	quiet     bool             // those who follow hear nothing new
	objects   map[string]map[string]any
	version   int
	writes    []string // verb and path
	reads     int
	news      chan struct{} // closed and replaced at each change
}

func newAPI(installed bool) *fakeAPI {
	a := &fakeAPI{installed: installed, objects: map[string]map[string]any{}, news: make(chan struct{})}
	a.register("u-1")
	return a
}

// register makes the Node another one.
func (a *fakeAPI) register(uid string) {
	a.put("/api/v1/nodes/n1", map[string]any{"metadata": map[string]any{
		"name": "n1", "uid": uid, "labels": map[string]any{"kubernetes.io/hostname": "host-1"},
	}})
}

// requests returns how many reads there have been.
func (a *fakeAPI) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads
}

func (a *fakeAPI) known(p string) bool { return a.installed || !strings.HasPrefix(p, groupPath) }

func (a *fakeAPI) Get(_ context.Context, p string, _ url.Values) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	switch o := a.objects[p]; {
	case a.deny[p] != nil:
		return nil, a.deny[p]
	case !a.known(p):
		return nil, frrcluster.ErrAbsent
	case p == groupPath:
		return []byte("{}"), nil
	case o != nil:
		return json.Marshal(o)
	case !strings.HasSuffix(p, "s"):
		return nil, frrcluster.ErrAbsent
	}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(a.objects)) {
		if path.Dir(key) == p {
			items = append(items, a.objects[key])
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": items})
}

// Follow hands on what is there, all at first and then what is other.
func (a *fakeAPI) Follow(ctx context.Context, what frrcluster.Selection, texts frrcluster.Texts, tell func(error)) {
	below := path.Join(groupPath, "namespaces", what.Namespace, what.Resource)
	if what.Namespace == "" {
		below = path.Join(groupPath, what.Resource)
	}
	var had map[string][]byte
	for ctx.Err() == nil {
		has, news := a.below(below)
		switch {
		case has == nil:
			tell(frrcluster.ErrAbsent)
		case had == nil:
			tell(nil)
			texts.Replace(maps.Clone(has))
		default:
			handOn(texts, had, has)
		}
		had = has
		select {
		case <-ctx.Done():
		case <-news:
		}
	}
}

func handOn(texts frrcluster.Texts, had, has map[string][]byte) {
	for name, text := range has {
		if string(had[name]) != string(text) {
			texts.Put(name, text)
		}
	}
	for name := range had {
		if has[name] == nil {
			texts.Delete(name)
		}
	}
}

// below returns the objects below a path, nil if their kind is not known, and
// what is closed when something changes.
func (a *fakeAPI) below(p string) (map[string][]byte, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	if !a.known(p) {
		return nil, a.news
	}
	out := map[string][]byte{}
	for key, o := range a.objects {
		if path.Dir(key) == p {
			text, err := json.Marshal(o)
			if err != nil {
				panic(err)
			}
			out[path.Base(key)] = text
		}
	}
	return out, a.news
}

// changed tells those who follow. The mutex is held.
func (a *fakeAPI) changed() {
	if a.quiet {
		return
	}
	close(a.news)
	a.news = make(chan struct{})
}

// put stores an object as somebody else would.
func (a *fakeAPI) put(p string, o map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(p, o)
}

func (a *fakeAPI) store(p string, o map[string]any) {
	a.version++
	metadata := o["metadata"].(map[string]any)
	metadata["resourceVersion"] = fmt.Sprint(a.version)
	generation := 1
	if before := a.objects[p]; before != nil {
		generation = before["metadata"].(map[string]any)["generation"].(int)
		if fmt.Sprint(before["spec"]) != fmt.Sprint(o["spec"]) {
			generation++
		}
	}
	metadata["generation"] = generation
	a.objects[p] = o
	a.changed()
}

func (a *fakeAPI) remove(p string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, p)
	a.changed()
}

func (a *fakeAPI) Apply(_ context.Context, p, manager string, object []byte) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes = append(a.writes, "apply "+p)
	switch {
	case !a.known(p):
		return nil, frrcluster.ErrAbsent
	case a.refuse != nil:
		return nil, a.refuse
	case manager != "ccm-baremetal-announcer":
		return nil, errors.New("who is that?")
	}
	var o map[string]any
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, err
	}
	o["metadata"].(map[string]any)["uid"] = "u-2"
	a.store(p, o)
	return json.Marshal(o)
}

func (a *fakeAPI) Delete(_ context.Context, p string) error {
	a.mu.Lock()
	a.writes = append(a.writes, "delete "+p)
	refuse := a.refuse
	a.mu.Unlock()
	if refuse == nil {
		a.remove(p)
	}
	return refuse
}

// written returns the writes so far.
func (a *fakeAPI) written() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writes)
}

// set changes how the API server answers.
func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	a.changed()
}

// text returns an object as text, empty if there is none.
func (a *fakeAPI) text(p string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.objects[p] == nil {
		return ""
	}
	b, err := json.Marshal(a.objects[p])
	if err != nil {
		panic(err)
	}
	return string(b)
}

// newSpeaker returns a Speaker that ends with the test.
func newSpeaker(t *testing.T, api frrcluster.API) *frrcluster.Speaker {
	t.Helper()
	var w io.Writer = io.Discard
	if testing.Verbose() {
		w = os.Stderr
	}
	s := frrcluster.New(frrcluster.Options{Node: "n1", Namespace: namespace, API: api, Log: slog.New(slog.NewTextHandler(w, nil))})
	t.Cleanup(s.Close)
	return s
}

// eventually tries until check succeeds.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	const patience = time.Minute
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", patience, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// waitText waits until an object has some texts, and not those after a "!".
func (a *fakeAPI) waitText(t *testing.T, p string, want ...string) {
	t.Helper()
	eventually(t, func() error {
		text := a.text(p)
		for _, w := range want {
			without, not := strings.CutPrefix(w, "!")
			if strings.Contains(text, without) == not || text == "" {
				return fmt.Errorf("want %s in %q", w, text)
			}
		}
		return nil
	})
}

func (a *fakeAPI) waitGone(t *testing.T, p string) {
	t.Helper()
	eventually(t, func() error {
		if text := a.text(p); text != "" {
			return errors.New("there is " + text)
		}
		return nil
	})
}

// waitSession waits for a state of the only session, with some text in why.
func waitSession(t *testing.T, s *frrcluster.Speaker, state bgp.State, why string) bgp.Session {
	t.Helper()
	var x bgp.Session
	eventually(t, func() error {
		all := s.Sessions()
		if len(all) != 1 || all[0].State != state || !strings.Contains(all[0].Why, why) || why == "" && all[0].Why != "" {
			return fmt.Errorf("want %s (%s), got %+v", state, why, all)
		}
		x = all[0]
		return nil
	})
	return x
}
