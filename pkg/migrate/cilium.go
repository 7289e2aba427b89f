package migrate

import (
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// The keys by which Cilium selects a Service by what it is.
const (
	serviceNamespace = "io.kubernetes.service.namespace"
	serviceName      = "io.kubernetes.service.name"
)

func (im *importer) cilium() {
	for _, o := range im.of("cilium.io", "CiliumLoadBalancerIPPool") {
		im.ciliumPool(o)
	}
	for _, o := range im.of("cilium.io", "CiliumL2AnnouncementPolicy") {
		im.ciliumL2(o)
	}
	for _, o := range im.of("cilium.io", "CiliumBGPPeeringPolicy") {
		im.ciliumPeering(o)
	}
	im.ciliumBGP()
}

func (im *importer) ciliumPool(o *object) {
	spec := o.part("spec")
	p := pool{old: o.name, product: config.Cilium, labels: o.labels, from: o}
	cidrs := p.ciliumBlocks(spec)
	switch edge := spec.text("allowFirstLastIPs"); {
	case edge == "No":
		p.Exclude = spec.ends("allowFirstLastIPs", cidrs)
	case edge == "" && len(cidrs) > 0:
		spec.note("allowFirstLastIPs", "not said: Cilium gives out the first and last addresses of a CIDR since 1.16, and not before. The document has them; if your version is older and they must not be used, list them under exclude")
	}
	if spec.boolean("disabled", false) {
		p.State = "draining"
	}
	spec.object("serviceSelector").ciliumServices(&p)
	finish(o, spec)
	if len(p.Addresses) == 0 {
		spec.lose("", "the pool is empty, and a pool without addresses cannot be written: it is left out")
		return
	}
	im.addPool(p)
}

// ciliumBlocks reads the addresses, and returns those that are CIDRs.
func (p *pool) ciliumBlocks(spec *object) []string {
	var cidrs []string
	for _, b := range slices.Concat(spec.items("cidrs"), spec.items("blocks")) {
		if text := b.text("cidr"); text != "" {
			block := b.address("cidr", text)
			cidrs, p.Addresses = append(cidrs, block...), append(p.Addresses, block...)
		}
		if start := b.text("start"); start != "" {
			text := start
			if stop := b.text("stop"); stop != "" && stop != start {
				text += "-" + stop
			}
			p.Addresses = append(p.Addresses, b.address("start", text)...)
		}
		b.done()
	}
	return cidrs
}

// ciliumServices reads for which Services a pool is.
func (o *object) ciliumServices(p *pool) {
	if o == nil {
		return
	}
	own, namespaces, name := splitMagic(o.selector())
	p.Namespaces, p.NamespaceSelector, p.ServiceSelector = namespaces.names, one(namespaces.selector), one(own)
	p.EnforceNamespaces = len(p.Namespaces)+len(p.NamespaceSelector) > 0
	if name != "" {
		p.AutoAssign = no()
		o.lose("", "%s: a pool for one Service is a reservation here (pools[].reservations). The pool is given out only on request, so that nobody else gets its addresses", name)
	}
	if own != "" {
		o.lose("", "kept for Services that ask for nothing; but one that asks for this pool or its addresses by name gets them whatever its labels are")
	}
}

// magic is a selection of namespaces.
type magic struct {
	names    []string
	selector string
}

// splitMagic takes apart a selector: labels of Services, their namespaces,
// and what says their names.
func splitMagic(text string) (own string, namespaces magic, name string) {
	var labels, others, names []string
	for _, r := range requirements(text) {
		switch {
		case r == serviceNamespace || strings.HasPrefix(r, serviceNamespace+"=") || strings.HasPrefix(r, serviceNamespace+" "):
			if value, ok := strings.CutPrefix(r, serviceNamespace+"="); ok {
				namespaces.names = append(namespaces.names, value)
			} else {
				others = append(others, "kubernetes.io/metadata.name"+strings.TrimPrefix(r, serviceNamespace))
			}
		case strings.Contains(r, serviceName):
			names = append(names, r)
		default:
			labels = append(labels, r)
		}
	}
	if len(others) > 0 { // all of them hold together
		for _, n := range namespaces.names {
			others = append(others, "kubernetes.io/metadata.name="+n)
		}
		namespaces.names = nil
	}
	namespaces.selector = strings.Join(others, ",")
	return strings.Join(labels, ","), namespaces, strings.Join(names, ",")
}

// requirements splits a selector at the commas that are not in parentheses.
func requirements(text string) []string {
	var out []string
	depth, begin := 0, 0
	for i, r := range text + "," {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			if i > begin {
				out = append(out, text[begin:i])
			}
			begin = i + 1
		}
	}
	return out
}

func (im *importer) ciliumL2(o *object) {
	spec := o.part("spec")
	a := advertisement{Name: o.name, product: config.Cilium, every: true, Layer2: &layer2{}}
	a.ServiceSelector = one(spec.object("serviceSelector").selector())
	a.NodeSelector = one(spec.object("nodeSelector").selector())
	a.Layer2.Interfaces = spec.interfaces("interfaces")
	if spec.boolean("externalIPs", false) {
		spec.lose("externalIPs", "spec.externalIPs of Services are not announced by us")
	}
	balancers := spec.boolean("loadBalancerIPs", false)
	finish(o, spec)
	if !balancers {
		spec.note("loadBalancerIPs", "not true: the policy announces no address of a load balancer, and there is nothing to carry over")
		return
	}
	im.adverts = append(im.adverts, a)
}
