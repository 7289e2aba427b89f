package instances

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ErrNotReady says that nothing is known yet, because there is no
// configuration.
var ErrNotReady = errors.New("not ready: no configuration yet")

// Holders know what Services hold.
type Holders interface {
	// Holds tells whether a Service holds an address. It does not wait: the
	// error says that this is not known, or not yet.
	Holds(netip.Addr) (bool, error)
}

// Options are what Instances are made of. All are required.
type Options struct {
	Client    kubernetes.Interface
	Config    *rest.Config // of the cluster, for hosts that are in this very one
	Namespace string       // of the Secret with the kubeconfig of a management cluster
	Shared    informers.SharedInformerFactory
	Services  Holders
	Events    record.EventRecorder
	Log       *slog.Logger
}

// Instances answers for the machines of Nodes. It implements
// cloudprovider.InstancesV2; its methods may be called concurrently and do not
// wait for a network, but for InstanceExists before a Node is deleted.
type Instances struct {
	client   kubernetes.Interface
	shared   cache.SharedIndexInformer
	nodes    corelisters.NodeLister
	services Holders
	events   record.EventRecorder
	log      *slog.Logger
	hosts    *metal3
	counts   counts

	configured chan struct{} // closed when a configuration is in force

	mu        sync.Mutex
	config    *config.Config // nil before the first
	listeners []func()
	memories  map[types.UID]*memory // by Node
	breaker   decide.Breaker
}

// A memory is what must be remembered of a Node between two questions.
type memory struct {
	gone, off decide.Suspicion
	told      map[string]string // by reason: the message of the last event
	held      bool              // it would be deleted, were there not so many
}

var _ cloudprovider.InstancesV2 = (*Instances)(nil)

// New returns Instances. Watch and Run set them to work, in this order.
func New(o Options) *Instances {
	nodes := o.Shared.Core().V1().Nodes()
	i := &Instances{
		client:   o.Client,
		shared:   nodes.Informer(),
		nodes:    nodes.Lister(),
		services: o.Services,
		events:   o.Events,
		log:      o.Log,
		memories: map[types.UID]*memory{},

		configured: make(chan struct{}),
	}
	way := &connector{client: o.Client, own: o.Config, namespace: o.Namespace}
	i.hosts = newMetal3(way.connect, i.changed, o.Log)
	return i
}

// Watch subscribes to the informer of Nodes. It must be called before that
// starts.
func (i *Instances) Watch() error {
	_, err := i.shared.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if node, ok := obj.(*v1.Node); ok {
			i.forget(node)
		}
	}})
	if err != nil {
		return fmt.Errorf("subscribe to Nodes: %w", err)
	}
	return nil
}

// Run follows the BareMetalHosts, as long as the configuration in force says
// where they are, until ctx ends.
func (i *Instances) Run(ctx context.Context) { i.hosts.Run(ctx) }

// Apply puts a configuration in force. It returns at once.
func (i *Instances) Apply(c config.Config) {
	i.mu.Lock()
	if i.config == nil {
		close(i.configured)
	}
	i.config = &c
	i.mu.Unlock()
	i.hosts.configure(c.Nodes)
	i.changed()
}

// Await waits until a configuration is in force, for so long at most, or until
// ctx ends.
func (i *Instances) Await(ctx context.Context, atMost time.Duration) {
	select {
	case <-i.configured:
	case <-time.After(atMost):
	case <-ctx.Done():
	}
}

// OnChange has f called whenever answers may have changed for a reason other
// than the Node itself. f must not block.
func (i *Instances) OnChange(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listeners = append(i.listeners, f)
}

func (i *Instances) changed() {
	i.mu.Lock()
	listeners := i.listeners
	i.mu.Unlock()
	for _, f := range listeners {
		f()
	}
}

// inForce returns the configuration in force.
func (i *Instances) inForce() (config.Config, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config == nil {
		return config.Config{}, ErrNotReady
	}
	return *i.config, nil
}

// memory returns what is remembered of a Node. It must be called with the lock
// held.
func (i *Instances) memory(node *v1.Node) *memory {
	m := i.memories[node.UID]
	if m == nil {
		m = &memory{told: map[string]string{}}
		i.memories[node.UID] = m
	}
	return m
}

// forget drops what is remembered of a Node that is no more.
func (i *Instances) forget(node *v1.Node) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.memories, node.UID)
}

// all returns what counts of all Nodes.
func (i *Instances) all() []decide.NodeFacts {
	nodes, _ := i.nodes.List(labels.Everything()) // reads from memory
	facts := make([]decide.NodeFacts, len(nodes))
	for n, node := range nodes {
		facts[n] = factsOf(node)
	}
	return facts
}

// factsOf takes from a Node what counts when it is to be deleted.
func factsOf(node *v1.Node) decide.NodeFacts {
	_, control := node.Labels["node-role.kubernetes.io/control-plane"]
	f := decide.NodeFacts{
		UID:          string(node.UID),
		Created:      node.CreationTimestamp.Time,
		Initialized:  !Uninitialized(node),
		ControlPlane: control,
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			f.Ready, f.ReadyChanged = c.Status == v1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return f
}

// Uninitialized tells whether a Node waits for its cloud provider: it has the
// taint that the kubelet registers it with.
func Uninitialized(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == cloudapi.TaintExternalCloudProvider })
}
