package config

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// nodesDoc is a Nodes without the fields that have to be worked out.
type nodesDoc struct {
	Nodes
	source    placed[NodeSource]
	inventory []placed[machineDoc]
	internal  []string
	external  []string
	exclude   itemList
	metal3    *Metal3
}

// machineDoc is a Machine without the fields that have to be worked out.
type machineDoc struct {
	Machine
	name       placed[string]
	selector   *placed[Selector]
	providerID placed[string]
	addresses  []placed[string]
}

func defaultNodes() nodesDoc {
	return nodesDoc{
		Nodes:  Nodes{GoneAfter: 5 * time.Minute, GoneSightings: 3, OffAfter: 90 * time.Second},
		source: placed[NodeSource]{value: SourceStatic},
	}
}

var nodesShape = object(
	"a mapping", "{inventory: [{name: node-1, zone: rack1}]}", defaultNodes,
	field("source", showPlaced(oneOf(SourceStatic, SourceMetal3)), func(n *nodesDoc) *placed[NodeSource] { return &n.source },
		"Where machines are known from, besides `inventory`: `static` takes what the Node itself says, `metal3` asks the BareMetalHosts of a management cluster."),
	field("inventory", list("a list of machines", "[{name: node-1, zone: rack1}]", withPlace(machineShape), listRules{}),
		func(n *nodesDoc) *[]placed[machineDoc] { return &n.inventory },
		"What is known about machines. It comes before what any source says. The first entry that is for a Node counts."),
	field("internalCIDRs", list("a list of CIDRs", "[10.0.0.0/8]", cidr(), listRules{empty: "remove the key to filter nothing", distinct: true}),
		func(n *nodesDoc) *[]string { return &n.internal },
		"Networks whose addresses are InternalIPs. Together with `externalCIDRs`: addresses of the inventory and of hosts that are in neither are left out."),
	field("externalCIDRs", list("a list of CIDRs", "[203.0.113.0/24]", cidr(), listRules{empty: "remove the key to filter nothing", distinct: true}),
		func(n *nodesDoc) *[]string { return &n.external },
		"Networks whose addresses are ExternalIPs."),
	field("excludeAddresses", addresses("[192.0.2.5]", listRules{}), func(n *nodesDoc) *itemList { return &n.exclude },
		"Addresses that are never a Node's, although one may have them for a while: that of the control plane. Those of Services need not be named."),
	field("deleteGone", boolean(), func(n *nodesDoc) *bool { return &n.DeleteGone },
		"Delete a Node when its machine is gone for certain. Otherwise the event `PossibleNodeDeletion` is all. It also takes the right to delete Nodes: `manifests/delete-nodes`."),
	field("goneAfter", duration(10*time.Second, 24*time.Hour, "5m"), func(n *nodesDoc) *time.Duration { return &n.GoneAfter },
		"For how long the machine must have been gone, and its Node not Ready, before the Node is deleted."),
	field("goneSightings", integer(2, 1000, "3"), func(n *nodesDoc) *int { return &n.GoneSightings },
		"How often in a row the machine must have been seen to be gone as well. Nodes that are not Ready are looked at every five seconds."),
	field("offAfter", duration(5*time.Second, time.Hour, "90s"), func(n *nodesDoc) *time.Duration { return &n.OffAfter },
		"For how long Metal3 must have said that the machine is off before its Node gets the taint of a shutdown. What Metal3 knows of power is up to a minute old."),
	field("metal3", pointer(metal3Shape), func(n *nodesDoc) **Metal3 { return &n.metal3 },
		"How the BareMetalHosts are reached and read; for `source: metal3`."),
)

var machineShape = object(
	"a mapping", "{name: node-1, zone: rack1}",
	func() machineDoc { return machineDoc{} },
	field("name", withPlace(name("node-1")), func(m *machineDoc) *placed[string] { return &m.name },
		"The Node that the entry is for. It need not exist."),
	field("selector", pointer(withPlace(selector())), func(m *machineDoc) **placed[Selector] { return &m.selector },
		"Labels of the Nodes that the entry is for, instead of `name`. It matches before and after our own labels are set."),
	field("providerID", withPlace(providerID()), func(m *machineDoc) *placed[string] { return &m.providerID },
		"What `spec.providerID` becomes if the Node has none yet: it is never changed. Without this key: `baremetal://` and the Node's name, or what the source says."),
	field("addresses", list("a list of addresses", "[192.0.2.11]", withPlace(machineAddress()), listRules{}),
		func(m *machineDoc) *[]placed[string] { return &m.addresses },
		"The machine's addresses. Those that the kubelet was given by `--node-ip` need not be named, and come first. Without them these are InternalIPs, next to them ExternalIPs, unless the CIDRs say otherwise."),
	field("zone", labelValue("rack1"), func(m *machineDoc) *string { return &m.Zone },
		"The label `topology.kubernetes.io/zone`."),
	field("region", labelValue("dc1"), func(m *machineDoc) *string { return &m.Region },
		"The label `topology.kubernetes.io/region`."),
	field("instanceType", labelValue("r650"), func(m *machineDoc) *string { return &m.InstanceType },
		"The label `node.kubernetes.io/instance-type`."),
	field("labels", labelMap(), func(m *machineDoc) *map[string]string { return &m.Labels },
		"More labels. One that is removed here is removed from the Node too. Keys under kubernetes.io and k8s.io are not ours to set."),
	field("decommissioned", boolean(), func(m *machineDoc) *bool { return &m.Decommissioned },
		"The machine is gone for good, and its Node may be deleted (see `deleteGone`). That an entry is missing says nothing."),
)

func defaultMetal3() Metal3 {
	return Metal3{
		ZoneLabel:             "infrastructure.cluster.x-k8s.io/failure-domain",
		RegionLabel:           "topology.kubernetes.io/region",
		InstanceTypeLabel:     "node.kubernetes.io/instance-type",
		InitializeWithoutHost: true,
		OnMissingHost:         MissingKeep,
	}
}

var metal3Shape = object(
	"a mapping", "{namespace: hosts, kubeconfigSecret: ccm-baremetal-management}", defaultMetal3,
	field("kubeconfigSecret", name("ccm-baremetal-management"), func(m *Metal3) *string { return &m.KubeconfigSecret },
		"The Secret, in the namespace of ccm-baremetal, with the kubeconfig of the management cluster under the key `value` or `kubeconfig`. It is read again when the cluster cannot be reached. Without this key the hosts are in this very cluster."),
	required(field("namespace", namespace(), func(m *Metal3) *string { return &m.Namespace },
		"The namespace of the BareMetalHosts.")),
	field("zoneLabel", labelKey("infrastructure.cluster.x-k8s.io/failure-domain"), func(m *Metal3) *string { return &m.ZoneLabel },
		"The label of a host that becomes the Node's zone."),
	field("regionLabel", labelKey("topology.kubernetes.io/region"), func(m *Metal3) *string { return &m.RegionLabel },
		"The label of a host that becomes the Node's region."),
	field("instanceTypeLabel", labelKey("node.kubernetes.io/instance-type"), func(m *Metal3) *string { return &m.InstanceTypeLabel },
		"The label of a host that becomes the Node's instance type. Without it: the product name that inspection found."),
	field("labels", list("a list of label keys or globs", `["rack", "example.com/*"]`, labelPattern(), listRules{distinct: true}),
		func(m *Metal3) *[]string { return &m.Labels },
		"Labels of a host that its Node gets as well, by key or glob. Keys under kubernetes.io and k8s.io are not ours to set."),
	field("hostAddresses", boolean(), func(m *Metal3) *bool { return &m.HostAddresses },
		"Take the addresses that inspection saw as addresses of the machine. They are those of the provisioning network, so filter by `internalCIDRs` and `externalCIDRs`."),
	field("matchHostNames", boolean(), func(m *Metal3) *bool { return &m.MatchHostNames },
		"Take the host for a Node's that has the Node's name, when nothing else tells."),
	field("initializeWithoutHost", boolean(), func(m *Metal3) *bool { return &m.InitializeWithoutHost },
		"Do not let a Node whose kubelet has set the providerID wait for its host: labels of the host follow when it is known."),
	field("onMissingHost", oneOf(MissingKeep, MissingDelete), func(m *Metal3) *OnMissingHost { return &m.OnMissingHost },
		"What it means when the host of a Node is not there: `keep`, nothing, because hosts move between management clusters while their machines run; `delete`, that the machine is gone."),
)

// showPlaced is withPlace for a value that is shown as a default.
func showPlaced[T any](s shape[T]) shape[placed[T]] {
	with := withPlace(s)
	with.plain = func(p placed[T]) any { return s.plain(p.value) }
	return with
}

var schemeOf = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^\s]+$`)

func providerID() shape[string] {
	return text("a provider ID", `"baremetal://rack1-u7"`, func(s string) string {
		if schemeOf.MatchString(s) {
			return ""
		}
		return "is no provider ID: it is written scheme://id, for example baremetal://rack1-u7"
	}, map[string]any{"pattern": `^[a-z][a-z0-9+.-]*://[^\s]+$`})
}

func machineAddress() shape[string] {
	return text("an address", "192.0.2.11", func(s string) string {
		addr, err := parseAddr(s)
		switch {
		case strings.ContainsAny(s, "/-,"):
			return "is more than one address: each is an entry of its own"
		case err != nil:
			return "cannot be read: " + err.Error()
		case SpecialPurpose(addr) != "":
			return "is no address of a machine: " + SpecialPurpose(addr)
		}
		return ""
	}, map[string]any{"pattern": `^[0-9A-Fa-f.:]+$`})
}

func cidr() shape[string] {
	return text("a CIDR", "10.0.0.0/8", cidrFault, map[string]any{"pattern": `^[0-9A-Fa-f.:]+/[0-9]+$`})
}

func cidrFault(s string) string {
	prefix, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return "is no CIDR, for example 10.0.0.0/8"
	case prefix.Masked() != prefix:
		return fmt.Sprintf("has host bits set: write %s", prefix.Masked())
	}
	return ""
}

var labelValueSyntax = map[string]any{"pattern": `^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`, "maxLength": validation.LabelValueMaxLength}

func labelValue(example string) shape[string] {
	return text("the value of a label", example, func(s string) string {
		if s == "" {
			return "is empty: remove the key to say nothing"
		}
		return labelValueFault(s)
	}, labelValueSyntax)
}

func labelValueFault(s string) string {
	if len(validation.IsValidLabelValue(s)) == 0 {
		return ""
	}
	return "is no value of a label: letters, digits, -, _ and . are allowed, a letter or digit first and last, 63 characters at most"
}

func labelKey(example string) shape[string] {
	return text("the key of a label", example, labelKeyFault, map[string]any{"pattern": `^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`})
}

func labelKeyFault(s string) string {
	if len(validation.IsQualifiedName(s)) == 0 {
		return ""
	}
	return "is no key of a label, for example example.com/rack"
}

var kubernetesDomain = regexp.MustCompile(`(^|\.)(kubernetes|k8s)\.io/`)

// ReservedLabel tells whether the key of a label belongs to Kubernetes itself:
// cloud providers leave those alone, but for zone, region and instance type.
func ReservedLabel(key string) bool { return kubernetesDomain.MatchString(key) }

func labelPattern() shape[string] {
	return text("the key of a label, or a glob", `"example.com/*"`, func(s string) string {
		switch _, err := path.Match(s, ""); {
		case s == "":
			return "is empty"
		case err != nil:
			return "is no valid glob: " + err.Error()
		case ReservedLabel(s):
			return "belongs to Kubernetes: only zone, region and instance type are set, by their own keys"
		}
		return ""
	}, map[string]any{"minLength": 1})
}

// labelMap is a mapping of labels.
func labelMap() shape[map[string]string] {
	s := spec{
		what: "a mapping of labels", example: "{rack: a7}",
		schema: map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
	}
	value := text("the value of a label", "a7", labelValueFault, nil)
	return shape[map[string]string]{spec: s, read: func(d *decoder, n node) (map[string]string, bool) {
		if n.Kind != yaml.MappingNode {
			d.mismatch(n, s)
			return nil, false
		}
		labels := map[string]string{}
		for i, child := range n.entries() {
			at := child.place()
			at.line, at.column = n.Content[2*i].Line, n.Content[2*i].Column
			fault := labelKeyFault(child.name)
			switch _, twice := labels[child.name]; {
			case fault != "":
				d.fail(at, "%s %s", quote(child.name), fault)
				continue
			case twice:
				d.fail(at, "the label %s is given twice", quote(child.name))
				continue
			case ReservedLabel(child.name):
				d.fail(at, "%s belongs to Kubernetes: only zone, region and instance type are set, by their own keys", quote(child.name))
			}
			if v, ok := value.from(d, child); ok {
				labels[child.name] = v
			}
		}
		return labels, true
	}}
}

// nodes works out the section, with the checks that need several values.
func (d *decoder) nodes(doc nodesDoc, pools []Pool) Nodes {
	nodes := doc.Nodes
	nodes.Source = doc.source.value
	nodes.InternalCIDRs, nodes.ExternalCIDRs = prefixes(doc.internal), prefixes(doc.external)
	nodes.Exclude = union(doc.exclude.items).Ranges()
	seen := claims{}
	for _, m := range doc.inventory {
		nodes.Inventory = append(nodes.Inventory, d.machine(m, pools, seen))
	}
	switch {
	case doc.metal3 != nil:
		nodes.Metal3 = *doc.metal3
	case nodes.Source == SourceMetal3:
		d.fail(doc.source.place, "metal3 needs to know where the hosts are; for example metal3: %s", metal3Shape.example)
	}
	return nodes
}

func prefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		if prefix, err := netip.ParsePrefix(s); err == nil {
			out = append(out, prefix)
		}
	}
	return out
}

// claims is what entries of the inventory have claimed for themselves.
type claims map[string]place

// take reports a claim that another entry has made before.
func (c claims) take(d *decoder, what string, value placed[string]) {
	key := what + " " + value.value
	if before, taken := c[key]; taken {
		d.fail(value.place, "the %s %s is taken already: by %s", what, quote(value.value), before)
		return
	}
	c[key] = value.place
}

// machine works out one entry of the inventory.
func (d *decoder) machine(m placed[machineDoc], pools []Pool, seen claims) Machine {
	doc, machine := m.value, m.value.Machine
	machine.Name, machine.ProviderID = doc.name.value, doc.providerID.value
	switch {
	case doc.selector != nil && machine.Name != "":
		d.fail(doc.selector.place, "an entry is for one Node by its name, or for several by a selector, not both")
	case doc.selector != nil && len(doc.selector.value) == 0:
		d.fail(doc.selector.place, "is empty and would select every Node; if that is meant, write \"kubernetes.io/hostname\"")
	case doc.selector != nil && (machine.ProviderID != "" || len(doc.addresses) > 0):
		d.fail(m.place, "providerID and addresses are those of one machine: give its name, not a selector")
	case doc.selector != nil:
		machine.Selector = doc.selector.value
	case machine.Name == "":
		d.fail(m.place, "has neither a name nor a selector: nobody knows which Node it is for")
	default:
		seen.take(d, "Node", doc.name)
	}
	if machine.ProviderID != "" {
		seen.take(d, "provider ID", doc.providerID)
	}
	for _, a := range doc.addresses {
		addr, err := parseAddr(strings.TrimSpace(a.value))
		if err != nil || SpecialPurpose(addr) != "" {
			continue // that has been said
		}
		seen.take(d, "address", placed[string]{a.place, addr.String()})
		if pool, found := (Config{Pools: pools}).PoolOf(addr); found {
			d.fail(a.place, "%s is in the pool %s: the address of a machine is never given out, exclude it there", addr, pool.Name)
		}
		machine.Addresses = append(machine.Addresses, addr)
	}
	return machine
}
