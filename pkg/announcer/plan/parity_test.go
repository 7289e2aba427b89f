package plan

import "testing"

// TestParityOwnersFollowSelectorsAndNodes: what users of MetalLB rely on when
// they edit labels of nodes and Services and selectors of advertisements. The
// owner of the address at each step follows from the cluster at that step
// alone, so what moves away comes back.
func TestParityOwnersFollowSelectorsAndNodes(t *testing.T) {
	const service = `services: {shop/web: {addresses: [192.0.2.10], ready: [n1, n2], labels: {app: web}}}`
	const three = "nodes: {n1: {labels: {name: n1}}, n2: {labels: {name: n2}}, n3: {labels: {name: n3}}}\n"
	edge := func(selector string) string {
		return "advertisements: [{name: edge, nodeSelector: \"" + selector + "\", layer2: {}}]"
	}
	type step struct{ document, cluster, owner string }
	for _, c := range []struct {
		what  string
		steps []step
	}{
		{"the owner's network is unavailable, and available again", []step{
			{``, three + service, "n2"},
			{``, "nodes: {n1: {}, n2: {networkUnavailable: true}, n3: {}}\n" + service, "n3"},
			{``, three + service, "n2"},
		}},
		{"the owner gets the exclude label, and loses it", []step{
			{``, three + service, "n2"},
			{``, "nodes: {n1: {}, n2: {labels: {node.kubernetes.io/exclude-from-external-load-balancers: \"\"}}, n3: {}}\n" + service, "n3"},
			{``, three + service, "n2"},
		}},
		{"a selector with each node in turn", []step{
			{edge("name=n1"), three + service, "n1"},
			{edge("name=n2"), three + service, "n2"},
			{edge("name=n3"), three + service, "n3"},
		}},
		{"policy Local, one advertisement for a node without endpoint and one for all", []step{
			{"advertisements: [{name: one, nodeSelector: name=n3, layer2: {}}, {name: all, layer2: {}}]", three +
				`services: {shop/web: {addresses: [192.0.2.10], local: true, ready: [n1]}}`, "n1"},
		}},
		{"no node matches until one is labelled", []step{
			{edge("edge=true"), three + service, ""},
			{edge("edge=true"), "nodes: {n1: {labels: {edge: \"true\"}}, n2: {}, n3: {}}\n" + service, "n1"},
		}},
		{"the Service's labels stop matching, and match again", []step{
			{"advertisements: [{name: web, serviceSelector: app=web, layer2: {}}]", three + service, "n2"},
			{"advertisements: [{name: web, serviceSelector: app=web, layer2: {}}]", three +
				`services: {shop/web: {addresses: [192.0.2.10], ready: [n1, n2], labels: {app: other}}}`, ""},
			{"advertisements: [{name: web, serviceSelector: app=web, layer2: {}}]", three + service, "n2"},
		}},
		{"two advertisements with a node each", []step{
			{"advertisements: [{name: a, nodeSelector: name=n1, layer2: {}}, {name: b, nodeSelector: name=n3, layer2: {}}]", three + service, "n3"},
		}},
		{"one advertisement matches the Service, another one nodes, none both", []step{
			{"advertisements: [{name: a, serviceSelector: app=web, nodeSelector: name=n9, layer2: {}}, {name: b, serviceSelector: app=other, layer2: {}}]", three + service, ""},
		}},
		{"one of several service selectors is enough", []step{
			{"advertisements: [{name: a, serviceSelector: [app=other, app=web], layer2: {}}]", three + service, "n2"},
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			for i, s := range c.steps {
				verdicts := Decide(cluster(t, s.document+"\n", s.cluster))
				if len(verdicts) != 1 || verdicts[0].Owner != s.owner {
					t.Errorf("step %d: %+v, want the owner %q", i+1, verdicts, s.owner)
				}
			}
		})
	}
}
