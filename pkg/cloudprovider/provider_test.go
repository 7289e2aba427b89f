package cloudprovider

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/cloud-provider/names"
)

func TestProviderIsForLoadBalancersAndNodesAndNothingElse(t *testing.T) {
	p := provider(fake.NewClientset())
	if _, supported := p.InstancesV2(); !supported {
		t.Error("Nodes are not supported")
	}
	_, instances := p.Instances()
	_, zones := p.Zones()
	_, clusters := p.Clusters()
	_, routes := p.Routes()
	if instances || zones || clusters || routes {
		t.Error("more than that is supported")
	}
	if p.ProviderName() != "baremetal" || !p.HasClusterID() {
		t.Errorf("name %q, cluster ID %v", p.ProviderName(), p.HasClusterID())
	}
	p.Initialize(nil, nil)
}

func TestControllersAndTheirAliases(t *testing.T) {
	want := []string{
		"cloud-node-controller", "cloud-node-lifecycle-controller", "configuration-controller", "gossip-key-controller", "node-label-controller", "service-lb-controller",
	}
	if got := slices.Sorted(maps.Keys(Controllers())); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for alias, name := range Aliases() {
		if _, ok := Controllers()[name]; !ok || names.CCMControllerAliases()[alias] != name {
			t.Errorf("alias %s of %s is not the framework's", alias, name)
		}
	}
}

func TestHostOfTheAPIServerIsReservedIfItIsAnAddress(t *testing.T) {
	for server, want := range map[string]string{
		"https://192.0.2.1:6443":     "192.0.2.1",
		"https://[2001:db8::1]:6443": "2001:db8::1",
		"192.0.2.1:6443":             "192.0.2.1",
		"192.0.2.1":                  "192.0.2.1",
		"https://api.example.com":    "",
		"":                           "",
		"https://%zz":                "",
	} {
		got := host(server)
		if want == "" && len(got) != 0 || want != "" && !slices.Equal(got, []netip.Addr{netip.MustParseAddr(want)}) {
			t.Errorf("%q: %v", server, got)
		}
	}
}
