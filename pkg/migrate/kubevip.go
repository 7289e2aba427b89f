package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// kubeVIPRules is the form of keys in kube-vip's ConfigMap.
var kubeVIPRules = []string{"cidr-", "range-"}

// isKubeVIP tells whether a ConfigMap is that of kube-vip's cloud provider: by
// its name, or by what is in it.
func isKubeVIP(o *object) bool {
	return slices.ContainsFunc(o.object("data").keys(), func(key string) bool {
		return slices.ContainsFunc(kubeVIPRules, func(p string) bool { return strings.HasPrefix(key, p) })
	}) || o.name == "kubevip"
}

func (im *importer) kubevip() {
	for _, o := range im.of("v1", "ConfigMap") {
		if !isKubeVIP(o) {
			continue
		}
		if o.name != "kubevip" && o.name != "plndr" {
			o.note("", "kube-vip reads the ConfigMap kubevip, not %s: in the source this one has no effect. It is taken all the same", o.name)
		}
		im.kubeVIPMap(o)
	}
}

// kubeVIPMap carries over a ConfigMap. Of the keys for a namespace the source
// takes the first that there is of cidr-NAMESPACE, cidr-global,
// range-NAMESPACE, range-global, and nothing else even when that is full.
func (im *importer) kubeVIPMap(o *object) {
	data := o.part("data")
	order := ""
	if data.text("search-order") == "desc" {
		order = "highest"
	}
	skipEnds := data.text("skip-end-ips-in-cidr") == "true"
	global := data.firstOf("cidr-global", "range-global")
	var own []string
	for _, namespace := range data.namespaces() {
		key := "cidr-" + namespace
		if !data.has(key) && global != "cidr-global" {
			key = "range-" + namespace
		}
		if !data.has(key) {
			data.shadowed("range-"+namespace, "cidr-global")
			continue
		}
		data.shadowed(other(key), key)
		if im.kubeVIPPool(data, key, pool{Namespaces: []string{namespace}, Order: order}, skipEnds) {
			own = append(own, namespace)
		}
	}
	if global != "" {
		p := pool{Order: order}
		if len(own) > 0 {
			p.NamespaceSelector = []string{"kubernetes.io/metadata.name notin (" + strings.Join(own, ",") + ")"}
		}
		im.kubeVIPPool(data, global, p, skipEnds)
		data.shadowed(other(global), global)
	}
	im.adverts = append(im.adverts, advertisement{Name: "layer2", product: config.KubeVIP, every: true, Layer2: &layer2{}})
	data.note("", "how kube-vip announces is not in its ConfigMap but in the environment of its pods. The document announces by layer 2 from all nodes: look at vip_arp, bgp_enable and vip_interface there")
	data.kubeVIPLosses()
	finish(o, data)
}

// kubeVIPPool takes in the pool of one key, and tells whether there is one.
func (im *importer) kubeVIPPool(data *object, key string, p pool, skipEnds bool) bool {
	text := data.text(key)
	if strings.Contains(text, "0.0.0.0/32") {
		data.lose(key, "0.0.0.0/32 asks DHCP for addresses, which is not supported: write a range that the DHCP server leaves out")
		return false
	}
	p.old, p.product, p.from = key[strings.Index(key, "-")+1:], config.KubeVIP, data
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		p.Addresses = append(p.Addresses, data.address(key, item)...)
	}
	if len(p.Addresses) == 0 {
		data.fault(key, "there are no addresses in it")
		return false
	}
	if skipEnds {
		p.Exclude = data.ends(key, p.Addresses)
	}
	if name := p.old; name == "ipv4" || name == "ipv6" {
		data.note(key, "this is for the namespace called %s, as in the source, not for a family", name)
	}
	im.addPool(p)
	return true
}

// namespaces returns the namespaces that have a key of their own, sorted.
func (o *object) namespaces() []string {
	var out []string
	for _, key := range o.keys() {
		for _, prefix := range kubeVIPRules {
			if name, ok := strings.CutPrefix(key, prefix); ok && name != "global" {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func other(key string) string {
	if name, ok := strings.CutPrefix(key, "cidr-"); ok {
		return "range-" + name
	}
	return "cidr-" + strings.TrimPrefix(key, "range-")
}

func (o *object) firstOf(keys ...string) string {
	for _, key := range keys {
		if o.has(key) {
			return key
		}
	}
	return ""
}

// shadowed tells of a key that has no effect in the source either.
func (o *object) shadowed(key, by string) {
	if o.has(key) && key != by {
		o.note(key, "has no effect in the source, because of %s; it is left out", by)
	}
}

func (o *object) kubeVIPLosses() {
	for _, key := range o.keys() {
		if strings.HasPrefix(key, "allow-share-") {
			o.skip(key)
			o.lose(key, "Services share an address here if they carry the same ccm-baremetal.io/sharing-key")
		}
		if strings.HasPrefix(key, "interface-") {
			o.skip(key)
			o.lose(key, "the interface is a matter of an advertisement: layer2.interfaces, with the pool of that namespace")
		}
	}
}

// ends returns the first and last addresses of CIDRs that have more than two.
func (o *object) ends(key string, addresses []string) []string {
	var out []string
	for _, text := range addresses {
		if first, last, ok := edges(text); ok {
			out = append(out, first, last)
		}
	}
	if len(out) > 0 {
		o.note(key, "%s", fmt.Sprintf("left out, as in the source: %s", strings.Join(out, ", ")))
	}
	return out
}
