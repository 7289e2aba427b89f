package cloudprovider

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/controllers/node"
	controllerapp "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances"
)

// configuredWithin is how long the framework's controller waits for the first
// configuration. It looks at the addresses of all Nodes when it starts, and
// then not for minutes: without a configuration it would see nothing.
const configuredWithin = 10 * time.Second

// nodeController starts the framework's controller that initializes Nodes. It
// hears of Nodes only; so that a Node need not wait until its kubelet writes
// again, it is kicked when something else has become known.
func nodeController(_ app.ControllerInitContext, c *appconfig.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
	return func(ctx context.Context, cc controllerapp.ControllerContext) (controller.Interface, bool, error) {
		p := cloud.(*Provider)
		if err := p.follow(ctx); err != nil {
			return nil, false, err
		}
		nodes := &kicked{NodeInformer: c.SharedInformers.Core().V1().Nodes()}
		p.instances.OnChange(nodes.kick)
		n, err := node.NewCloudNodeController(nodes, c.ClientBuilder.ClientOrDie(component), cloud,
			c.ComponentConfig.NodeStatusUpdateFrequency.Duration,
			c.ComponentConfig.NodeController.ConcurrentNodeSyncs,
			c.ComponentConfig.NodeController.ConcurrentNodeStatusUpdates)
		if err != nil {
			return nil, false, err
		}
		go func() {
			p.instances.Await(ctx, configuredWithin)
			n.RunWithContext(ctx, cc.ControllerManagerMetrics)
		}()
		return nil, true, nil
	}
}

// lifecycleController starts the framework's controller that asks about Nodes
// that are not Ready.
func lifecycleController(i app.ControllerInitContext, c *appconfig.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
	start := app.StartCloudNodeLifecycleControllerWrapper(i, c, cloud)
	return func(ctx context.Context, cc controllerapp.ControllerContext) (controller.Interface, bool, error) {
		if err := cloud.(*Provider).follow(ctx); err != nil {
			return nil, false, err
		}
		return start(ctx, cc)
	}
}

// kicked is an informer of Nodes whose handlers can be made to look at Nodes
// that have not changed.
type kicked struct {
	coreinformers.NodeInformer

	mu       sync.Mutex
	handlers []cache.ResourceEventHandler
}

// Informer returns an informer that remembers its handlers.
func (k *kicked) Informer() cache.SharedIndexInformer {
	return handled{k.NodeInformer.Informer(), k}
}

type handled struct {
	cache.SharedIndexInformer
	by *kicked
}

// AddEventHandler adds a handler, and remembers it.
func (h handled) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.by.mu.Lock()
	h.by.handlers = append(h.by.handlers, handler)
	h.by.mu.Unlock()
	return h.SharedIndexInformer.AddEventHandler(handler)
}

// kick has the handlers look at the Nodes that wait to be initialized.
func (k *kicked) kick() {
	k.mu.Lock()
	handlers := k.handlers
	k.mu.Unlock()
	nodes, _ := k.Lister().List(labels.Everything()) // reads from memory
	for _, n := range nodes {
		if !instances.Uninitialized(n) {
			continue
		}
		for _, h := range handlers {
			h.OnUpdate(n, n)
		}
	}
}
