// Package source turns Kubernetes objects, the accepted configuration and this
// node's links into the snapshots that decisions are made from. It is the only
// package of the announcer that knows Kubernetes types. What it has learnt once
// stays in force when the API server goes away: unknown is not empty.
package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Options is what a World needs. All fields but File are required.
type Options struct {
	Node      string // the Node that this announcer runs on
	API       *API
	Namespace string // of the accepted ConfigMap
	File      string // read the configuration from here instead
	Links     *Links // run by the caller

	// Rehearse takes the addresses of the configuration's pools that a status
	// shows for confirmed, where no CCM has judged the Service yet: a CCM would
	// adopt them. It is for who decides and announces nothing.
	Rehearse bool

	// Kick is called after each change that a decision could depend on. It
	// must not block.
	Kick func()
	Log  *slog.Logger
}

// World is what this node knows besides the members.
type World struct {
	o        Options
	reach    *reach
	document *document
	vitals   vitals
	probe    func(context.Context) health // of the data path

	mu       sync.Mutex // guards all that follows
	services table[*corev1.Service, service]
	slices   table[*discoveryv1.EndpointSlice, slice]
	nodes    table[*corev1.Node, node]
	api      table[*corev1.Service, []netip.Addr] // default/kubernetes only
	owned    map[string][]string                  // the keys of a Service's slices
	views    views
}

// New returns a World that knows nothing until Run is called.
func New(o Options) *World {
	w := &World{
		o:        o,
		reach:    &reach{log: o.Log, down: map[string]error{}},
		document: &document{log: o.Log, changed: o.Kick},
		owned:    map[string][]string{},
		views:    views{endpoints: map[string]plan.Endpoints{}, outdated: map[string]bool{}},
	}
	w.probe = w.askProxy
	w.services = newTable(w, convertService, w.serviceChanged)
	w.slices = newTable(w, convertSlice, w.sliceChanged)
	w.nodes = newTable(w, convertNode, w.nodeChanged)
	w.api = newTable(w, convertAPI, w.apiChanged)
	return w
}

func newTable[O metav1.Object, T any](w *World, convert func(O) (T, bool), changed func(string, *T, *T) bool) table[O, T] {
	return table[O, T]{convert: convert, changed: changed, kick: w.o.Kick, mu: &w.mu, rows: map[string]T{}}
}

// Run follows the world until ctx ends. It never gives up: what cannot be read
// is tried again and logged once.
func (w *World) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error {
		// A field selector keeps Services of other types off the wire, and
		// one that changes its type looks like one that is deleted.
		o := w.follow("Services")
		o.fields = "spec.type=" + string(corev1.ServiceTypeLoadBalancer)
		follow(ctx, w.o.API.services(""), &corev1.Service{}, &w.services, o)
		return nil
	})
	g.Go(func() error {
		o := w.follow("EndpointSlices")
		o.labels = discoveryv1.LabelServiceName + ",!" + corev1.IsHeadlessService
		follow(ctx, w.o.API.endpointSlices(), &discoveryv1.EndpointSlice{}, &w.slices, o)
		return nil
	})
	g.Go(func() error {
		follow(ctx, w.o.API.nodes(), &corev1.Node{}, &w.nodes, w.follow("Nodes"))
		return nil
	})
	g.Go(func() error {
		namespace, name, _ := strings.Cut(apiService, "/")
		o := w.follow("Service " + apiService)
		o.fields = "metadata.name=" + name
		follow(ctx, w.o.API.services(namespace), &corev1.Service{}, &w.api, o)
		return nil
	})
	g.Go(func() error {
		w.followDocument(ctx)
		return nil
	})
	g.Go(func() error {
		w.followVitals(ctx)
		return nil
	})
	g.Go(func() error {
		w.followDataPath(ctx)
		return nil
	})
	return g.Wait()
}

func (w *World) followDocument(ctx context.Context) {
	if w.o.File != "" {
		w.document.followFile(ctx, w.o.File)
		return
	}
	o := w.follow(w.where())
	o.fields = "metadata.name=" + acceptedConfigMap // the right to read it is by name
	follow(ctx, w.o.API.configMaps(w.o.Namespace), &corev1.ConfigMap{}, w.document, o)
}

func (w *World) follow(what string) followOptions {
	return followOptions{what: what, tell: func(err error) { w.reach.note(what, err) }}
}

// where the configuration is expected.
func (w *World) where() string {
	if w.o.File != "" {
		return w.o.File
	}
	return "ConfigMap " + w.o.Namespace + "/" + acceptedConfigMap
}

// Config returns the configuration in force, or an error that says why there is none.
func (w *World) Config() (config.Config, error) {
	c, known, err := w.document.current()
	switch {
	case known:
		return c, nil
	case err != nil:
		return c, fmt.Errorf("a valid configuration in %s: %w", w.where(), err)
	default:
		return c, fmt.Errorf("a configuration in %s", w.reach.missing(w.where()))
	}
}

// ConfigFault returns what is wrong with the newest document, if it was
// refused; an older one may be in force all the same.
func (w *World) ConfigFault() error {
	_, _, err := w.document.current()
	return err
}

// Document returns the text of the configuration in force, nothing if there is none.
func (w *World) Document() string {
	w.document.mu.Lock()
	defer w.document.mu.Unlock()
	return w.document.text
}

// Unreachable returns what cannot be read from the API server at the moment,
// sorted. What was read before stays in force.
func (w *World) Unreachable() []string { return w.reach.unreachable() }

// Peers returns the gossip addresses of all Nodes on which an announcer can
// run, by name. A Node that has no address yet is left out.
func (w *World) Peers() (map[string]netip.Addr, error) {
	advertise, err := w.advertise()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.nodes.synced {
		return nil, errors.New("waiting for Nodes")
	}
	peers := map[string]netip.Addr{}
	for name, n := range w.nodes.rows {
		if address, err := n.gossip(advertise); err == nil && n.announces() {
			peers[name] = address
		}
	}
	return peers, nil
}

// GossipAddress returns this node's own gossip address.
func (w *World) GossipAddress() (netip.Addr, error) {
	advertise, err := w.advertise()
	if err != nil {
		return netip.Addr{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.nodes.rows[w.o.Node]
	if !ok {
		return netip.Addr{}, fmt.Errorf("waiting for Node %s", w.o.Node)
	}
	return n.gossip(advertise)
}

// advertise returns the prefix that picks gossip addresses, the zero Prefix if
// the configuration names none.
func (w *World) advertise() (netip.Prefix, error) {
	c, err := w.Config()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("waiting for %w", err)
	}
	if c.Membership.Advertise == "" {
		return netip.Prefix{}, nil
	}
	return netip.ParsePrefix(c.Membership.Advertise)
}

// UID returns the UID of a Service of type LoadBalancer by its
// namespace/name, or nothing. Events need it to be found.
func (w *World) UID(service string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.services.rows[service].uid
}

// Announced returns the condition of that name of a Service by its
// namespace/name, nothing if it has none.
func (w *World) Announced(service string) Announced {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.services.rows[service].announced
}
