package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// shutdownTaint is that of a Node whose machine is off.
const shutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"

// metal3 is the configuration of the shared installation with hosts.
const metal3 = document + `nodes:
  source: metal3
  deleteGone: %t
  goneAfter: 10s
  offAfter: 5s
  metal3: {namespace: hosts, kubeconfigSecret: %s, hostAddresses: true, labels: [rack]}
`

// goneAfter is that of the configuration.
const goneAfter = 10 * time.Second

const managementSecret = "ccm-baremetal-management"

// A row is one of the decision table: a host, and what becomes of the NotReady
// Node of the same name.
type row struct {
	host
	providerID string // default: the form of CAPM3, for the Metal3Machine of the Node's name
	absent     bool   // there is no such host
	gone       string // the reason for which the machine seems to be gone
	unknown    string // the reason for which nothing is known
	shut       bool   // the Node is tainted as one that is off
}

func (r row) id() string {
	return orElse(r.providerID, "metal3://"+hostNamespace+"/"+r.name+"/"+r.name)
}

const paused = "baremetalhost.metal3.io/paused"

// table holds every row. Where a host has no consumer, nobody uses it.
var table = []row{
	{host: used("row-provisioned", "")},
	{host: used("row-adopted", "externally provisioned")},
	{host: used("row-provisioning", "provisioning")},
	{host: used("row-servicing", "servicing")},
	{host: used("row-registering", "registering")},
	{host: used("row-inspecting", "inspecting")},
	{host: used("row-preparing", "preparing")},
	{host: used("row-available-used", "available")},
	{host: host{name: "row-foreign-consumer", consumer: [2]string{"Something", "else"}}},
	{host: host{name: "row-absent"}, absent: true},
	{host: host{name: "row-foreign"}, absent: true, providerID: "other://row-foreign"},
	{host: host{name: "row-available", state: "available"}, gone: "HostDeprovisioned"},
	{host: used("row-deprovisioning", "deprovisioning"), gone: "HostDeprovisioned"},
	{host: used("row-powering-off", "powering off before delete"), gone: "HostDeprovisioned"},
	{host: used("row-deleting", "deleting"), gone: "HostDeprovisioned"},
	{host: host{name: "row-other-machine", consumer: [2]string{"Metal3Machine", "other"}}, gone: "HostTaken"},
	{host: host{name: "row-reuse", consumer: [2]string{"Cluster", "prod"}}, gone: "HostTaken"},
	{host: used("row-new-state", "levitating"), unknown: "HostUnsettled"},
	{host: frozen("row-paused", paused), unknown: "HostFrozen"},
	{host: frozen("row-detached", "baremetalhost.metal3.io/detached"), unknown: "HostFrozen"},
	{host: frozen("row-moved", "clusterctl.cluster.x-k8s.io/block-move"), unknown: "HostFrozen"},
	{host: host{name: "row-detaching", state: "deprovisioning", operational: "detached"}, unknown: "HostFrozen"},
	{host: host{name: "row-pivoted"}, absent: true, providerID: "metal3://3a0b1c7e-5a4d-4f0e-9a6d-0d6c7f1f2e11", unknown: "HostMismatch"},
	{host: used("row-other-uid", ""), providerID: "baremetalhost:///hosts/row-other-uid/3a0b1c7e-5a4d-4f0e-9a6d-0d6c7f1f2e11", unknown: "HostMismatch"},
	{host: host{name: "row-off", off: true, consumer: [2]string{"Metal3Machine", "row-off"}}, shut: true},
	{host: host{name: "row-off-error", off: true, operational: "error", consumer: [2]string{"Metal3Machine", "row-off-error"}}},
	{host: host{name: "row-off-paused", off: true, annotation: paused, consumer: [2]string{"Metal3Machine", "row-off-paused"}}, unknown: "HostFrozen"},
}

// used is a host in use by the Metal3Machine of its Node.
func used(name, state string) host {
	return host{name: name, state: state, consumer: [2]string{"Metal3Machine", name}}
}

// frozen is a host that would be evidence, if it were to be believed.
func frozen(name, annotation string) host {
	return host{name: name, state: "deprovisioning", annotation: annotation}
}

// Every row of the decision table, with the real API servers: what is said of
// the Nodes, which are tainted, and which are deleted, once that is allowed. The
// management cluster dies at each stage; Services notice nothing of all that.
func TestB155MachinesOfMetal3(t *testing.T) {
	atRest(t)
	s, a, o := serving(t, "metal3")
	restore(t)
	management, client := managed(t)
	for _, r := range table {
		if !r.absent {
			put(t, client, r.host)
		}
	}
	inspected(t, client, host{name: "row-provisioned", address: "192.0.2.81"})
	began := time.Now()

	// Down before anything was read: who has a providerID does not wait.
	must(t, management.Stop())
	enforce(t, fmt.Sprintf(metal3, false, managementSecret))
	var all []string
	for i, r := range table {
		joinAs(t, r.name, r.id(), fmt.Sprintf("198.51.100.%d", 20+i))
		all = append(all, r.name)
	}
	joinAs(t, "row-new", "", "198.51.100.90")
	initialized(t, slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == "row-foreign" })...)
	waitEvent(t, "", "row-new", "Warning NodeNotInitialized")
	if n := node(t, "row-new"); !tainted(n, cloudTaint) {
		t.Error("a Node was initialized without its host being known")
	}

	must(t, management.Start(bounded(t)))
	put(t, client, host{name: "host-new", consumer: [2]string{"Metal3Machine", "row-new"}})
	initialized(t, "row-new")
	if n := node(t, "row-new"); n.Spec.ProviderID != "metal3://hosts/host-new/row-new" {
		t.Errorf("a Node that had none has the providerID %q", n.Spec.ProviderID)
	}
	labels(t, "row-provisioned", map[string]string{
		"topology.kubernetes.io/region": "dc1", "rack": "a7", "node.kubernetes.io/instance-type": "PowerEdge-R650-SKU-NotProvided",
	})

	for _, r := range table {
		must(t, cluster.SetNodeReady(bounded(t), r.name, false))
	}
	judged(t, table)
	deletionsSurviveOutages(t, management, len(all))
	must(t, cluster.SetNodeReady(bounded(t), "row-off", true))
	eventually(t, "the taint of a Node that is back to go", func(context.Context) error {
		if tainted(node(t, "row-off"), shutdownTaint) {
			return errors.New("it is there")
		}
		return nil
	})

	if n := serviceWrites(t, began); n != 0 {
		t.Errorf("%d writes to Services", n)
	}
	if macs := o.MACs(began, time.Now()); len(macs) != 1 {
		t.Errorf("%s of %s was answered by %v", a, s.Name, macs)
	}
}

// labels waits until a Node has labels.
func labels(t *testing.T, name string, want map[string]string) {
	t.Helper()
	eventually(t, fmt.Sprintf("labels of %s", name), func(context.Context) error {
		have := node(t, name).Labels
		for key, value := range want {
			if have[key] != value {
				return fmt.Errorf("%s is %q: %v", key, have[key], have)
			}
		}
		return nil
	})
}

// judged waits until every row has got its verdict, and then some time for
// others that it must not have.
func judged(t *testing.T, rows []row) {
	t.Helper()
	eventually(t, "the verdicts", func(ctx context.Context) error {
		var missing []error
		for _, r := range rows {
			missing = append(missing, unjudged(t, r))
		}
		return errors.Join(missing...)
	})
	time.Sleep(goneAfter + 2*time.Second)
	for _, r := range rows {
		n := node(t, r.name)
		if tainted(n, shutdownTaint) != r.shut {
			t.Errorf("%s: its taints are %v", r.name, n.Spec.Taints)
		}
		if e := suspected(t, r.name); (e != "") != (r.gone != "") {
			t.Errorf("%s: %q", r.name, e)
		}
		if n.Spec.ProviderID != r.id() {
			t.Errorf("%s: its providerID has become %s", r.name, n.Spec.ProviderID)
		}
	}
}

// unjudged says what of its verdict a row does not have yet.
func unjudged(t *testing.T, r row) error {
	switch {
	case r.gone != "" && !strings.Contains(suspected(t, r.name), r.gone):
		return fmt.Errorf("%s: no event with %s", r.name, r.gone)
	case r.unknown != "" && !logged(fmt.Sprintf("node %s: whether its machine exists is not known: %s", r.name, r.unknown)):
		return fmt.Errorf("%s: nothing is said of %s", r.name, r.unknown)
	case r.shut && !tainted(node(t, r.name), shutdownTaint):
		return fmt.Errorf("%s: no taint", r.name)
	}
	return nil
}

// suspected returns the event that says that a Node may be deleted.
func suspected(t *testing.T, node string) string {
	t.Helper()
	for _, e := range events(t, "", node) {
		if strings.Contains(e, "PossibleNodeDeletion") {
			return e
		}
	}
	return ""
}

// logged tells whether one of the CCMs has said something.
func logged(text string) bool {
	return slices.ContainsFunc(cluster.Processes(), func(p *lab.Process) bool {
		return strings.HasPrefix(p.Name, product.CCM) && strings.Contains(p.Log(), text)
	})
}

// deletionsSurviveOutages lets Nodes be deleted, of which some are due at once,
// while the management cluster is away and after it is back: none in the outage
// and for goneAfter after it, and then no more than a tenth, all of them gone.
func deletionsSurviveOutages(t *testing.T, management *lab.Management, rows int) {
	t.Helper()
	overlay(t, "delete-nodes")
	var back time.Time
	for range times(1, 5) {
		must(t, management.Stop())
		enforce(t, fmt.Sprintf(metal3, true, managementSecret))
		time.Sleep(goneAfter + 2*time.Second)
		if left := present(t); len(left) != rows {
			t.Fatalf("of %d Nodes these are left in an outage: %v", rows, left)
		}
		back = time.Now()
		must(t, management.Start(bounded(t)))
	}
	limit := (rows + 1 + nodes) / 10
	eventually(t, "deletions", func(context.Context) error {
		if left := present(t); len(left) > rows-limit {
			return fmt.Errorf("%d of %d Nodes are left", len(left), rows)
		}
		return nil
	})
	deletedAfter(t, back.Add(goneAfter))
	time.Sleep(6 * time.Second) // another look at each Node
	left := present(t)
	if len(left) != rows-limit {
		t.Errorf("%d Nodes were deleted, and a tenth are %d", rows-len(left), limit)
	}
	for _, r := range table {
		switch here := slices.Contains(left, r.name); {
		case !here && r.gone == "":
			t.Errorf("%s was deleted", r.name)
		case here && r.gone != "":
			waitEvent(t, "", r.name, "NodeDeletionHeld")
		}
	}
}

// deletedAfter fails the test if the CCM has deleted a Node before a time: what
// was seen before an outage does not count after it.
func deletedAfter(t *testing.T, earliest time.Time) {
	t.Helper()
	log, err := cluster.Audit(time.Time{})
	must(t, err)
	for _, e := range log.User(product.Namespace + "/" + product.CCM).Verb("delete").On("nodes") {
		if e.Time.Before(earliest) {
			t.Errorf("%s was deleted %s too early", e.Name, earliest.Sub(e.Time))
		}
	}
}

// present returns the names of the Nodes of the table that exist.
func present(t *testing.T) []string {
	t.Helper()
	list, err := cluster.Client().CoreV1().Nodes().List(bounded(t), metav1.ListOptions{})
	must(t, err)
	var found []string
	for _, n := range list.Items {
		if slices.ContainsFunc(table, func(r row) bool { return r.name == n.Name }) {
			found = append(found, n.Name)
		}
	}
	return found
}
