package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// metallbConfigMap reads MetalLB's configuration up to 0.12. It is taken from
// whatever ConfigMap has it.
func (im *importer) metallbConfigMap(o *object) {
	data := o.part("data")
	found := false
	for _, key := range data.keys() {
		if key != "config" && key != "config.yaml" {
			continue
		}
		found = true
		if o.name != "config" || key != "config" {
			o.note("data."+key, "MetalLB reads the key config of the ConfigMap config; this one is taken all the same")
		}
		inner := im.nested(data, key)
		im.metallbOld(inner)
	}
	if !found {
		o.fault("data", "a ConfigMap of none of the products that are known here: MetalLB's has the key config; kube-vip's is called kubevip and has keys such as range-global")
		return
	}
	finish(o, data)
}

// nested reads the YAML inside of a text.
func (im *importer) nested(o *object, key string) *object {
	inner := &importer{}
	n := o.get(key)
	if n == nil || !isText(n) {
		o.fault(key, "expected the configuration as a text (%s: |)", key)
		return nil
	}
	inner.read([]Source{{Name: o.source, Text: []byte(n.Value)}})
	for _, r := range inner.faults {
		o.fault(key, "%s", strings.TrimPrefix(r.String(), o.source+": "))
	}
	if len(inner.faults) > 0 || len(inner.objects) == 0 {
		return nil
	}
	if len(inner.objects) > 1 {
		o.fault(key, "a second YAML document: the configuration is a single one")
	}
	return o.inner(o.at(key).Path, inner.objects[0].node)
}

// bare reads what is no Kubernetes object: values of a chart, or the inner
// configuration by itself.
func (im *importer) bare(o *object) {
	keys := o.keys()
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(keys, n) })
	}
	switch {
	case has("configInline", "existingConfigMap", "arpAddresses", "frrk8s", "speaker"):
		im.helmValues(o)
	case has("address-pools", "peers", "bgp-communities"):
		im.metallbOld(o)
	default:
		o.fault("", "this is no object of any product that is known here, nor MetalLB's configuration or Helm values. Variables of an installer are not read: import from the cluster that it has made")
	}
}

// helmValues reads the values of MetalLB's chart. Up to 0.12 they may have the
// configuration in them.
func (im *importer) helmValues(o *object) {
	if o.has("existingConfigMap") {
		if o.has("configInline") {
			o.fault("configInline", "existingConfigMap is set too: which of them is in force cannot be told")
			return
		}
		o.fault("existingConfigMap", "the configuration is in the ConfigMap %q: import that", o.text("existingConfigMap"))
		return
	}
	if inline := o.object("configInline"); inline != nil {
		im.metallbOld(inline)
	}
	if text := o.text("arpAddresses"); text != "" {
		im.addPool(pool{old: "default", product: config.MetalLB, from: o, Addresses: o.address("arpAddresses", text)})
		im.adverts = append(im.adverts, advertisement{Name: "layer2", Pools: []string{"default"}, product: config.MetalLB, Layer2: &layer2{}})
	}
	im.class = o.text("loadBalancerClass")
	o.skip("frrk8s") // metallbMode has read it
	for _, key := range o.keys() {
		if !o.asked[key] {
			o.skip(key)
			o.lose(key, "a setting of how MetalLB is installed, not of what it does")
		}
	}
}

// metallbOld reads the configuration up to 0.12.
func (im *importer) metallbOld(o *object) {
	if o == nil {
		return
	}
	aliases := o.object("bgp-communities")
	for _, name := range aliases.keys() {
		im.alias(o, name, aliases.text(name))
	}
	for _, profile := range o.items("bfd-profiles") {
		im.mode = cmp.Or(im.mode, modeFRR) // it took FRR, and there was no frr-k8s yet
		im.metallbProfile(profile, profile.text("name"), dashed)
		profile.done()
	}
	for i, p := range o.items("peers") {
		im.oldPeer(p, i)
	}
	for _, p := range o.items("address-pools") {
		im.oldPool(p)
	}
	o.done()
}

func (im *importer) oldPeer(o *object, i int) {
	p := peer{old: fmt.Sprintf("peer-%d", i+1), Address: o.text("peer-address"), Port: o.number("peer-port", 65535)}
	p.LocalASN = o.asn("my-asn")
	p.ASN = o.asn("peer-asn")
	p.RouterID, p.SourceAddress = o.text("router-id"), o.text("source-address")
	o.times(&p, "hold-time", "keepalive-time")
	o.multihop(&p, "ebgp-multihop")
	o.passwords(&p, "")
	p.NodeSelector = o.selectors("node-selectors")
	im.bfd(o, &p, "bfd-profile")
	im.addPeer(o, p)
	o.done()
}

func (im *importer) oldPool(o *object) {
	p := pool{old: o.text("name"), product: config.MetalLB, from: o}
	if p.old == "" {
		o.fault("name", "the pool has no name")
	}
	if o.has("cidr") {
		o.note("cidr", "the key of the time before 0.3; addresses since")
		p.Addresses = o.addresses("cidr")
	}
	if o.has("addresses") || !o.has("cidr") {
		p.Addresses = append(p.Addresses, o.addresses("addresses")...)
	}
	p.AvoidBuggyIPs = o.boolean("avoid-buggy-ips", false)
	if !o.boolean("auto-assign", true) {
		p.AutoAssign = no()
	}
	im.oldProtocol(o, p.old, "protocol", "bgp-advertisements")
	im.addPool(p)
	o.done()
}

// oldProtocol reads how one pool is announced, in the forms in which the pool
// itself says so.
func (im *importer) oldProtocol(o *object, name, protocol, advertisements string) {
	switch p := o.text(protocol); p {
	case "layer2":
		im.adverts = append(im.adverts, advertisement{Name: name, Pools: []string{name}, product: config.MetalLB, Layer2: &layer2{}})
		o.drop("a pool that is announced by layer 2 advertises nothing to routers", advertisements)
	case "bgp":
		im.oldRoutes(o, name, advertisements)
	default:
		o.fault(protocol, "expected layer2 or bgp")
	}
}

func (im *importer) oldRoutes(o *object, name, advertisements string) {
	items := o.items(advertisements)
	if len(items) == 0 {
		im.adverts = append(im.adverts, advertisement{Name: name, Pools: []string{name}, product: config.MetalLB, BGP: &bgpRule{}})
	}
	for _, item := range items {
		a := advertisement{Name: name, Pools: []string{name}, product: config.MetalLB, BGP: &bgpRule{}}
		if advertisements == "bgpAdvertisements" {
			im.route(item, a.BGP, "aggregationLength", "aggregationLengthV6", "localPref")
		} else {
			im.route(item, a.BGP, "aggregation-length", "aggregation-length-v6", "localpref")
		}
		item.done()
		im.adverts = append(im.adverts, a)
	}
}
