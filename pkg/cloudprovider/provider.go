// Package cloudprovider is the cloud provider "baremetal": what the
// cloud-controller-manager framework asks of a cloud, and the controllers that
// this one brings along. This release answers for load balancers only.
package cloudprovider

import (
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
)

// Name is the name of the provider, as in --cloud-provider. Changing it is an
// API change.
const Name = "baremetal"

// A Provider implements cloudprovider.Interface, and holds the controllers
// that run on the leader.
type Provider struct {
	service *service.Controller
	keeper  *document.Keeper
	gossip  *gossipKey
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

// InstancesV2 is not supported.
func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return nil, false }

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
