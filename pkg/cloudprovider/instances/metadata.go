package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/node/helpers"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// InstanceMetadata tells what a Node is to be initialized with and, of a Node
// that is, which addresses it should have. The metadata is never nil without
// an error: the framework would not survive it. It has no addresses if the
// Node has the right ones, which the framework takes for nothing to do.
func (i *Instances) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	c, err := i.inForce()
	if err != nil {
		return nil, err
	}
	metadata, err := i.metadata(c, node)
	if err == nil {
		return metadata, nil
	}
	if Uninitialized(node) {
		i.tell(node, v1.EventTypeWarning, reasonNotInitialized, err.Error())
	}
	return nil, fmt.Errorf("node %s: %w", node.Name, err)
}

func (i *Instances) metadata(c config.Config, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	m, err := i.machineOf(c, node)
	fresh := Uninitialized(node)
	switch {
	case err != nil:
		return nil, err
	case m.foreign && fresh:
		return nil, fmt.Errorf("its providerID %s is another provider's, which has to initialize it; "+
			"an entry in nodes.inventory of the configuration makes the Node ours", m.text)
	case m.foreign:
		return &cloudprovider.InstanceMetadata{ProviderID: m.text}, nil
	case m.text == "":
		return nil, fmt.Errorf("its providerID is not known yet: %w", m.trouble)
	case fresh && m.trouble != nil && !c.Nodes.Metal3.InitializeWithoutHost:
		return nil, m.trouble
	}
	addresses, err := i.addressesOf(c, node, m)
	if err != nil {
		return nil, err
	}
	d, own := m.describe(c, node), decide.Own(node.Labels)
	return &cloudprovider.InstanceMetadata{
		ProviderID:       m.text,
		InstanceType:     cmp.Or(d.InstanceType, own.InstanceType),
		Zone:             cmp.Or(d.Zone, own.Zone),
		Region:           cmp.Or(d.Region, own.Region),
		AdditionalLabels: d.Labels,
		NodeAddresses:    addresses,
	}, nil
}

// errNoAddress says what to do about a Node without any address.
var errNoAddress = errors.New("no address is known: give its kubelet --node-ip, or the Node an entry with addresses in nodes.inventory of the configuration")

// addressesOf returns the addresses that a Node should have; none if it is
// initialized and has them.
func (i *Instances) addressesOf(c config.Config, node *v1.Node, m machine) ([]v1.NodeAddress, error) {
	facts := decide.AddressFacts{Current: ipsOf(node.Status.Addresses)}
	facts.Held = i.heldOf(facts.Current)
	var err error
	if facts.Provided, err = providedIPs(node); err != nil {
		return nil, err
	}
	if m.entry != nil {
		facts.Known = m.entry.Addresses
	}
	if len(facts.Known) == 0 && m.host != nil && c.Nodes.Metal3.HostAddresses {
		facts.Known = m.host.Addresses
	}
	var want []v1.NodeAddress
	for _, a := range decide.Addresses(facts, c) {
		want = append(want, v1.NodeAddress{Type: v1.NodeAddressType(a.Type), Address: a.Addr.String()})
	}
	if len(want) == 0 {
		return nil, errNoAddress
	}
	want = append(want, namesOf(node)...)
	if !Uninitialized(node) && agrees(node, want) {
		return nil, nil
	}
	return want, nil
}

// heldOf returns the addresses among those of a Node that Services hold. As
// long as that is not known it returns none: what cannot be told from the Node's
// own stays the Node's.
func (i *Instances) heldOf(addresses []decide.Address) []netip.Addr {
	var out []netip.Addr
	for _, a := range addresses {
		if held, err := i.services.Holds(a.Addr); err == nil && held {
			out = append(out, a.Addr)
		}
	}
	return out
}

// providedIPs returns the addresses that the kubelet was given by --node-ip.
func providedIPs(node *v1.Node) ([]netip.Addr, error) {
	text, ok := node.Annotations[cloudapi.AnnotationAlphaProvidedIPAddr]
	if !ok {
		return nil, nil
	}
	var out []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("its annotation %s: %w", cloudapi.AnnotationAlphaProvidedIPAddr, err)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

// ipsOf returns the addresses among entries of a Node's status.
func ipsOf(entries []v1.NodeAddress) []decide.Address {
	var out []decide.Address
	for _, entry := range entries {
		a, err := netip.ParseAddr(entry.Address)
		if err == nil && !isName(entry) {
			out = append(out, decide.Address{Type: decide.AddressType(entry.Type), Addr: a.Unmap()})
		}
	}
	return out
}

// namesOf returns the names in the status of a Node, which are not ours to
// change.
func namesOf(node *v1.Node) []v1.NodeAddress {
	return slices.DeleteFunc(slices.Clone(node.Status.Addresses), func(a v1.NodeAddress) bool { return !isName(a) })
}

func isName(a v1.NodeAddress) bool {
	return a.Type != v1.NodeInternalIP && a.Type != v1.NodeExternalIP
}

// agrees tells whether the status of a Node has already what the framework
// would make of the addresses. It puts what the kubelet was given first and
// drops others of the same type; and it takes two addresses of one type for a
// change each time it looks, so it must not be shown them again.
func agrees(node *v1.Node, want []v1.NodeAddress) bool {
	if text, ok := node.Annotations[cloudapi.AnnotationAlphaProvidedIPAddr]; ok {
		merged, err := helpers.GetNodeAddressesFromNodeIP(text, want)
		if err != nil {
			return false // the framework will say the same
		}
		want = merged
	}
	return slices.Equal(ipsOf(node.Status.Addresses), ipsOf(want))
}
