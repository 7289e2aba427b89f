// Package cloudprovider is the cloud provider "baremetal": what the
// cloud-controller-manager framework asks of a cloud, and the controllers that
// this one brings along: for load balancers and for Nodes.
package cloudprovider

import (
	"context"
	"sync"
	"time"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/watchdog"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Name is the name of the provider, as in --cloud-provider. Changing it is an
// API change.
const Name = "baremetal"

// A Provider implements cloudprovider.Interface, and holds the controllers
// that run on the leader.
type Provider struct {
	service   *service.Controller
	instances *instances.Instances
	labels    *instances.Labeller
	keeper    *document.Keeper
	gossip    *gossipKey
	watchdog  *watchdog.Watchdog

	// unbalanced reads what Services hold where no controller of ours does, as
	// --controllers leaves it out; nil: one does.
	unbalanced func(context.Context) (service.Survey, error)

	machines sync.Once // the first controller that is for Nodes starts what they share
}

var _ cloudprovider.Interface = (*Provider)(nil)

// Initialize does nothing: what runs is one of the Controllers.
func (p *Provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// LoadBalancer returns the Balancer that our own service controller decides by.
func (p *Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return p.service.Balancer(), true
}

// Instances is not supported.
func (p *Provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

// InstancesV2 returns what answers for the machines of Nodes.
func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p.instances, true }

// Zones is not supported.
func (p *Provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters is not supported.
func (p *Provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes is not supported.
func (p *Provider) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName returns Name.
func (p *Provider) ProviderName() string { return Name }

// HasClusterID returns true: nothing has to be tagged.
func (p *Provider) HasClusterID() bool { return true }

// Resume tells which configuration was in force before: see service.Controller.
// Nodes wait for Apply.
func (p *Provider) Resume(c config.Config) { p.service.Resume(c) }

// Apply puts a configuration in force, for Services and for Nodes. It returns
// at once.
func (p *Provider) Apply(c config.Config) {
	p.service.Apply(c)
	p.instances.Apply(c)
}

// Impact tells which addresses in use a configuration would take away: see
// service.Controller. Where that does not run, it goes by what the Services say
// that they were given: announcers obey the document all the same.
func (p *Provider) Impact(ctx context.Context, c config.Config) (lost []string, inUse int, err error) {
	if p.unbalanced == nil {
		return p.service.Impact(ctx, c)
	}
	world, err := p.unbalanced(ctx)
	if err != nil {
		return nil, 0, err
	}
	impact := world.Impact(nil, c, time.Now())
	return impact.Addresses(), impact.InUse, nil
}

// follow sets to work what all controllers of Nodes share, once.
func (p *Provider) follow(ctx context.Context) (err error) {
	p.machines.Do(func() {
		err = p.instances.Watch()
		go p.instances.Run(ctx)
	})
	return err
}
