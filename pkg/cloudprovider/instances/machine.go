package instances

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// A machine is what is known about the machine of a Node.
type machine struct {
	entry   *config.Machine // of the inventory; nil: none
	id      decide.ProviderID
	text    string       // what the Node's providerID is or, if it has none, will be; empty: not known yet
	host    *decide.Host // nil: none, or not known
	trouble error        // why the host is not known, or must not be believed
	foreign bool         // the Node is another provider's
}

// machineOf finds out what is known about the machine of a Node. The error is
// that of a providerID that cannot be read.
func (i *Instances) machineOf(c config.Config, node *v1.Node) (machine, error) {
	m := machine{entry: decide.EntryOf(c.Nodes.Inventory, node.Name, node.Labels), text: node.Spec.ProviderID}
	if m.text == "" && m.entry != nil {
		m.text = m.entry.ProviderID
	}
	var err error
	if m.id, err = decide.ParseProviderID(m.text); err != nil {
		return m, err
	}
	m.foreign = m.id.Form == decide.FormForeign && m.entry == nil
	switch {
	case c.Nodes.Source == config.SourceMetal3:
		i.findHost(c.Nodes.Metal3, node, &m)
	case m.text == "":
		m.text = decide.OwnProviderID(node.Name)
	}
	return m, nil
}

// findHost finds the host of a Node, and the providerID that follows from it.
func (i *Instances) findHost(c config.Metal3, node *v1.Node, m *machine) {
	if m.id.Form == decide.FormOurs || m.id.Form == decide.FormForeign {
		return // it has no host
	}
	var hosts hosts
	hosts, m.trouble = i.hosts.known(c)
	if m.id.Form != decide.FormNone {
		m.host = hosts.named(m.id)
		return
	}
	host, err := decide.HostOf(node.Name, node.Labels, hosts, c.MatchHostNames)
	if err != nil {
		m.trouble = also(m.trouble, err)
		return
	}
	m.host = &host
	id, ok := decide.MachineProviderID(host)
	if !ok {
		m.trouble = also(m.trouble, fmt.Errorf("BareMetalHost %s/%s is in use by no Metal3Machine yet", host.Namespace, host.Name))
	}
	m.text = id
}

// also adds an error to another one, or to none, in one line.
func also(before, err error) error {
	if before == nil {
		return err
	}
	return fmt.Errorf("%w; %w", before, err)
}

// describe tells what the machine is.
func (m machine) describe(c config.Config, node *v1.Node) decide.Description {
	return decide.Describe(m.entry, m.host, node.Labels, c.Nodes.Metal3)
}
