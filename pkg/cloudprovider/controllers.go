package cloudprovider

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/metrics/legacyregistry"
	controllerapp "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/fence"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/watchdog"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/rehearse"
)

// component names us towards the API server: user agent and source of events.
const component = "ccm-baremetal"

// Options are what a Provider needs besides the framework's configuration.
type Options struct {
	Namespace string // of the ConfigMaps and the Secret

	// ObserveOnly lets nothing be written: what would be is counted and logged.
	ObserveOnly bool
}

// New builds the provider out of the framework's configuration. It registers
// metrics: call it once. All clients that are made of c from then on write only
// while this process leads, if it takes part in the election of a leader; and
// no client of c writes anything if the provider only observes.
func New(c *appconfig.CompletedConfig, o Options) *Provider {
	log := slog.New(logr.ToSlogHandler(klog.Background()))
	if e := c.ComponentConfig.Generic.LeaderElection; e.LeaderElect {
		c.Kubeconfig.Wrap(fence.New(e.RenewDeadline.Duration).Wrap)
	}
	if o.ObserveOnly {
		observe(c, log)
	}
	namespace := o.Namespace
	client := c.ClientBuilder.ClientOrDie(component)
	events := c.EventBroadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: component})
	services := service.New(service.Options{
		Client:   client,
		Shared:   c.SharedInformers,
		Events:   events,
		Log:      log,
		Workers:  int(c.ComponentConfig.ServiceController.ConcurrentServiceSyncs),
		Reserved: host(c.Kubeconfig.Host),
	})
	p := &Provider{
		service: services,
		instances: instances.New(instances.Options{
			Client:    client,
			Config:    rest.AddUserAgent(rest.CopyConfig(c.Kubeconfig), component),
			Namespace: namespace,
			Shared:    c.SharedInformers,
			Services:  services.Balancer(),
			Events:    events,
			Log:       log,
		}),
		gossip: &gossipKey{client: client, namespace: namespace, log: log},
	}
	if !enabled(c, names.ServiceLBController) {
		p.unbalanced = surveyor(client)
	}
	p.watchdog = watchdog.New(watchdog.Options{Client: client, Namespace: namespace, Services: p.service.Confirmed, Log: log})
	p.labels = instances.NewLabeller(p.instances)
	source := document.Source(&document.ConfigMap{Client: client, Namespace: namespace, Events: events})
	if file := c.ComponentConfig.KubeCloudShared.CloudProvider.CloudConfigFile; file != "" {
		source = &document.File{Path: file}
	}
	p.keeper = document.NewKeeper(source, p, log)
	legacyregistry.CustomMustRegister(p.service.Collector(), p.instances.Collector(), p.keeper.Collector())
	legacyregistry.MustRegister(p.service.Latency())
	return p
}

// surveyor returns what reads what the Services of a cluster hold.
func surveyor(client kubernetes.Interface) func(context.Context) (service.Survey, error) {
	return func(ctx context.Context) (service.Survey, error) { return service.NewSurvey(ctx, client) }
}

// observe keeps all clients from writing, the one of the framework's events
// included, which was made before.
func observe(c *appconfig.CompletedConfig, log *slog.Logger) {
	rehearsal := rehearse.New(log)
	c.Kubeconfig.Wrap(rehearsal.Wrap)
	c.Client = kubernetes.NewForConfigOrDie(rest.AddUserAgent(rest.CopyConfig(c.Kubeconfig), component)) // the framework has made one of it already
	legacyregistry.CustomMustRegister(&withheldCollector{rehearsal: rehearsal})
	log.Info("only observing: nothing is written, and another controller stays in charge")
}

// host returns the address in the URL under which this process reaches the
// API server, if it is an address: it must not be given out.
func host(server string) []netip.Addr {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil
	}
	return []netip.Addr{a.Unmap()}
}

// Controllers returns what runs on the leader, by the names under which the
// framework knows it. Its route controller is left out, as nothing here makes
// routes.
func Controllers() map[string]app.ControllerInitFuncConstructor {
	return map[string]app.ControllerInitFuncConstructor{
		names.ServiceLBController: start(func(ctx context.Context, p *Provider) (controller.Interface, error) {
			if err := p.service.Watch(); err != nil {
				return nil, err
			}
			go p.service.Run(ctx)
			go p.watchdog.Run(ctx) // it knows Services from the controller, and so comes and goes with it
			return p.service, nil
		}),
		names.CloudNodeController: {
			InitContext: app.ControllerInitContext{ClientName: component},
			Constructor: nodeController,
		},
		names.CloudNodeLifecycleController: {
			InitContext: app.ControllerInitContext{ClientName: component},
			Constructor: lifecycleController,
		},
		instances.LabelController: start(func(ctx context.Context, p *Provider) (controller.Interface, error) {
			if err := errors.Join(p.follow(ctx), p.labels.Watch()); err != nil {
				return nil, err
			}
			go p.labels.Run(ctx)
			return p.labels, nil
		}),
		document.ControllerName: start(func(ctx context.Context, p *Provider) (controller.Interface, error) {
			go p.keeper.Run(ctx)
			return p.keeper, nil
		}),
		gossipKeyController: start(func(ctx context.Context, p *Provider) (controller.Interface, error) {
			go p.gossip.Run(ctx)
			return p.gossip, nil
		}),
	}
}

// Aliases returns the short names of controllers for --controllers.
func Aliases() map[string]string {
	return map[string]string{
		"service":              names.ServiceLBController,
		"cloud-node":           names.CloudNodeController,
		"cloud-node-lifecycle": names.CloudNodeLifecycleController,
	}
}

// Disabled returns a function that tells whether --controllers leaves a
// controller out. The framework would warn about each of those, although it
// was told so.
func Disabled(c *appconfig.CompletedConfig) func(name string, _ app.ControllerInitFuncConstructor) bool {
	return func(name string, _ app.ControllerInitFuncConstructor) bool { return !enabled(c, name) }
}

// enabled tells whether --controllers lets a controller run.
func enabled(c *appconfig.CompletedConfig, name string) bool {
	return controllerapp.IsControllerEnabled(name, app.ControllersDisabledByDefault, c.ComponentConfig.Generic.Controllers)
}

// start adapts a function to the three stages in which the framework starts a
// controller.
func start(run func(context.Context, *Provider) (controller.Interface, error)) app.ControllerInitFuncConstructor {
	return app.ControllerInitFuncConstructor{
		InitContext: app.ControllerInitContext{ClientName: component},
		Constructor: func(_ app.ControllerInitContext, _ *appconfig.CompletedConfig, cloud cloudprovider.Interface) app.InitFunc {
			return func(ctx context.Context, _ controllerapp.ControllerContext) (controller.Interface, bool, error) {
				c, err := run(ctx, cloud.(*Provider))
				return c, true, err
			}
		},
	}
}
