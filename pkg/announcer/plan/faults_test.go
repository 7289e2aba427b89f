package plan

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// cluster reads a cluster in the form of the scenarios, under a configuration
// in the form that users write.
func cluster(t *testing.T, document, text string) Snapshot {
	t.Helper()
	return parseScenario(t, &txtar.Archive{Files: []txtar.File{
		{Name: "config.yaml", Data: []byte(document)}, {Name: "cluster.yaml", Data: []byte(text)},
	}})
}

// wantDeeds compares what the announcers of all nodes do.
func wantDeeds(t *testing.T, s Snapshot, want ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(deeds(s), "\n"), "\n")
	if !slices.Equal(got, want) {
		t.Errorf("the announcers do\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestB015AddressesPutIntoAStatusByHandAreNeverAnnounced(t *testing.T) {
	// The router's address is nobody's that we know of: it is the CCM that does
	// not confirm it. The others are refused even if it did.
	s := cluster(t, ``, `
nodes: {n1: {addresses: [192.0.2.1]}, n2: {addresses: [192.0.2.2]}}
services:
  shop/router: {addresses: [192.0.2.254], unallocated: true, ready: [n1]}
  shop/thief: {addresses: [192.0.2.1, 192.0.2.2, 0.0.0.0, 127.0.0.1, 224.0.0.1, "fe80::1", "::1"], ready: [n1]}
`)
	wantDeeds(t, s, "")
}

func TestB029SharedAddressIsOnlyWhereAllServicesHaveEndpoints(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {}, n2: {}, n3: {}}
services:
  shop/http: {addresses: [192.0.2.40], local: true, ready: [n1, n3]}
  shop/https: {addresses: [192.0.2.40], local: true, ready: [n2, n3]}
`)
	// n1 and n2 serve one of the Services each. That is enough to answer until
	// n3 does, and not enough to be its rival.
	wantDeeds(t, s,
		"n1 would hand over 192.0.2.40 on eth0", "n2 would hand over 192.0.2.40 on eth0", "n3 announces 192.0.2.40 on eth0")
}

func TestB033PartnerOnASharedAddressDoesNotKeepANodeWithoutEndpoints(t *testing.T) {
	text := `
nodes: {n1: {}, n2: {}}
services:
  shop/http: {addresses: [192.0.2.10], local: true, ready: [NODES]}
  shop/https: {addresses: [192.0.2.10], local: true, ready: [NODES]}
`
	before := cluster(t, ``, strings.ReplaceAll(text, "NODES", "n1, n2"))
	wantDeeds(t, before, "n1 would hand over 192.0.2.10 on eth0", "n2 announces 192.0.2.10 on eth0")
	after := cluster(t, ``, strings.ReplaceAll(text, "NODES", "n1"))
	wantDeeds(t, after, "n1 announces 192.0.2.10 on eth0")
}

func TestB045NothingDependsOnNodePorts(t *testing.T) {
	service := reflect.TypeFor[Service]()
	for i := range service.NumField() {
		if name := strings.ToLower(service.Field(i).Name); strings.Contains(name, "port") || strings.Contains(name, "health") {
			t.Errorf("decisions could depend on Service.%s", service.Field(i).Name)
		}
	}
	for _, local := range []string{"false", "true"} {
		s := cluster(t, ``, `
nodes: {n1: {}}
services:
  shop/web: {addresses: [192.0.2.40], ready: [n1], local: `+local+`}
`)
		wantDeeds(t, s, "n1 announces 192.0.2.40 on eth0")
	}
}

func TestB050ServiceThatIsNoLongerOursIsSilentAtOnce(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {}, n2: {}}
services:
  shop/web: {addresses: [192.0.2.10], ready: [n1]}
`)
	before := Decide(s)
	s.Services = nil // it became ExternalName: the source does not bring it any more
	wantDeeds(t, s, "")
	want := []Change{{Address: netip.MustParseAddr("192.0.2.10"), From: "n2", Cause: Released}}
	if got := Diff(before, Decide(s)); !reflect.DeepEqual(got, want) {
		t.Errorf("changes %+v, want %+v", got, want)
	}
}

func TestB055SwitchingTheTrafficPolicyMovesTheAddress(t *testing.T) {
	text := `
nodes: {n1: {}, n2: {}, n3: {}}
services:
  shop/web: {addresses: [192.0.2.11], ready: [n2], local: POLICY}
`
	for policy, owner := range map[string]string{"false": "n1", "true": "n2"} {
		if got := Decide(cluster(t, ``, strings.ReplaceAll(text, "POLICY", policy)))[0].Owner; got != owner {
			t.Errorf("local %s: the owner is %q, want %s", policy, got, owner)
		}
	}
}

func TestB056EndpointsWithoutNodeCountForClusterOnly(t *testing.T) {
	text := `
nodes: {n1: {}}
services:
  shop/external: {addresses: [192.0.2.40], nodeless: true, local: POLICY}
`
	for policy, reason := range map[string]Reason{"false": Owner, "true": NoEndpoints} {
		if got := Decide(cluster(t, ``, strings.ReplaceAll(text, "POLICY", policy)))[0].Reason; got != reason {
			t.Errorf("local %s: %q, want %s", policy, got, reason)
		}
	}
}

func TestB067ExcludeLabelLeavesANodeOutAndSaysSo(t *testing.T) {
	for value, owner := range map[string]string{"": "", "true": "", "anything": "", "false": "n1", "F": "n1"} {
		v := Decide(cluster(t, ``, `
nodes: {n1: {labels: {node.kubernetes.io/exclude-from-external-load-balancers: "`+value+`"}}}
services:
  shop/web: {addresses: [192.0.2.40], ready: [n1]}
`))[0]
		said := slices.Contains(v.Excluded, Exclusion{"n1", ExcludeLabel})
		if v.Owner != owner || said != (owner == "") {
			t.Errorf("value %q: owner %q, left out %v", value, v.Owner, v.Excluded)
		}
	}
}

func TestB068ClusterServiceIsAnnouncedFromANodeWithoutEndpoints(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {}, n2: {announcer: none}, n3: {announcer: none}}
services:
  shop/web: {addresses: [192.0.2.40], ready: [n2, n3]}
`)
	wantDeeds(t, s, "n1 announces 192.0.2.40 on eth0")
}

func TestB071LoserOfAnEndpointIsSilentAtOnceHoweverOftenItFlips(t *testing.T) {
	text := `
nodes: {n1: {}, n2: {}}
services:
  shop/web: {addresses: [192.0.2.40], local: true, ready: [NODE]}
`
	for i := range 200 {
		node := []string{"n1", "n2"}[i%2]
		s := cluster(t, ``, strings.ReplaceAll(text, "NODE", node))
		wantDeeds(t, s, node+" announces 192.0.2.40 on eth0")
	}
}

func TestB071LoserOfALinkIsSilentAtOnce(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {}, n2: {links: {eth0: {prefixes: [192.0.2.0/24], down: true}}}}
services:
  shop/web: {addresses: [192.0.2.40], ready: [n1]}
`)
	wantDeeds(t, s, "n1 announces 192.0.2.40 on eth0")
}

func TestB072FollowerThatGoesAndComesMovesNothing(t *testing.T) {
	text := `
nodes: {n1: {}, n2: {}, n3: {announcer: STATE}}
services:
  shop/a: {addresses: [192.0.2.10], ready: [n1]}
  shop/b: {addresses: [192.0.2.11], ready: [n1]}
  shop/c: {addresses: [192.0.2.12], ready: [n1]}
`
	with := Decide(cluster(t, ``, strings.ReplaceAll(text, "STATE", `""`)))
	without := Decide(cluster(t, ``, strings.ReplaceAll(text, "STATE", "none")))
	if changes := Diff(with, without); len(changes) != 0 {
		t.Errorf("n3 owned nothing and was lost: %+v", changes)
	}
}

func TestB075NodeSelectorKeepsOwnersInTheRightLAN(t *testing.T) {
	text := `
nodes:
  n1: {announcer: STATE, labels: {lan: a}}
  n2: {announcer: none, labels: {lan: a}}
  n3: {labels: {lan: b}, links: {eth0: {prefixes: [203.0.113.0/24], default: true}}}
services:
  shop/web: {addresses: [192.0.2.40], ready: [n3]}
`
	document := `
advertisements:
- {name: a, nodeSelector: lan=a, layer2: {}}
`
	s := cluster(t, document, strings.ReplaceAll(text, "STATE", `""`))
	wantDeeds(t, s, "n1 announces 192.0.2.40 on eth0", "n3 would hand over 192.0.2.40 on eth0")
	s = cluster(t, document, strings.ReplaceAll(text, "STATE", "none"))
	wantDeeds(t, s, "")
	if got := Decide(s)[0].Reason; got != NoEligibleNode {
		t.Errorf("reason %s", got)
	}
}

func TestB079ANodesOwnAddressIsNeverAnnounced(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {addresses: [192.0.2.41, 198.51.100.41]}, n2: {}}
services:
  shop/web: {addresses: [192.0.2.41], ready: [n1]}
  shop/api: {addresses: [198.51.100.41], ready: [n1]}
`)
	wantDeeds(t, s, "")
}

func TestB090SharedLocalAddressHasOneOwner(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {}, n2: {}, n3: {}}
services:
  shop/http: {addresses: [192.0.2.11], local: true, ready: [n1, n2, n3]}
  shop/https: {addresses: [192.0.2.11], local: true, ready: [n1, n2, n3]}
`)
	wantDeeds(t, s,
		"n1 announces 192.0.2.11 on eth0", "n2 would hand over 192.0.2.11 on eth0", "n3 would hand over 192.0.2.11 on eth0")
}

func TestB104NodeWithoutAMatchingLinkNeverWins(t *testing.T) {
	text := `
nodes:
  n1: {links: {eth0: {prefixes: [192.0.2.0/24]}}}
  n2: {links: {eno1: {prefixes: [192.0.2.0/24]}}}
  n3:
    links:
      enp1s0: {prefixes: [192.0.2.0/24], nodeIP: true}
      enp2s0: {prefixes: [192.0.2.0/24]}
      wg0: {prefixes: [192.0.2.0/24]}
services:
  shop/web: {addresses: [192.0.2.10], ready: [n1]}
`
	wantDeeds(t, cluster(t, `
advertisements:
- {name: a, layer2: {interfaces: ["enp*"]}}
`, text), "n3 announces 192.0.2.10 on enp1s0")
	wantDeeds(t, cluster(t, ``, text),
		"n1 would hand over 192.0.2.10 on eth0", "n2 announces 192.0.2.10 on eno1", "n3 would hand over 192.0.2.10 on enp1s0")
}

func TestB107AddressGoesToTheLinkOfItsSubnetNotOfTheDefaultRoute(t *testing.T) {
	s := cluster(t, ``, `
nodes: {n1: {links: {eth0: {prefixes: [198.51.100.11/24]}, eth1: {prefixes: [192.0.2.11/24], default: true}}}}
services:
  shop/a: {addresses: [192.0.2.40], ready: [n1]}
  shop/b: {addresses: [198.51.100.40], ready: [n1]}
`)
	wantDeeds(t, s, "n1 announces 192.0.2.40 on eth1", "n1 announces 198.51.100.40 on eth0")
}

// The rule is documented: who comes back has settled before it takes its
// addresses back, so that one failure breaks long sessions once and not twice
// in a row.
func TestB077ReturnedNodeTakesNothingBackWhileItSettles(t *testing.T) {
	text := `
nodes: {n1: {}, n2: {STATE}, n3: {}}
services:
  shop/web: {addresses: [192.0.2.10], ready: [n1]}
`
	for _, step := range []struct{ state, owner string }{
		{"", "n2"},
		{"announcer: none", "n3"}, // it reboots
		{"announcer: passive, standing: settling", "n3"},
		{"standing: settling", "n3"},
		{"", "n2"},
		{"announcer: draining", "n3"}, // the DaemonSet does not select it any more
	} {
		if got := Decide(cluster(t, ``, strings.ReplaceAll(text, "STATE", step.state)))[0].Owner; got != step.owner {
			t.Errorf("n2 {%s}: the owner is %s, want %s", step.state, got, step.owner)
		}
	}
}
