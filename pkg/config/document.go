package config

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// documentDoc is the document as read, before the checks that look at several
// values.
type documentDoc struct {
	clusterName    string
	services       Services
	pools          []placed[poolDoc]
	advertisements []placed[advertisementDoc]
	bgp            bgpDoc
	membership     Membership
	excludeLabel   ExcludeLabel
	dataPathCheck  DataPathCheck
	nodes          nodesDoc
}

// poolDoc is a Pool without the fields that have to be worked out.
type poolDoc struct {
	Pool
	name         placed[string]
	addresses    itemList
	exclude      itemList
	reservations []placed[reservationDoc]
}

type reservationDoc struct {
	service   string
	addresses itemList
}

// advertisementDoc is an Advertisement without the fields that have to be
// worked out.
type advertisementDoc struct {
	Advertisement
	name   placed[string]
	pools  []placed[string]
	layer2 placed[*Layer2]
	bgp    placed[*bgpAdvertisementDoc]
}

// documentShape describes the whole document. A new key is a line here and a
// field to read it into.
var documentShape = object(
	"a mapping with apiVersion, kind and pools", "{apiVersion: "+APIVersion+", kind: "+Kind+", pools: [{addresses: [192.0.2.100-192.0.2.150]}]}",
	func() documentDoc {
		return documentDoc{
			services:      defaultServices(),
			bgp:           defaultBGP(),
			membership:    defaultMembership(),
			excludeLabel:  HonourLabel,
			dataPathCheck: DataPathAuto,
			nodes:         defaultNodes(),
		}
	},
	required(checked[documentDoc]("apiVersion", exactly(APIVersion),
		"The version of this language.")),
	required(checked[documentDoc]("kind", exactly(Kind),
		"Says that this is a configuration.")),
	field("clusterName", clusterName(), func(d *documentDoc) *string { return &d.clusterName },
		"A name for the cluster, for people and for what names things outside of it."),
	field("services", servicesShape, func(d *documentDoc) *Services { return &d.services },
		"Which Services are ours."),
	required(field("pools", list("a list of pools", "[{addresses: [192.0.2.100-192.0.2.150]}]", withPlace(poolShape),
		listRules{empty: "without a pool no Service can get an address"}),
		func(d *documentDoc) *[]placed[poolDoc] { return &d.pools },
		"Where addresses come from. Addresses of different pools never overlap.")),
	field("advertisements", list("a list of advertisements", "[{name: lan, pools: [public], layer2: {}}]", withPlace(advertisementShape),
		listRules{empty: "remove the key to announce every pool from every eligible node"}),
		func(d *documentDoc) *[]placed[advertisementDoc] { return &d.advertisements },
		"From where addresses are announced. Without this key every pool is announced by layer 2 from all eligible nodes. Several for one pool add up."),
	field("bgp", bgpShape, func(d *documentDoc) *bgpDoc { return &d.bgp },
		"The routers to advertise addresses to. What is advertised say the advertisements with a `bgp` of their own."),
	field("membership", membershipShape, func(d *documentDoc) *Membership { return &d.membership },
		"How the announcers find each other."),
	field("excludeLabel", oneOf(HonourLabel, IgnoreLabel), func(d *documentDoc) *ExcludeLabel { return &d.excludeLabel },
		"Whether a Node with the label `node.kubernetes.io/exclude-from-external-load-balancers` announces nothing. kubeadm sets that label on control-plane nodes."),
	field("dataPathCheck", oneOf(DataPathAuto, DataPathOff), func(d *documentDoc) *DataPathCheck { return &d.dataPathCheck },
		"Whether a node whose kube-proxy says on port 10256 that it is unwell announces nothing. Where nothing answers there, nothing follows from it."),
	field("nodes", nodesShape, func(d *documentDoc) *nodesDoc { return &d.nodes },
		"What is known about the machines of the cluster, and what follows from it for their Nodes."),
)

func defaultServices() Services {
	return Services{
		LoadBalancerClass: "ccm-baremetal.io/announcer",
		HandleUnclassed:   true,
		Compatibility:     Dialects(),
		ReassignInterval:  time.Second,
	}
}

var servicesShape = object(
	"a mapping", "{handleUnclassed: false}", defaultServices,
	field("loadBalancerClass", loadBalancerClass(), func(s *Services) *string { return &s.LoadBalancerClass },
		"The `spec.loadBalancerClass` of our Services."),
	field("handleUnclassed", boolean(), func(s *Services) *bool { return &s.HandleUnclassed },
		"Also take Services that name no class."),
	field("compatibility", list("a list of products", "[metallb, kube-vip]", oneOf(Dialects()...), listRules{distinct: true}),
		func(s *Services) *[]Dialect { return &s.Compatibility },
		"Whose Service annotations are understood besides our own. An empty list: nobody's."),
	field("allowMassChange", boolean(), func(s *Services) *bool { return &s.AllowMassChange },
		"Accept a document that takes away or moves more than 20 %, and more than 5, of the addresses in use."),
	field("reassignInterval", duration(0, time.Hour, "5s"), func(s *Services) *time.Duration { return &s.ReassignInterval },
		"How long to wait between two Services that `onMismatch: reassign` moves. Until its turn has come, a Service keeps the address that it has."),
)

var poolShape = object(
	"a mapping", "{name: public, addresses: [192.0.2.0/28]}",
	func() poolDoc {
		return poolDoc{Pool: Pool{AutoAssign: true, State: Active, Order: Lowest, OnMismatch: Keep}}
	},
	field("name", withPlace(name("public")), func(p *poolDoc) *placed[string] { return &p.name },
		"The name by which Services, advertisements and metrics know the pool. One pool may go without: it is called `default`."),
	required(field("addresses", addresses("[192.0.2.10-192.0.2.60, 198.51.100.0/28]", listRules{empty: "a pool without addresses is of no use"}),
		func(p *poolDoc) *itemList { return &p.addresses },
		"The addresses, of one or both families.")),
	field("exclude", addresses("[192.0.2.20]", listRules{}), func(p *poolDoc) *itemList { return &p.exclude },
		"Addresses of the pool that are not given out. Another pool may have them."),
	field("priority", integer(math.MinInt32, math.MaxInt32, "10"), func(p *poolDoc) *int { return &p.Priority },
		"Pools with a higher priority are tried first, those with the same in the order of the document."),
	field("autoAssign", boolean(), func(p *poolDoc) *bool { return &p.AutoAssign },
		"Give addresses also to Services that do not ask for this pool or for one of its addresses."),
	field("state", oneOf(Active, Draining, Disabled), func(p *poolDoc) *PoolState { return &p.State },
		"`active` gives out addresses, `draining` nothing new, `disabled` nothing at all, not even on request."),
	field("order", oneOf(Lowest, Highest, Hashed), func(p *poolDoc) *Order { return &p.Order },
		"Which free address is given out next; `hash` is one that stays the same for a namespace/name."),
	field("avoidBuggyIPs", boolean(), func(p *poolDoc) *bool { return &p.AvoidBuggyIPs },
		"Skip IPv4 addresses that end in .0 or .255."),
	field("namespaces", list("a list of namespaces", "[web, edge]", namespace(), listRules{empty: "remove the key to allow every namespace", distinct: true}),
		func(p *poolDoc) *[]string { return &p.Namespaces },
		"Namespaces that get addresses of this pool. Together with `namespaceSelector`: those that either of them selects. Without both: all."),
	field("namespaceSelector", selector(), func(p *poolDoc) *Selector { return &p.NamespaceSelector },
		"Labels of namespaces that get addresses of this pool."),
	field("serviceSelector", selector(), func(p *poolDoc) *Selector { return &p.ServiceSelector },
		"Labels of Services that get addresses of this pool."),
	field("enforceNamespaces", boolean(), func(p *poolDoc) *bool { return &p.EnforceNamespaces },
		"Refuse requests for an address of this pool from other namespaces too."),
	field("maxPerNamespace", integer(0, math.MaxInt32, "5"), func(p *poolDoc) *int { return &p.MaxPerNamespace },
		"How many addresses of this pool a namespace may hold; 0: any number."),
	field("reservations", list("a list of reservations", "[{service: web/gw, addresses: [192.0.2.11]}]", withPlace(reservationShape), listRules{}),
		func(p *poolDoc) *[]placed[reservationDoc] { return &p.reservations },
		"Addresses of the pool that are kept for one Service each."),
	field("onMismatch", oneOf(Keep, Reassign), func(p *poolDoc) *OnMismatch { return &p.OnMismatch },
		"What happens to an address in use that no longer fits the rules of this pool: `keep` leaves it and says so in a condition, `reassign` replaces it."),
)

var reservationShape = object(
	"a mapping", "{service: web/gw, addresses: [192.0.2.11]}",
	func() reservationDoc { return reservationDoc{} },
	required(field("service", service(), func(r *reservationDoc) *string { return &r.service },
		"The Service, as namespace/name. It need not exist.")),
	required(field("addresses", addresses("[192.0.2.11]", listRules{empty: "a reservation without addresses is of no use"}),
		func(r *reservationDoc) *itemList { return &r.addresses },
		"The addresses.")),
)

var advertisementShape = anyOf(object(
	"a mapping with layer2, bgp or both", "{name: lan, pools: [public], layer2: {}}",
	func() advertisementDoc { return advertisementDoc{} },
	field("name", withPlace(name("lan")), func(a *advertisementDoc) *placed[string] { return &a.name },
		"The name by which messages know the advertisement. One may go without: it is called `default`."),
	field("pools", list("a list of names of pools", "[public]", withPlace(reference("public")), listRules{empty: "remove the key to announce all pools", distinct: true}),
		func(a *advertisementDoc) *[]placed[string] { return &a.pools },
		"The pools. Without this key: all."),
	field("serviceSelector", selector(), func(a *advertisementDoc) *Selector { return &a.ServiceSelector },
		"Labels of the Services whose addresses are announced."),
	field("nodeSelector", selector(), func(a *advertisementDoc) *Selector { return &a.NodeSelector },
		"Labels of the Nodes that announce."),
	field("layer2", withPlace(pointer(layer2Shape)), func(a *advertisementDoc) *placed[*Layer2] { return &a.layer2 },
		"Announce by ARP and NDP. `{}` takes the defaults."),
	field("bgp", withPlace(pointer(bgpAdvertisementShape)), func(a *advertisementDoc) *placed[*bgpAdvertisementDoc] { return &a.bgp },
		"Advertise to routers. `{}` takes the defaults: to all peers, without communities."),
), "layer2", "bgp")

func defaultLayer2() Layer2 {
	return Layer2{GratuitousRefresh: time.Minute, ConflictDetection: ConflictWarn}
}

var layer2Shape = object(
	"a mapping", "{}", defaultLayer2,
	field("interfaces", list("a list of interface names or globs", `["bond0", "eth*"]`, interfacePattern(),
		listRules{empty: "remove the key to choose the link by the address", distinct: true}),
		func(l *Layer2) *[]string { return &l.Interfaces },
		"Links to announce on, by exact name or glob (`*`, `?`, `[a-z]`). Without this key: the link whose subnet holds the address."),
	field("gratuitousRefresh", duration(5*time.Second, time.Hour, "60s"), func(l *Layer2) *time.Duration { return &l.GratuitousRefresh },
		"How often an owner repeats its announcement."),
	field("conflictDetection", oneOf(ConflictOff, ConflictWarn, ConflictRefuse), func(l *Layer2) *ConflictDetection { return &l.ConflictDetection },
		"What to do about a foreign MAC that answers for an address: nothing, say so, or not announce it."),
)

func defaultMembership() Membership {
	return Membership{Port: 7956, Detection: Fast, Settle: 30 * time.Second, Quorum: QuorumOff}
}

var membershipShape = object(
	"a mapping", "{detection: fast}", defaultMembership,
	field("port", integer(1, 65535, "7956"), func(m *Membership) *int { return &m.Port },
		"The UDP and TCP port of the gossip between announcers. A change takes effect when an announcer restarts."),
	field("advertise", gossipNetwork(), func(m *Membership) *string { return &m.Advertise },
		"A CIDR that picks the gossip address of Nodes with several. Without it: the Node's first InternalIP."),
	field("detection", oneOf(Rapid, Fast, LAN, WAN), func(m *Membership) *Detection { return &m.Detection },
		"How soon a silent announcer is taken for dead. Machines that are live-migrated use `lan`."),
	field("settle", duration(0, 10*time.Minute, "30s"), func(m *Membership) *time.Duration { return &m.Settle },
		"How long a node that comes back leaves addresses to others; each further unplanned departure within six hours makes it four times as long, an hour at most. `0s`: not at all."),
	field("quorum", oneOf(QuorumOff, QuorumMajority), func(m *Membership) *Quorum { return &m.Quorum },
		"What announcers do that see no more than half of the announcers: with `off` they ask the network before they take an address over, with `majority` they announce nothing."),
)

var nameSyntax = map[string]any{"pattern": `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`, "maxLength": validation.DNS1123SubdomainMaxLength}

// name is the name of a pool or advertisement, by the rules for names of
// Kubernetes objects.
func name(example string) shape[string] {
	return text("a name", example, func(s string) string {
		if len(validation.IsDNS1123Subdomain(s)) == 0 {
			return ""
		}
		return "is no valid name: lower-case letters, digits, - and . are allowed, a letter or digit first and last, 253 characters at most"
	}, nameSyntax)
}

// reference is the name of something in the document, which tells by itself
// whether it is right.
func reference(example string) shape[string] {
	return text("a name", example, func(string) string { return "" }, nil)
}

func namespace() shape[string] {
	return text("the name of a namespace", "web", func(s string) string {
		if len(validation.IsDNS1123Label(s)) == 0 {
			return ""
		}
		return "is no name of a namespace: lower-case letters, digits and - are allowed, a letter or digit first and last, 63 characters at most"
	}, map[string]any{"pattern": `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`, "maxLength": validation.DNS1123LabelMaxLength})
}

func clusterName() shape[string] {
	return text("a name", "prod-a", func(s string) string {
		if s != "" && len(validation.IsValidLabelValue(s)) == 0 {
			return ""
		}
		return "is no valid name: letters, digits, -, _ and . are allowed, a letter or digit first and last, 63 characters at most"
	}, map[string]any{"pattern": `^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`, "maxLength": validation.LabelValueMaxLength})
}

func loadBalancerClass() shape[string] {
	return text("a class", "ccm-baremetal.io/announcer", func(s string) string {
		if faults := validation.IsQualifiedName(s); len(faults) > 0 {
			return "is no class: it is like a label's key, for example example.com/internal"
		}
		return ""
	}, map[string]any{"pattern": `^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`})
}

func service() shape[string] {
	return text("a Service as namespace/name", "web/gw", func(s string) string {
		namespace, name, _ := strings.Cut(s, "/")
		if len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Label(name)) == 0 {
			return ""
		}
		return "names no Service: it is written namespace/name, for example web/gw"
	}, map[string]any{"pattern": `^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$`})
}

// longestInterface is Linux's IFNAMSIZ without the final NUL.
const longestInterface = 15

var regularExpression = regexp.MustCompile(`^\^|\$$|\][+*]|\)[+*?]`)

func interfacePattern() shape[string] {
	return text("an interface name or glob", `"eth*"`, func(s string) string {
		_, err := path.Match(s, "")
		switch {
		case s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/: \t\r\n"):
			return "is no interface name: blanks, / and : cannot be in one"
		case regularExpression.MatchString(s):
			return "looks like a regular expression: these are globs, such as eth* or eth[0-9]"
		case err != nil:
			return "is no valid glob: " + err.Error()
		case !strings.ContainsAny(s, `*?[\`) && len(s) > longestInterface:
			return fmt.Sprintf("is too long for an interface name: Linux has %d characters at most", longestInterface)
		}
		return ""
	}, map[string]any{"pattern": `^[^/: \t\r\n]+$`})
}

func gossipNetwork() shape[string] {
	return text("a CIDR", "10.0.0.0/8", func(s string) string {
		if s == "" {
			return ""
		}
		return cidrFault(s)
	}, map[string]any{"pattern": `^([0-9A-Fa-f.:]+/[0-9]+)?$`})
}
