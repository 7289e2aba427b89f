package migrate

import (
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

func (im *importer) purelb() {
	groups := im.of("purelb.io", "ServiceGroup")
	if len(groups) == 0 {
		return
	}
	local := false
	for _, o := range groups {
		spec := o.part("spec")
		local = im.pureGroup(o, spec) || local
		spec.drop("addresses that NetBox gives out cannot be carried over: list them", "netbox")
		finish(o, spec)
	}
	links := im.pureLinks()
	if local {
		im.adverts = append(im.adverts, advertisement{Name: "layer2", product: config.PureLB, every: true, Layer2: &layer2{Interfaces: links}})
	}
}

// pureGroup carries over a group, and tells whether there is a pool in it.
func (im *importer) pureGroup(o, spec *object) bool {
	p := pool{old: o.name, product: config.PureLB, labels: o.labels, from: o}
	if o.name != "default" {
		p.AutoAssign = no()
		o.note("", "as in the source, this pool is for Services that ask for it; without a wish they get the one called default")
	}
	for _, key := range []string{"local", "remote"} {
		part := spec.object(key)
		if part == nil {
			continue
		}
		p.pureRanges(part)
		part.drop("a Service has one address of a family", "multiPool", "balancePools")
		part.done()
		if key == "remote" {
			part.lose("", "addresses that are on no link of the nodes are advertised to routers: write bgp.peers and an advertisement with bgp for this pool; the document announces it by layer 2")
		}
	}
	if len(p.Addresses) == 0 {
		spec.lose("", "there are no addresses in the group: it is left out")
		return false
	}
	im.addPool(p)
	return true
}

// pureRanges reads addresses in all forms that there have been.
func (p *pool) pureRanges(part *object) {
	ranges := slices.Concat(part.items("v4pools"), part.items("v6pools"))
	for _, key := range []string{"v4pool", "v6pool"} {
		if one := part.object(key); one != nil {
			ranges = append(ranges, one)
		}
	}
	if part.has("pool") {
		p.pureRange(part)
	}
	for _, r := range ranges {
		p.pureRange(r)
		r.done()
	}
}

func (p *pool) pureRange(o *object) {
	if text := o.text("pool"); text != "" {
		p.Addresses = append(p.Addresses, o.address("pool", text)...)
	}
	o.skip("subnet")
	if a := o.text("aggregation"); a != "" && a != "default" {
		o.lose("aggregation", "the length of a route to routers is a matter of an advertisement: bgp.aggregationLength")
	}
}

// pureLinks reads on which links PureLB answers; nil means the default.
func (im *importer) pureLinks() []string {
	var out []string
	for _, o := range im.of("purelb.io", "LBNodeAgent") {
		spec := o.part("spec")
		local := spec.object("local")
		for _, key := range []string{"localint", "localInterface"} {
			if text := local.text(key); text != "" && text != "default" {
				out = append(out, local.globs(key, text)...)
			}
		}
		local.drop("we configure no address on any interface, so there is no need for one", "extlbint", "dummyInterface")
		local.drop("gratuitous announcements are always sent; layer2.gratuitousRefresh says how often they are repeated", "sendgarp", "garpConfig")
		local.done()
		finish(o, spec)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
