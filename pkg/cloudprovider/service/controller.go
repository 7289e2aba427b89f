package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/metrics"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// world is the key, in the queue of Services, of everything that is not a
// Service: configuration and Nodes. No Service has an empty name.
const world ipam.Key = ""

// apiServerSlice is the EndpointSlice, in the namespace default, with the
// addresses of the API server.
const apiServerSlice = "kubernetes"

// A failed write is tried again after a pause that doubles between these.
const (
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Minute
)

// Options are what a Controller is made of. All but Reserved are required.
type Options struct {
	Client   kubernetes.Interface
	Shared   informers.SharedInformerFactory // for Nodes and Namespaces; the caller starts it after Watch
	Events   record.EventRecorder
	Log      *slog.Logger
	Workers  int          // writes at a time
	Reserved []netip.Addr // never to be given out, besides what the cluster itself shows
}

// A Controller keeps the status of every Service as its Balancer decides.
type Controller struct {
	balancer *Balancer
	client   kubernetes.Interface
	events   record.EventRecorder
	log      *slog.Logger
	workers  int
	reserved []netip.Addr

	own        []informers.SharedInformerFactory // those that Run starts
	watched    []watched
	informed   cache.SharedIndexInformer // of Services
	services   corelisters.ServiceLister
	namespaces corelisters.NamespaceLister
	nodes      corelisters.NodeLister
	slices     discoverylisters.EndpointSliceLister

	queue  workqueue.TypedRateLimitingInterface[ipam.Key]
	writes chan write
	reads  *reads
	pace   *pace
	turns  *turns
	births *births
	fails  *troubles
	counts counts

	latency *metrics.Histogram // from wanting an address to having it

	listed     chan struct{} // closed when everything has been listed once
	configured chan struct{} // closed when there is a configuration, be it a resumed one
	restored   chan struct{} // closed when it is known what the Services hold
	begun      chan struct{} // closed when a configuration is in force, so that decisions may begin

	begin func() // closes begun, once

	mu      sync.Mutex
	config  *config.Config        // nil before the first
	refused map[ipam.Key]struct{} // writes that the API server refused, to be taken back
}

// watched is an informer and what its events do.
type watched struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
	synced   cache.InformerSynced
}

// New returns a Controller. Watch and Run set it to work, in this order.
func New(o Options) *Controller {
	// The shared factory's first list may come from a cache of the API server
	// that lags behind: good enough for Nodes, but a Service that is missing in
	// it would lose its address to another one.
	services := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithTweakListOptions(consistent))
	apiserver := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(metav1.NamespaceDefault),
		informers.WithTweakListOptions(named(apiServerSlice)))
	c := &Controller{
		client:     o.Client,
		events:     o.Events,
		log:        o.Log,
		workers:    o.Workers,
		reserved:   o.Reserved,
		own:        []informers.SharedInformerFactory{services, apiserver},
		informed:   services.Core().V1().Services().Informer(),
		services:   services.Core().V1().Services().Lister(),
		namespaces: o.Shared.Core().V1().Namespaces().Lister(),
		nodes:      o.Shared.Core().V1().Nodes().Lister(),
		slices:     apiserver.Discovery().V1().EndpointSlices().Lister(),
		writes:     make(chan write),
		pace:       newPace(),
		turns:      newTurns(),
		births:     newBirths(),
		fails:      newTroubles(),
		latency:    newLatency(),
		listed:     make(chan struct{}),
		configured: make(chan struct{}),
		restored:   make(chan struct{}),
		begun:      make(chan struct{}),
		refused:    map[ipam.Key]struct{}{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[ipam.Key](retryFirst, retryLast),
			workqueue.TypedRateLimitingQueueConfig[ipam.Key]{Name: "service"}),
	}
	c.begin = sync.OnceFunc(func() { close(c.begun) })
	c.balancer = NewBalancer(c.namespaceLabels)
	c.reads = newReads(c.services)
	c.watched = []watched{
		{informer: c.informed, handler: c.onService()},
		{informer: o.Shared.Core().V1().Namespaces().Informer(), handler: c.onNamespace()},
		{informer: o.Shared.Core().V1().Nodes().Informer(), handler: c.onNode()},
		{informer: apiserver.Discovery().V1().EndpointSlices().Informer(), handler: c.onWorld()},
	}
	return c
}

// consistent makes the first list of an informer one that is read from a quorum.
func consistent(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

func named(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// trim drops what takes memory and is never looked at.
func trim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// Name returns the name under which the framework knows the controller.
func (c *Controller) Name() string { return names.ServiceLBController }

// Balancer returns the one place where this controller's decisions come from.
func (c *Controller) Balancer() *Balancer { return c.balancer }

// Watch subscribes to the informers. It must be called before they start.
func (c *Controller) Watch() error {
	if err := c.informed.AddIndexers(externalIPIndex()); err != nil {
		return fmt.Errorf("index Services by external IP: %w", err)
	}
	for i, w := range c.watched {
		if err := w.informer.SetTransform(trim); err != nil {
			return fmt.Errorf("trim what an informer keeps: %w", err)
		}
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("subscribe to an informer: %w", err)
		}
		c.watched[i].synced = registration.HasSynced
	}
	return nil
}

// Resume tells, before the first Apply, which configuration was in force
// before this process. What the Services hold is registered under it, and
// Impact compares with it; nothing is decided by it. It returns at once.
func (c *Controller) Resume(cfg config.Config) { c.know(cfg) }

// Apply puts a configuration in force. It returns at once.
func (c *Controller) Apply(cfg config.Config) {
	c.know(cfg)
	c.begin()
	c.queue.Add(world)
}

// know records the configuration.
func (c *Controller) know(cfg config.Config) {
	c.mu.Lock()
	first := c.config == nil
	c.config = &cfg
	c.mu.Unlock()
	if first {
		close(c.configured)
	}
}

// Impact tells which addresses in use a configuration would take away, move
// or leave to no Node, one sentence for each, and how many are in use. It waits
// until it is known what the Services hold. Where no configuration is in force,
// it goes by what their conditions say that they were given.
func (c *Controller) Impact(ctx context.Context, cfg config.Config) (lost []string, inUse int, err error) {
	c.mu.Lock()
	known, first := c.restored, c.config == nil
	c.mu.Unlock()
	if first {
		known = c.listed
	}
	select {
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("wait for the Services: %w", ctx.Err())
	case <-known:
	}
	nodes, _ := c.nodes.List(labels.Everything()) // reads from memory
	var impact Impact
	if first {
		impact = NewBalancer(c.namespaceLabels).FirstImpact(cfg, Survey{Services: c.list(), Nodes: nodes, Cluster: c.cluster()}, time.Now())
	} else {
		impact = c.balancer.Impact(cfg, c.list(), nodes)
	}
	return impact.Addresses(), impact.InUse, nil
}

// Run works until ctx ends. Before anything is decided, the Services and all
// else have been listed, everything that Services hold is registered, and a
// configuration is in force.
func (c *Controller) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	for _, f := range c.own {
		f.Start(ctx.Done())
	}
	for _, w := range c.watched {
		if !cache.WaitForCacheSync(ctx.Done(), w.synced) {
			return
		}
	}
	close(c.listed)
	select {
	case <-ctx.Done():
		return
	case <-c.configured:
	}
	c.restore()
	select {
	case <-ctx.Done():
		return
	case <-c.begun:
	}
	c.configure() // what was resumed may have been replaced
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for range max(1, c.workers) {
		tasks.Go(func() { c.writeAll(ctx) })
	}
	tasks.Go(func() { c.decideAll(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
}

// restore registers what the Services hold, and queues them all. Events are
// listened to from here on. What happened to a Service since the first list
// went unheard, hence the second one.
func (c *Controller) restore() {
	c.configure()
	before := c.list()
	holders := c.balancer.Restore(before)
	c.counts.restored.Store(int64(holders))
	c.log.Info("registered what the services hold", "services", len(before), "with addresses", holders)
	close(c.restored)
	for _, svc := range append(c.list(), before...) {
		c.births.wants(svc, born(svc, time.Now()))
		c.queue.Add(keyOf(svc))
	}
}

// configure hands configuration and cluster to the balancer.
func (c *Controller) configure() {
	c.mu.Lock()
	cfg := *c.config
	c.mu.Unlock()
	c.balancer.Configure(cfg, c.cluster())
}

// cluster returns what must never be given out.
func (c *Controller) cluster() ipam.Cluster {
	// Listers read from memory; without the slice there is nothing to reserve.
	nodes, _ := c.nodes.List(labels.Everything())
	slice, _ := c.slices.EndpointSlices(metav1.NamespaceDefault).Get(apiServerSlice)
	return cluster(nodes, slice, c.reserved)
}

// list returns the Services that concern us, oldest first.
func (c *Controller) list() []*v1.Service {
	all, _ := c.services.List(labels.Everything()) // reads from memory
	all = slices.DeleteFunc(all, func(svc *v1.Service) bool { return !c.concerns(svc) })
	slices.SortFunc(all, byAge)
	return all
}

// Confirmed returns the Services of ours that have an address from us, oldest
// first; none as long as it is not known what Services hold. They must not be
// modified.
func (c *Controller) Confirmed() []*v1.Service {
	if !c.listening() {
		return nil
	}
	return slices.DeleteFunc(c.list(), func(svc *v1.Service) bool {
		ours, err := c.balancer.Ours(svc)
		has := slices.ContainsFunc(held(svc), func(a netip.Addr) bool { return confirmed(svc, a) })
		return err != nil || !ours || !has || svc.DeletionTimestamp != nil
	})
}

func byAge(a, b *v1.Service) int {
	if order := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	return slices.Compare([]byte(keyOf(a)), []byte(keyOf(b)))
}

// concerns tells whether there can be anything to do about a Service.
func (c *Controller) concerns(svc *v1.Service) bool {
	return svc.Spec.Type == v1.ServiceTypeLoadBalancer || allocated(svc) != nil || announced(svc) != nil ||
		c.balancer.Assigned(keyOf(svc)) != nil
}

func (c *Controller) namespaceLabels(name string) map[string]string {
	ns, err := c.namespaces.Get(name)
	if err != nil {
		return nil // not seen yet; when it is, its Services are looked at again
	}
	return ns.Labels
}
