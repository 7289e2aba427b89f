package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

func proxy(f Facts) Check {
	const name = "kube-proxy"
	p := f.Proxy.Value
	mode := p.Mode
	if mode == "" {
		mode = "iptables (the default)"
	}
	switch {
	case f.Proxy.Why != "":
		return unknown(name, f.Proxy.Why, "in IPVS mode it needs strictARP: true; other modes and replacements need nothing")
	case p.Mode == "ipvs" && !p.StrictARP:
		return Check{name, Fail, "mode ipvs without strictARP: the kernel of every node answers ARP for every address",
			"set ipvs.strictARP: true in the ConfigMap kube-system/kube-proxy, and restart its pods"}
	case p.Mode == "ipvs":
		return Check{name, OK, "mode ipvs with strictARP", ""}
	}
	return Check{name, OK, "mode " + mode, ""}
}

// taken are our ports on every node, and the controller's.
var taken = map[int]string{7956: "gossip", 7957: "health and metrics", 7958: "debug pages", 10258: "the controller"}

func ports(f Facts) Check {
	const name = "ports"
	if f.Pods.Why != "" {
		return unknown(name, f.Pods.Why, "")
	}
	var clashes []string
	for _, p := range f.Pods.Value {
		for _, port := range p.Ports {
			if what := taken[port]; what != "" && !p.Ours {
				clashes = append(clashes, fmt.Sprintf("%s on %s has %d (%s)", p.Name, p.Node, port, what))
			}
		}
	}
	slices.Sort(clashes)
	if len(clashes) > 0 {
		return Check{name, Fail, strings.Join(clashes, ", "), "give that Pod another port, or ours: membership.port, --metrics-port, --debug-address, --secure-port"}
	}
	return Check{name, OK, "no Pod on the host's network names 7956, 7957, 7958 or 10258; programs outside of Pods cannot be seen", ""}
}

func rights(f Facts) Check {
	const name = "rights"
	if f.Denied.Why != "" {
		return unknown(name, f.Denied.Why, "")
	}
	var missing, manifests []string
	secrets := ""
	for _, r := range f.Denied.Value {
		missing = append(missing, r.String())
		if !slices.Contains(manifests, r.Manifests) {
			manifests = append(manifests, r.Manifests)
		}
		if r.Resource == "secrets" && r.Verb == "get" {
			secrets = "; the file there that grants to get Secrets has to name them"
		}
	}
	if len(missing) > 0 {
		return Check{name, Fail, "missing: " + strings.Join(missing, "; "), "given by " + strings.Join(manifests, ", ") + ", or the chart" + secrets}
	}
	return Check{name, OK, "both accounts have all that they need", ""}
}

// String says a right in words.
func (r Right) String() string {
	text := r.Account + " may not " + r.Verb + " " + r.Resource
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Group != "" {
		text += " of " + r.Group
	}
	return text
}

// products are known by a part of the names of their images or Pods.
var products = []struct{ name, image, pod string }{
	{"MetalLB", "metallb", ""},
	{"kube-vip", "kube-vip", ""},
	{"PureLB", "purelb", ""},
	{"OpenELB", "openelb", ""},
	{"k3s servicelb", "klipper-lb", "/svclb-"},
}

func others(f Facts) Check {
	const name = "other-products"
	if f.Pods.Why != "" {
		return unknown(name, f.Pods.Why, "")
	}
	var found []string
	for _, p := range products {
		i := slices.IndexFunc(f.Pods.Value, func(pod Pod) bool {
			return p.pod != "" && strings.Contains(pod.Name, p.pod) ||
				slices.ContainsFunc(pod.Images, func(image string) bool { return strings.Contains(image, p.image) })
		})
		if i >= 0 {
			found = append(found, fmt.Sprintf("%s (Pod %s)", p.name, f.Pods.Value[i].Name))
		}
	}
	found = append(found, f.Others.Value...)
	switch {
	case len(found) > 0:
		return Check{name, Warn, strings.Join(found, ", "), "two products must not serve one Service: separate them by loadBalancerClass, or remove one"}
	case f.Others.Why != "":
		return unknown(name, "no Pod of another product; "+f.Others.Why, "")
	}
	return Check{name, OK, "no Pod of another load balancer is known here", ""}
}

const (
	skewAtMost = 5 * time.Second
	lateAtMost = 40 * time.Second // a kubelet renews every 10 s
)

// clocks judges by what nodes write with their own clock. No decision of ours
// compares clocks; certificates, tokens and the times in logs do.
func clocks(f Facts) Check {
	const name = "clocks"
	if f.Nodes.Why != "" {
		return unknown(name, f.Nodes.Why, "")
	}
	var wrong, dark []string
	for _, n := range f.Nodes.Value {
		switch age := n.Heartbeat.Value; {
		case n.Heartbeat.Why != "":
			dark = append(dark, n.Name)
		case age < -skewAtMost:
			wrong = append(wrong, fmt.Sprintf("%s is %s ahead of the API server", n.Name, (-age).Round(time.Second)))
		case age > lateAtMost && n.Ready:
			wrong = append(wrong, fmt.Sprintf("%s is Ready, and its last heartbeat is %s old: behind, or slow", n.Name, age.Round(time.Second)))
		}
	}
	if ahead := f.Clock.Value; f.Clock.Why == "" && (ahead > skewAtMost || ahead < -skewAtMost) {
		wrong = append(wrong, fmt.Sprintf("the API server's clock differs from the one here by %s", ahead.Round(time.Second)))
	}
	switch {
	case len(wrong) > 0:
		return Check{name, Warn, strings.Join(wrong, ", "), "does NTP run there?"}
	case len(dark) > 0 || f.Clock.Why != "":
		return unknown(name, strings.TrimSpace("no heartbeat is known of: "+orNone(dark)+" "+f.Clock.Why), "")
	}
	return Check{name, OK, fmt.Sprintf("no Node's clock is more than %s ahead; one that is behind by less than %s cannot be told", skewAtMost, lateAtMost), ""}
}

// reversePath: strict filtering drops what comes in by a link that the answer
// would not leave by. That needs a link besides the one with the default route.
func reversePath(f Facts) Check {
	const name = "rp_filter"
	const do = "on such a node: sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.LINK.rp_filter; neither may be 1"
	asked := 0
	var strict, dark, loose, rehearsing []string
	for _, v := range f.Views {
		if v.Why != "" {
			continue
		}
		asked++
		if v.ObserveOnly {
			rehearsing = append(rehearsing, v.Node)
		}
		for _, link := range v.Aside {
			where := v.Node + " (" + link + ")"
			switch filter, known := v.ReversePath[link]; {
			case !known:
				dark = append(dark, where)
			case filter == 1:
				strict = append(strict, where)
			default:
				loose = append(loose, where)
			}
		}
	}
	const without = "addresses are announced on links without the default route, "
	switch {
	case len(strict) > 0:
		return Check{name, Warn, without + "where strict filtering drops requests from beyond the routes of that link, by " + strings.Join(strict, ", "), do}
	case len(rehearsing) > 0:
		return unknown(name, "announcers that only observe announce on no link: "+strings.Join(rehearsing, ", "), do)
	case len(dark) > 0:
		return unknown(name, without+"where strict filtering would drop requests, by "+strings.Join(dark, ", "), do)
	case asked == 0 || asked < len(f.Views):
		return unknown(name, fmt.Sprintf("only %d of %d announcers could be asked", asked, len(f.Views)), do)
	case len(loose) > 0:
		return Check{name, OK, without + "and their filter is not strict: " + strings.Join(loose, ", "), ""}
	}
	return Check{name, OK, "every address is announced on a link with a default route, where strict filtering drops nothing", ""}
}

// mtu compares the links on which nodes speak with each other. What the path
// between them lets through is not visible from anywhere that we ask.
func mtu(f Facts) Check {
	const name = "mtu"
	const do = "from a client: ping -M do -s 1472 NODE (1500 bytes); if that fails and smaller ones pass, the path has a smaller MTU"
	sizes := map[int][]string{}
	var dark []string
	for _, v := range f.Views {
		if v.Why != "" || v.MTU == 0 {
			dark = append(dark, v.Node)
			continue
		}
		sizes[v.MTU] = append(sizes[v.MTU], v.Node)
	}
	var groups []string
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		groups = append(groups, fmt.Sprintf("%d on %s", size, strings.Join(sizes[size], ", ")))
	}
	switch {
	case len(sizes) > 1:
		return Check{name, Warn, "the links with the Nodes' addresses differ: " + strings.Join(groups, "; "), "give all of them the MTU of the network; " + do}
	case len(dark) > 0 || len(sizes) == 0:
		return unknown(name, strings.Join(append([]string{"the MTU is not known of: " + orNone(dark)}, groups...), "; "), do)
	}
	return Check{name, OK, "all links with a Node's address have the same: " + groups[0] + "; what is between them cannot be seen", ""}
}

// routers puts together what ails the sessions of several nodes alike.
func routers(f Facts) Check {
	const name = "bgp"
	const do = "kubectl baremetal bgp --node NODE has the whole session; docs/bgp.md, Looking, says what its words mean"
	var dark []string
	sessions, down := 0, 0
	ailing := map[string][]string{} // nodes by what they say
	for _, v := range f.Views {
		if v.Why != "" || v.ObserveOnly { // who only observes has no session
			dark = append(dark, v.Node)
			continue
		}
		for _, s := range v.Sessions {
			sessions++
			if s.Down {
				down++
			}
			if s.Down || s.Why != "" {
				said := s.Peer + ": " + s.Why
				ailing[said] = append(ailing[said], v.Node)
			}
		}
	}
	var said []string
	for _, what := range slices.Sorted(maps.Keys(ailing)) {
		said = append(said, fmt.Sprintf("%s (%s)", what, strings.Join(ailing[what], ", ")))
	}
	if len(dark) > 0 && len(said) > 0 {
		said = append(said, "not known of "+strings.Join(dark, ", "))
	}
	switch {
	case sessions > 0 && down == sessions && len(dark) == 0:
		return Check{name, Fail, "no router can be told of addresses: " + strings.Join(said, "; "), do}
	case len(said) > 0:
		return Check{name, Warn, strings.Join(said, "; "), do}
	case len(dark) > 0 || len(f.Views) == 0:
		return unknown(name, "not asked, or only observing: "+orNone(dark), "")
	case sessions == 0:
		return Check{name, OK, "no peer of the configuration selects a node", ""}
	}
	return Check{name, OK, fmt.Sprintf("all sessions are up: %d", sessions), ""}
}
