package migrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// everyService is the selector by which Cilium's manual says "all Services".
const everyService = "somekey notin (never-used-value)"

// ciliumPeering reads the BGP policy of the first generation.
func (im *importer) ciliumPeering(o *object) {
	spec := o.part("spec")
	nodes := one(spec.object("nodeSelector").selector())
	for i, router := range spec.items("virtualRouters") {
		local := router.asn("localASN")
		a := advertisement{Name: o.name, product: config.Cilium, every: true, NodeSelector: nodes, BGP: &bgpRule{}}
		for j, n := range router.items("neighbors") {
			p := n.ciliumNeighbor(local)
			p.old, p.NodeSelector = fmt.Sprintf("%s-%d-%d", o.name, i+1, j+1), nodes
			before := len(im.peers)
			im.addPeer(n, p)
			for _, added := range im.peers[before:] {
				a.BGP.Peers = append(a.BGP.Peers, added.Name)
			}
			n.done()
		}
		advertised := router.ciliumSelector("serviceSelector", &a)
		if kinds := router.words("serviceAdvertisements"); len(kinds) > 0 {
			advertised = router.onlyBalancers("serviceAdvertisements", kinds) && advertised
		}
		if router.boolean("exportPodCIDR", false) {
			router.lose("exportPodCIDR", "routes to pods are the business of the network plugin: leave that to Cilium")
		}
		router.drop("only addresses of Services are advertised", "podIPPoolSelector")
		router.done()
		if advertised && len(a.BGP.Peers) > 0 {
			im.adverts = append(im.adverts, a)
		}
	}
	finish(o, spec)
}

// ciliumSelector reads which Services are advertised, and tells whether any are.
func (o *object) ciliumSelector(key string, a *advertisement) bool {
	s := o.object(key)
	if s == nil {
		o.note(key, "not there: the source advertises no Service by it, and nothing is carried over")
		return false
	}
	text := s.selector()
	switch text {
	case everyService:
		o.note(key, "read as all Services")
		text = ""
	case "":
		o.note(key, "empty: taken for all Services. Versions of Cilium differ about that; look at what the routers have")
	}
	a.ServiceSelector = one(text)
	return true
}

// onlyBalancers tells whether addresses of load balancers are among kinds, and
// what is lost with the others.
func (o *object) onlyBalancers(key string, kinds []string) bool {
	for _, kind := range kinds {
		if kind != "LoadBalancerIP" {
			o.lose(key, "%s: only addresses of load balancers are advertised", kind)
		}
	}
	return slices.Contains(kinds, "LoadBalancerIP")
}

func (o *object) ciliumNeighbor(local uint64) peer {
	p := peer{LocalASN: local, ASN: o.asn("peerASN"), Port: o.number("peerPort", 65535)}
	p.Address = o.text("peerAddress")
	if prefix, err := netip.ParsePrefix(p.Address); err == nil && prefix.IsSingleIP() {
		p.Address = prefix.Addr().String()
	}
	p.Multihop = o.number("eBGPMultihopTTL", 255)
	o.ciliumHops(&p)
	o.ciliumTimers(&p)
	o.ciliumRestart(&p)
	o.ciliumPassword(&p)
	p.Families = o.ciliumFamilies()
	o.drop("communities and preferences by what is advertised are a matter of an advertisement: bgp.communities, bgp.localPref", "advertisedPathAttributes")
	return p
}

// ciliumHops fits the TTL to what is allowed here.
func (o *object) ciliumHops(p *peer) {
	if p.ASN == p.LocalASN || p.Multihop == 1 {
		p.Multihop = 0 // so it is anyway
	}
	p.Multihop = min(p.Multihop, ttlAnyHops)
}

func (o *object) ciliumTimers(p *peer) {
	p.ConnectTime = o.duration("connectRetryTimeSeconds")
	p.HoldTime, p.KeepaliveTime = o.duration("holdTimeSeconds"), o.duration("keepAliveTimeSeconds")
}

func (o *object) ciliumRestart(p *peer) {
	restart := o.object("gracefulRestart")
	if restart.boolean("enabled", false) {
		p.GracefulRestart = restart.duration("restartTimeSeconds")
		if p.GracefulRestart == "" {
			p.GracefulRestart = farRestart
		}
	}
	restart.skip("restartTimeSeconds")
	restart.done()
}

func (o *object) ciliumPassword(p *peer) {
	if p.PasswordSecret = o.text("authSecretRef"); p.PasswordSecret != "" {
		p.password = o.at("authSecretRef")
	}
}

// ciliumFamilies reads the families of a session.
func (o *object) ciliumFamilies() []string {
	var out []string
	for _, f := range o.items("families") {
		family, kind := f.text("afi"), f.text("safi")
		f.skip("advertisements")
		f.done()
		switch {
		case kind != "unicast" && kind != "":
			f.lose("safi", "%s: only unicast routes are advertised", kind)
		case family == "ipv4":
			out = append(out, "IPv4")
		case family == "ipv6":
			out = append(out, "IPv6")
		default:
			f.lose("afi", "only ipv4 and ipv6 are families of addresses of Services")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// told is what a session tells of: by the labels of advertisements.
type told struct {
	peer      string
	selectors []string
}

// ciliumBGP reads the BGP resources of the second generation, which refer to
// one another.
func (im *importer) ciliumBGP() {
	configs := map[string]*object{}
	for _, o := range im.of("cilium.io", "CiliumBGPPeerConfig") {
		configs[o.name] = o.part("spec")
	}
	var sessions []told
	for _, o := range im.of("cilium.io", "CiliumBGPClusterConfig") {
		spec := o.part("spec")
		nodes := one(spec.object("nodeSelector").selector())
		for _, instance := range spec.items("bgpInstances") {
			instance.skip("name")
			local := instance.asn("localASN")
			instance.drop("we open the sessions, and listen on no port", "localPort")
			for _, p := range instance.items("peers") {
				sessions = append(sessions, im.ciliumPeer(p, local, nodes, configs)...)
			}
			instance.done()
		}
		finish(o, spec)
	}
	for _, o := range im.of("cilium.io", "CiliumBGPPeerConfig") {
		finish(o, configs[o.name])
	}
	for _, o := range im.of("cilium.io", "CiliumBGPAdvertisement") {
		im.ciliumAdvertisement(o, sessions)
	}
	for _, o := range im.of("cilium.io", "CiliumBGPNodeConfigOverride") {
		o.lose("", "settings for single Nodes are peers with a nodeSelector here")
	}
}

func (im *importer) ciliumPeer(o *object, local uint64, nodes []string, configs map[string]*object) []told {
	p := peer{old: o.text("name"), LocalASN: local, ASN: o.asn("peerASN"), Address: o.text("peerAddress"), NodeSelector: nodes}
	o.drop("routers are not discovered: name their addresses", "autoDiscovery")
	ref := o.object("peerConfigRef")
	name := ref.text("name")
	ref.skip("group", "kind")
	ref.done()
	o.done()
	settings := configs[name]
	if settings == nil && name != "" {
		o.lose("peerConfigRef", "there is no CiliumBGPPeerConfig %q in what was read: the session has the defaults, and nothing is told by it", name)
	}
	var selectors []string
	if settings != nil {
		selectors = settings.ciliumSettings(&p)
	}
	before := len(im.peers)
	im.addPeer(o, p)
	var out []told
	for _, added := range im.peers[before:] {
		out = append(out, told{added.Name, selectors})
	}
	return out
}

// ciliumSettings fills in what a CiliumBGPPeerConfig says, and returns which
// advertisements the session tells of.
func (o *object) ciliumSettings(p *peer) []string {
	timers := o.object("timers")
	timers.ciliumTimers(p)
	timers.done()
	o.ciliumPassword(p)
	p.Multihop = o.number("ebgpMultihop", 255)
	o.ciliumHops(p)
	o.ciliumRestart(p)
	transport := o.object("transport")
	p.Port = transport.number("peerPort", 65535)
	transport.drop("the port that we connect from is the kernel's choice", "localPort")
	transport.drop("the address that we connect from is a matter of bgp.peers[].sourceAddress", "sourceInterface")
	transport.done()
	var selectors []string
	for _, f := range o.items("families") {
		if s := f.object("advertisements"); s != nil {
			selectors = append(selectors, s.selector())
		}
	}
	p.Families = o.ciliumFamilies()
	return selectors
}

func (im *importer) ciliumAdvertisement(o *object, sessions []told) {
	var peers []string
	for _, s := range sessions {
		if matches(s.selectors, o.labels) {
			peers = append(peers, s.peer)
		}
	}
	spec := o.part("spec")
	for _, item := range spec.items("advertisements") {
		if kind := item.text("advertisementType"); kind != "Service" {
			item.lose("advertisementType", "%s: only addresses of Services are advertised", kind)
			continue
		}
		a := advertisement{Name: o.name, product: config.Cilium, every: true, BGP: &bgpRule{Peers: peers}}
		which := item.object("service")
		advertised := which.onlyBalancersOf()
		advertised = item.ciliumSelector("selector", &a) && advertised
		which.ciliumLengths(a.BGP)
		which.done()
		im.ciliumAttributes(item, a.BGP)
		item.done()
		if len(peers) == 0 {
			item.note("", "no session selects it by its labels, so nothing is told by it")
		}
		if advertised && len(peers) > 0 {
			im.adverts = append(im.adverts, a)
		}
	}
	finish(o, spec)
}

func (o *object) onlyBalancersOf() bool {
	return o != nil && o.onlyBalancers("addresses", o.words("addresses"))
}

func (o *object) ciliumLengths(r *bgpRule) {
	r.AggregationLength, r.AggregationLengthV6 = o.number("aggregationLengthIPv4", 32), o.number("aggregationLengthIPv6", 128)
}

func (im *importer) ciliumAttributes(o *object, r *bgpRule) {
	attributes := o.object("attributes")
	r.LocalPref = attributes.number("localPreference", 1<<32-1)
	communities := attributes.object("communities")
	r.Communities = slices.Concat(im.known(communities, "standard"), im.known(communities, "large"))
	for _, name := range communities.words("wellKnown") {
		r.Communities = append(r.Communities, strings.ToLower(name))
	}
	communities.done()
	attributes.done()
}
