package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// epoch is when every world begins.
var epoch = time.Date(2026, time.March, 1, 8, 0, 0, 0, time.UTC)

// world is an Allocator with Services around it: it does what the service
// controller does, with an API server that is a map.
type world struct {
	t          *testing.T
	a          *Allocator
	now        time.Time
	pools      []config.Pool
	cluster    Cluster
	namespaces map[string]map[string]string
	objects    map[Key]*object
	order      []Key // of creation
	broken     bool  // whether writes of a status fail
	writes     int
	version    int // the latest one
}

// object is a Service in the API server.
type object struct {
	spec    Request // what it asks for
	status  []netip.Addr
	version int // changes with everything that is written to it

	reason  Reason    // of the condition Allocated; empty: it has none
	message string    // its message
	since   time.Time // its transition time

	answer Decision // the last one, whether it could be written or not
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, a: New(), now: epoch,
		cluster:    Cluster{NodeAddresses: map[netip.Addr]string{}},
		namespaces: map[string]map[string]string{},
		objects:    map[Key]*object{},
	}
}

// document reads pools as a user writes them.
func document(t testing.TB, pools string) []config.Pool {
	t.Helper()
	text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\npools:\n" + pools
	if strings.TrimSpace(pools) == "" {
		return nil
	}
	c, err := config.Load([]byte(text))
	if err != nil {
		t.Fatalf("read the pools: %v\n%s", err, text)
	}
	return c.Pools
}

// configure puts pools in force and has every Service looked at again.
func (w *world) configure(pools []config.Pool) {
	w.pools = pools
	w.reconfigure()
}

func (w *world) reconfigure() {
	w.a.Configure(w.pools, w.cluster)
	w.settle()
	oldest := slices.Clone(w.order)
	slices.SortFunc(oldest, func(a, b Key) int {
		return cmp.Or(w.objects[a].spec.Created.Compare(w.objects[b].spec.Created), cmp.Compare(a, b))
	})
	for _, key := range oldest {
		w.pass(key)
	}
	w.settle()
}

// create adds a Service; its status may show what others wrote.
func (w *world) create(spec Request, status ...netip.Addr) {
	w.t.Helper()
	if w.objects[spec.Key] != nil {
		w.t.Fatalf("%s exists already", spec.Key)
	}
	if spec.Created.IsZero() {
		spec.Created = w.now
	}
	w.objects[spec.Key] = &object{spec: spec, status: status, version: w.next()}
	w.order = append(w.order, spec.Key)
	w.pass(spec.Key)
	w.settle()
}

func (w *world) change(key Key, edit func(*Request)) {
	edit(&w.objects[key].spec)
	w.objects[key].version = w.next()
	w.pass(key)
	w.settle()
}

func (w *world) remove(key Key) {
	delete(w.objects, key)
	w.order = slices.DeleteFunc(w.order, func(k Key) bool { return k == key })
	w.a.Release(key, w.now)
	w.settle()
}

// request is what the controller would ask about a Service right now.
func (w *world) request(key Key) Request {
	o := w.objects[key]
	r := o.spec
	r.NamespaceLabels = w.namespaces[r.Namespace]
	r.Held = slices.Clone(o.status)
	if o.reason.OK() || o.reason == NodeAddress {
		r.Given, r.HeldSince = config.Confirmed(o.message), o.since
	}
	return r
}

// pass decides about a Service and writes the answer. A write makes the
// Service be looked at again, like an informer does.
func (w *world) pass(key Key) {
	for range 3 {
		o := w.objects[key]
		o.answer = w.a.Decide(w.request(key), w.now)
		if w.broken || !w.write(o) {
			return
		}
	}
	w.t.Fatalf("%s is written again and again: %+v", key, w.objects[key].answer)
}

// write makes a status show the answer, and tells whether it had to.
func (w *world) write(o *object) bool {
	d := o.answer
	if o.reason == d.Reason && o.message == d.Message && slices.Equal(o.status, d.Addresses) {
		return false
	}
	w.store(o, d, w.now)
	w.writes++
	return true
}

// store makes a status show a decision that was made at some time.
func (w *world) store(o *object, d Decision, at time.Time) {
	kept := slices.ContainsFunc(o.status, func(a netip.Addr) bool { return slices.Contains(d.Addresses, a) })
	if o.reason == "" || o.reason.OK() != d.Reason.OK() || !kept {
		o.since = at
	}
	o.status, o.reason, o.message = slices.Clone(d.Addresses), d.Reason, d.Message
	o.version = w.next()
}

// next returns a version that no object has had.
func (w *world) next() int {
	w.version++
	return w.version
}

// settle serves whom the Allocator wakes until it wakes nobody.
func (w *world) settle() {
	for range 100 {
		keys := w.a.Wake()
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			w.pass(key)
		}
	}
	w.t.Fatal("the Allocator wakes Services for ever")
}

// restart replaces the Allocator by one that has read the Services in some
// order, and looks at each in that order.
func (w *world) restart(order []Key) {
	w.restore(order)
	for _, key := range order {
		w.pass(key)
	}
	w.settle()
}

// restore replaces the Allocator by one that has read the Services and decided
// nothing.
func (w *world) restore(order []Key) {
	w.a = New()
	w.a.Configure(w.pools, w.cluster)
	var requests []Request
	for _, key := range order {
		requests = append(requests, w.request(key))
	}
	w.a.Restore(requests)
}

// statuses is what all statuses show, by name.
func (w *world) statuses() map[Key][]netip.Addr {
	out := map[Key][]netip.Addr{}
	for key, o := range w.objects {
		out[key] = slices.Clone(o.status)
	}
	return out
}

// wish makes a Request out of words: a name and name=value pairs.
func wish(t *testing.T, key string, words ...string) Request {
	t.Helper()
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		t.Fatalf("%q is no namespace/name", key)
	}
	r := Request{Key: Key(key), Namespace: namespace, Name: name,
		Families: []Family{IPv4}, Policy: SingleStack, Ports: []Port{{"TCP", 80}}}
	for _, word := range words {
		if err := r.ask(word); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	return r
}

// ask changes a Request by one name=value.
func (r *Request) ask(word string) error {
	name, value, _ := strings.Cut(word, "=")
	list := strings.FieldsFunc(value, func(c rune) bool { return c == ',' })
	switch name {
	case "families":
		r.Families = nil
		for _, f := range list {
			r.Families = append(r.Families, Family("IP"+f))
		}
	case "policy":
		r.Policy = FamilyPolicy(value)
	case "addresses":
		r.Addresses = addresses(list...)
	case "pool":
		r.Pools = list
	case "invalid":
		r.Invalid = strings.ReplaceAll(value, "_", " ")
	case "key":
		r.SharingKey = value
	case "ports":
		r.Ports = nil
		for _, p := range list {
			var port Port
			if _, err := fmt.Sscanf(strings.Replace(p, "/", " ", 1), "%s %d", &port.Protocol, &port.Number); err != nil {
				return fmt.Errorf("port %q: %w", p, err)
			}
			r.Ports = append(r.Ports, port)
		}
	case "local":
		r.Local = value == "true"
	case "selector":
		r.Selector = value
	case "labels":
		r.Labels = labelSet(list)
	default:
		return fmt.Errorf("%q is nothing that a Service can ask for", name)
	}
	return nil
}

func labelSet(list []string) map[string]string {
	out := map[string]string{}
	for _, l := range list {
		k, v, _ := strings.Cut(l, "=")
		out[k] = v
	}
	return out
}

func addresses(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}
