package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ttlAnyHops is the TTL of packets to a router any number of hops away: the
// most that a document of ours takes.
const ttlAnyHops = 254

// farRestart is for how long a router keeps routes when MetalLB asks it to.
const farRestart = "120s"

// metallb carries over MetalLB, in all the forms that it has had.
func (im *importer) metallb() {
	im.metallbMode()
	im.metallbCommunities()
	im.metallbPools()
	for _, o := range im.of("metallb.io", "BFDProfile") {
		spec := o.part("spec")
		im.metallbProfile(spec, o.name, func(key string) string { return key })
		finish(o, spec)
	}
	im.metallbPeers()
	for _, o := range im.of("metallb.io", "L2Advertisement") {
		im.l2Advertisement(o)
	}
	for _, o := range im.of("metallb.io", "BGPAdvertisement") {
		im.bgpAdvertisement(o)
	}
	for _, o := range im.objects {
		switch {
		case o.kind == "ConfigMap" && o.group == "v1" && !isKubeVIP(o):
			im.metallbConfigMap(o)
		case o.kind == "" && o.group == "":
			im.bare(o)
		}
	}
}

func (im *importer) metallbCommunities() {
	im.communities = map[string]string{}
	for _, o := range im.of("metallb.io", "Community") {
		spec := o.part("spec")
		for _, c := range spec.items("communities") {
			im.alias(c, c.text("name"), c.text("value"))
			c.done()
		}
		finish(o, spec)
	}
}

// alias takes in a name for a community.
func (im *importer) alias(o *object, name, value string) {
	if _, err := config.ParseCommunity(value); err != nil {
		o.fault("", "the community %q of %q %v", value, name, err)
		return
	}
	if before, taken := im.communities[name]; taken && before != value {
		o.fault("", "the name %q stands for %s already", name, before)
		return
	}
	im.communities[name] = value
}

// finish reports what nobody has asked for in an object and its spec.
func finish(o, spec *object) {
	spec.done()
	o.done()
}

// metallbPools reads IPAddressPools. There the lowest priority number comes
// first and 0 last, and pools that are for everybody come after all others.
func (im *importer) metallbPools() {
	objects := im.of("metallb.io", "IPAddressPool", "AddressPool")
	ranks := map[uint64]int{0: 1}
	var numbers []uint64
	for _, o := range objects {
		numbers = append(numbers, o.part("spec").object("serviceAllocation").number("priority", 1<<31-1))
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	slices.Reverse(numbers)
	for _, n := range numbers {
		if n != 0 {
			ranks[n] = len(ranks) + 1
		}
	}
	for _, o := range objects {
		spec := o.part("spec")
		p := pool{old: o.name, product: config.MetalLB, labels: o.labels, from: o}
		p.Addresses = spec.addresses("addresses")
		p.AvoidBuggyIPs = spec.boolean("avoidBuggyIPs", false)
		if !spec.boolean("autoAssign", true) {
			p.AutoAssign = no()
		}
		if a := spec.object("serviceAllocation"); a != nil {
			p.Priority = 10 * ranks[a.number("priority", 1<<31-1)]
			a.restrict(&p)
			a.done()
		}
		if o.kind == "AddressPool" {
			im.oldKindAdvertises(o, spec)
		}
		im.addPool(p)
		finish(o, spec)
	}
}

// restrict reads for whom a pool is.
func (o *object) restrict(p *pool) {
	p.Namespaces = o.words("namespaces")
	p.NamespaceSelector = o.selectors("namespaceSelectors")
	p.ServiceSelector = o.selectors("serviceSelectors")
	p.EnforceNamespaces = len(p.Namespaces)+len(p.NamespaceSelector) > 0
	if len(p.ServiceSelector) > 0 {
		o.lose("serviceSelectors", "kept for Services that ask for nothing; but one that asks for this pool or its addresses by name gets them whatever its labels are")
	}
}

// oldKindAdvertises reads the advertisements inside of an AddressPool, the kind
// before IPAddressPool.
func (im *importer) oldKindAdvertises(o, spec *object) {
	im.oldProtocol(spec, o.name, "protocol", "bgpAdvertisements")
}

func (im *importer) metallbPeers() {
	for _, o := range im.of("metallb.io", "BGPPeer") {
		spec := o.part("spec")
		p := peer{old: o.name, Address: spec.text("peerAddress"), Interface: spec.text("interface"), VRF: spec.text("vrf"), Port: spec.number("peerPort", 65535)}
		p.LocalASN = spec.asn("myASN")
		spec.peerASN(&p, "peerASN", "dynamicASN")
		im.metallbIdentity(spec, &p)
		p.RouterID, p.ConnectTime = spec.text("routerID"), spec.duration("connectTime")
		spec.times(&p, "holdTime", "keepaliveTime")
		spec.multihop(&p, "ebgpMultiHop")
		if spec.boolean("enableGracefulRestart", false) {
			p.GracefulRestart = farRestart
		}
		if spec.boolean("dualStackAddressFamily", false) {
			p.Families = []string{"IPv4", "IPv6"}
		}
		spec.passwords(&p, spec.object("passwordSecret").secretName())
		p.NodeSelector = spec.selectors("nodeSelectors")
		im.bfd(spec, &p, "bfdProfile")
		spec.skip("disableMP")
		im.addPeer(spec, p)
		finish(o, spec)
	}
}

// metallbIdentity reads as what a router sees us, apart from myASN.
func (im *importer) metallbIdentity(spec *object, p *peer) {
	const ignored = "MetalLB up to 0.16 does not use it in frr-k8s mode"
	if im.mode == modeFRRK8s {
		spec.drop(ignored+", so it is left out: add it to the peer if its router does expect it", "localASN", "sourceAddress")
		return
	}
	if im.mode == "" {
		for _, key := range []string{"localASN", "sourceAddress"} {
			if spec.has(key) {
				spec.note(key, "kept; but "+ignored+", and the sources do not show the mode (METALLB_BGP_TYPE of its speakers): if it is that one, remove it from the peer")
			}
		}
	}
	if presented := spec.asn("localASN"); presented != 0 {
		p.LocalASN = presented
		spec.note("localASN", "routers see only this AS number of us, so it takes the place of myASN")
	}
	p.SourceAddress = spec.text("sourceAddress")
	if p.SourceAddress != "" && p.Interface != "" {
		spec.lose("sourceAddress", "an unnumbered session is between link-local addresses")
		p.SourceAddress = ""
	}
}

// times reads the times of a session. One that has only the time between signs
// of life is given up after three of them, as in the source.
func (o *object) times(p *peer, hold, keepalive string) {
	p.HoldTime, p.KeepaliveTime = o.duration(hold), o.duration(keepalive)
	h, _ := time.ParseDuration(p.HoldTime) // both are empty, or as duration writes them
	k, _ := time.ParseDuration(p.KeepaliveTime)
	switch {
	case k > 0 && h == 0:
		p.HoldTime = fmt.Sprintf("%ds", int(3*k.Seconds()))
	case 3*k > h:
		o.lose(keepalive, "more than a third of the hold time of %s, so that one lost packet would end the session: a third is taken", p.HoldTime)
		p.KeepaliveTime = ""
	}
}

// secretName returns the name in a reference to a Secret.
func (o *object) secretName() string {
	defer o.done()
	o.skip("namespace")
	return o.text("name")
}

// asn reads an AS number, written as one number.
func (o *object) asn(key string) uint64 { return o.number(key, 1<<32-1) }

// peerASN reads the AS number of a router.
func (o *object) peerASN(p *peer, key, dynamic string) {
	p.ASN = o.asn(key)
	if kind := o.text(dynamic); kind != "" {
		p.ASN = kind
	}
}

// multihop reads that a router may be any number of hops away.
func (o *object) multihop(p *peer, key string) {
	if !o.boolean(key, false) {
		return
	}
	switch {
	case p.internal():
		o.lose(key, "it has no effect on a router of our own AS, which may be any number of hops away")
	case p.Interface != "":
		o.lose(key, "it has no effect on an unnumbered session, which does not leave the link")
	default:
		p.Multihop = ttlAnyHops
	}
}

// passwords reads where the password of a session is. Its value is not looked at.
func (o *object) passwords(p *peer, secret string) {
	switch plain := o.has("password"); {
	case plain && secret != "":
		o.fault("password", "password and passwordSecret are both set: remove one")
	case plain:
		p.PasswordSecret = unique("bgp-"+p.old, map[string]bool{})
		p.password, p.plain = o.at("password"), true
	case secret != "":
		p.PasswordSecret, p.password = secret, o.at("passwordSecret")
	}
}

// addPeer takes in a router.
func (im *importer) addPeer(o *object, p peer) {
	switch {
	case p.Address == "" && p.Interface == "":
		o.lose("", "the router has no address, so there is no session with it")
		return
	case p.Address != "" && p.Interface != "":
		o.fault("interface", "there is a peerAddress too: which of them is meant cannot be told")
		return
	}
	if len(p.NodeSelector) == 0 && (p.RouterID != "" || p.SourceAddress != "") {
		o.note("", "router ID or source address are fixed, and no node selector limits the session to one Node: two Nodes with one router ID disturb each other")
	}
	taken := map[string]bool{}
	for _, other := range im.peers {
		taken[other.Name] = true
	}
	p.Name = unique(cmp.Or(p.old, "peer-"+strings.ReplaceAll(p.Address, ":", "-")), taken)
	if p.old != "" && p.Name != p.old {
		o.note("", "the peer %q is called %q now", p.old, p.Name)
	}
	im.peers = append(im.peers, p)
}

// peersCalled returns the new names of peers.
func (im *importer) peersCalled(o *object, key string) []string {
	var out []string
	for _, name := range o.words(key) {
		i := slices.IndexFunc(im.peers, func(p peer) bool { return p.old == name })
		if i < 0 {
			o.note(key, "there is no peer %q: the source ignores that name, and so does the document", name)
			continue
		}
		out = append(out, im.peers[i].Name)
	}
	return out
}

// chosen reads which pools an advertisement of MetalLB is for.
func (im *importer) chosen(spec *object, a *advertisement) {
	names := spec.words("ipAddressPools")
	selectors := spec.selectors("ipAddressPoolSelectors")
	everything := spec.has("ipAddressPoolSelectors") && len(selectors) == 0
	a.every = everything || len(names) == 0 && !spec.has("ipAddressPoolSelectors")
	for _, p := range im.pools {
		if p.product == config.MetalLB && (slices.Contains(names, p.old) || matches(selectors, p.labels)) {
			a.Pools = append(a.Pools, p.old)
		}
	}
	for _, name := range names {
		if !slices.Contains(a.Pools, name) {
			spec.note("ipAddressPools", "there is no pool %q in what was read: the source ignores that name, and so does the document", name)
		}
	}
	if len(a.Pools) == 0 && !a.every {
		spec.note("", "it selects no pool, so nothing is announced by it")
	}
	if a.every {
		a.Pools = nil
	}
}

func (im *importer) l2Advertisement(o *object) {
	spec := o.part("spec")
	a := advertisement{Name: o.name, product: config.MetalLB, Layer2: &layer2{}}
	im.chosen(spec, &a)
	a.NodeSelector = spec.selectors("nodeSelectors")
	a.ServiceSelector = spec.selectors("serviceSelectors")
	a.Layer2.Interfaces = spec.words("interfaces")
	if len(a.Layer2.Interfaces) == 0 {
		spec.note("", "MetalLB answers on every link; here it is the one link whose subnet holds the address, so that there is one MAC per address")
	}
	im.adverts = append(im.adverts, a)
	finish(o, spec)
}

func (im *importer) bgpAdvertisement(o *object) {
	spec := o.part("spec")
	a := advertisement{Name: o.name, product: config.MetalLB, BGP: &bgpRule{}}
	im.chosen(spec, &a)
	a.NodeSelector = spec.selectors("nodeSelectors")
	a.ServiceSelector = spec.selectors("serviceSelectors")
	named := spec.words("peers")
	a.BGP.Peers = im.peersCalled(spec, "peers")
	im.route(spec, a.BGP, "aggregationLength", "aggregationLengthV6", "localPref")
	finish(o, spec)
	if len(named) > 0 && len(a.BGP.Peers) == 0 {
		spec.note("peers", "none of its peers exists, so nothing is advertised by it")
		return
	}
	im.adverts = append(im.adverts, a)
}

// route reads what routers are told of an address.
func (im *importer) route(o *object, r *bgpRule, length, lengthV6, preference string) {
	r.AggregationLength, r.AggregationLengthV6 = o.number(length, 32), o.number(lengthV6, 128)
	r.LocalPref = o.number(preference, 1<<32-1)
	r.Communities = im.known(o, "communities")
	for _, p := range im.peers {
		if r.LocalPref != 0 && !p.internal() && (len(r.Peers) == 0 || slices.Contains(r.Peers, p.Name)) {
			o.note(preference, "the peer %s is of another AS: it never hears of a local preference", p.Name)
		}
	}
}

// known reads communities as numbers. Names are looked up, so that the document
// needs none.
func (im *importer) known(o *object, key string) []string {
	words := o.words(key)
	for i, text := range words {
		if number, alias := im.communities[text]; alias {
			words[i] = number
			continue
		}
		if _, err := config.ParseCommunity(text); err != nil {
			o.fault(key, "%q %v; the sources give a number to these names: %s", text, err, cmp.Or(quoted(slices.Sorted(maps.Keys(im.communities))), "none"))
		}
	}
	return words
}
