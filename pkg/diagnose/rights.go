package diagnose

// Rights returns what our accounts need, as the roles in manifests/base give it.
func Rights() []Right {
	const ccm, announcer = "ccm-baremetal", "announcer"
	var out []Right
	add := func(account, group, resource, name string, namespaced bool, verbs ...string) {
		for _, verb := range verbs {
			out = append(out, Right{account, verb, group, resource, name, namespaced})
		}
	}
	add(ccm, "", "services", "", false, "get", "list", "watch")
	add(ccm, "", "services/status", "", false, "patch")
	add(ccm, "", "nodes", "", false, "list", "watch")
	add(ccm, "", "namespaces", "", false, "list", "watch")
	add(ccm, "discovery.k8s.io", "endpointslices", "kubernetes", false, "list", "watch")
	add(ccm, "", "events", "", false, "create", "patch")
	add(ccm, "", "configmaps", "ccm-baremetal", true, "get", "list", "watch")
	add(ccm, "", "configmaps", "ccm-baremetal-accepted", true, "get", "list", "watch", "update")
	add(ccm, "", "configmaps", "", true, "create")
	add(ccm, "", "secrets", "", true, "create")
	add(ccm, "apps", "daemonsets", "announcer", true, "list", "watch")
	add(ccm, "coordination.k8s.io", "leases", "", true, "create")
	add(ccm, "coordination.k8s.io", "leases", "ccm-baremetal", true, "get", "update")
	add(announcer, "", "services", "", false, "list", "watch")
	add(announcer, "", "nodes", "", false, "list", "watch")
	add(announcer, "discovery.k8s.io", "endpointslices", "", false, "list", "watch")
	add(announcer, "", "namespaces", "kube-system", false, "get")
	add(announcer, "", "services/status", "", false, "patch")
	add(announcer, "", "events", "", false, "create", "patch")
	add(announcer, "", "configmaps", "ccm-baremetal-accepted", true, "list", "watch")
	add(announcer, "", "secrets", "ccm-baremetal-gossip", true, "list", "watch")
	return out
}
