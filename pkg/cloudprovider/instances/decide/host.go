package decide

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Kinds of what a BareMetalHost is in use by.
const (
	KindMachine = "Metal3Machine"
	KindCluster = "Cluster" // kept for the next machine of that cluster
)

// A Host is what counts of a BareMetalHost and its HardwareData.
type Host struct {
	Namespace, Name, UID string
	Labels               map[string]string
	Consumer             Consumer
	State                string // status.provisioning.state
	Registered           bool   // status.provisioning.ID is set
	PoweredOn            bool
	Operational          string       // status.operationalStatus
	Frozen               string       // why nothing that it says may be held against its machine; empty: it may
	Product              string       // as the vendor calls it
	Addresses            []netip.Addr // as inspection saw them
}

// Consumer is whom a host is in use by. The zero Consumer is nobody.
type Consumer struct {
	Kind, Namespace, Name string
}

// String names a consumer for a message.
func (c Consumer) String() string {
	if c == (Consumer{}) {
		return "nobody"
	}
	return c.Kind + " " + c.Namespace + "/" + c.Name
}

// Hosts finds hosts. The answers are in no order.
type Hosts interface {
	ByUID(uid string) []Host
	ByConsumer(name string) []Host // the name of a Metal3Machine
	ByName(name string) []Host
}

// ErrNoHost says that no host is a Node's.
var ErrNoHost = errors.New("no BareMetalHost is known for the Node: none has the UID in its label " + LabelHostUID +
	", and none is in use by a Metal3Machine of its name")

// LabelHostUID is the label of Nodes by which CAPM3 finds the one of a host.
const LabelHostUID = "metal3.io/uuid"

// HostOf returns the host of a Node that has no providerID: by the label that
// names the host's UID, else by the Metal3Machine of the Node's name, else, if
// names is set, by the host of the Node's name. More than one is an error, and
// so is none: ErrNoHost.
func HostOf(node string, labels map[string]string, hosts Hosts, names bool) (Host, error) {
	if uid := labels[LabelHostUID]; uid != "" {
		if found := hosts.ByUID(uid); len(found) > 0 {
			return only(found, "the UID "+uid)
		}
	}
	found := slices.DeleteFunc(hosts.ByConsumer(node), func(h Host) bool { return h.Consumer.Kind != KindMachine })
	if len(found) > 0 {
		return only(found, "a Metal3Machine "+node)
	}
	if names {
		if found := hosts.ByName(node); len(found) > 0 {
			return only(found, "the name "+node)
		}
	}
	return Host{}, ErrNoHost
}

func only(found []Host, what string) (Host, error) {
	if len(found) == 1 {
		return found[0], nil
	}
	var names []string
	for _, h := range found {
		names = append(names, h.Namespace+"/"+h.Name)
	}
	slices.Sort(names)
	return Host{}, fmt.Errorf("%d BareMetalHosts have %s: %s", len(found), what, strings.Join(names, ", "))
}

// EntryOf returns the entry of the inventory that is for a Node: the first
// that has its name, or selects its labels. It returns nil if there is none.
func EntryOf(inventory []config.Machine, node string, labels map[string]string) *config.Machine {
	for i, m := range inventory {
		if m.Name == node || m.Name == "" && m.Selector.Matches(labels) {
			return &inventory[i]
		}
	}
	return nil
}
