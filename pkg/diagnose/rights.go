package diagnose

// Installation is what is installed where, as far as rights depend on it.
type Installation struct {
	Namespace string   // of ours
	FRRK8s    string   // the namespace of the frr-k8s that has the sessions; empty: none has
	Sidecar   bool     // an FRR of our own has the sessions
	Passwords []string // Secrets with passwords of routers
}

// A Right is a verb on a resource that one of our accounts needs.
type Right struct {
	Account               string
	Verb, Group, Resource string // a subresource after a slash
	Name                  string // of the object; empty: any
	Namespace             string // empty: in all, or in none
	Manifests             string // the directory that gives it
}

// Rights returns what our accounts need, as the roles in manifests give it.
// Those that are for Nodes are not among them: an installation for load
// balancers alone does without.
func Rights(i Installation) []Right {
	const ccm, announcer = "ccm-baremetal", "announcer"
	var out []Right
	adder := func(manifests, namespace string) func(account, group, resource, name string, verbs ...string) {
		return func(account, group, resource, name string, verbs ...string) {
			for _, verb := range verbs {
				out = append(out, Right{account, verb, group, resource, name, namespace, manifests})
			}
		}
	}
	everywhere, ours := adder("manifests/base", ""), adder("manifests/base", i.Namespace)
	everywhere(ccm, "", "services", "", "get", "list", "watch")
	everywhere(ccm, "", "services/status", "", "patch")
	everywhere(ccm, "", "nodes", "", "list", "watch")
	everywhere(ccm, "", "namespaces", "", "list", "watch")
	everywhere(ccm, "discovery.k8s.io", "endpointslices", "kubernetes", "list", "watch")
	everywhere(ccm, "", "events", "", "create", "patch")
	ours(ccm, "", "configmaps", "ccm-baremetal", "get", "list", "watch")
	ours(ccm, "", "configmaps", "ccm-baremetal-accepted", "get", "list", "watch", "update")
	ours(ccm, "", "configmaps", "", "create")
	ours(ccm, "", "secrets", "", "create")
	ours(ccm, "apps", "daemonsets", "announcer", "list", "watch")
	ours(ccm, "coordination.k8s.io", "leases", "", "create")
	ours(ccm, "coordination.k8s.io", "leases", "ccm-baremetal", "get", "update")
	everywhere(announcer, "", "services", "", "list", "watch")
	everywhere(announcer, "", "nodes", "", "list", "watch")
	everywhere(announcer, "discovery.k8s.io", "endpointslices", "", "list", "watch")
	everywhere(announcer, "", "namespaces", "kube-system", "get")
	everywhere(announcer, "", "services/status", "", "patch")
	everywhere(announcer, "", "events", "", "create", "patch")
	ours(announcer, "", "configmaps", "ccm-baremetal-accepted", "list", "watch")
	ours(announcer, "", "secrets", "ccm-baremetal-gossip", "list", "watch")
	routers := adder("manifests/bgp", i.Namespace)
	if i.Sidecar {
		routers = adder("manifests/bgp-frr over manifests/bgp", i.Namespace)
	}
	if i.FRRK8s != "" {
		routers = adder("manifests/bgp-frr-k8s", i.FRRK8s)
		routers(announcer, "frrk8s.metallb.io", "frrconfigurations", "", "get", "list", "watch", "create", "patch", "delete")
		routers(announcer, "frrk8s.metallb.io", "bgpsessionstates", "", "list", "watch")
		adder("manifests/bgp-frr-k8s", "")(announcer, "frrk8s.metallb.io", "frrnodestates", "", "list", "watch")
	}
	for _, name := range i.Passwords {
		routers(announcer, "", "secrets", name, "get")
	}
	return out
}
