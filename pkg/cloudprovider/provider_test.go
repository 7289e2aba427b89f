package cloudprovider

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	appconfig "k8s.io/cloud-provider/app/config"
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

// The framework warns about every controller that is left out; so that one who
// wants load balancers only reads no warnings, those are not even shown to it.
func TestControllersThatAreLeftOut(t *testing.T) {
	for _, wanted := range [][]string{
		{"configuration-controller", "gossip-key-controller", "service-lb-controller"},
		{"*", "-cloud-node-controller", "-cloud-node-lifecycle-controller", "-node-label-controller"},
	} {
		c := &appconfig.Config{}
		c.ComponentConfig.Generic.Controllers = wanted
		left := Controllers()
		maps.DeleteFunc(left, Disabled(c.Complete()))
		want := []string{"configuration-controller", "gossip-key-controller", "service-lb-controller"}
		if got := slices.Sorted(maps.Keys(left)); !slices.Equal(got, want) {
			t.Errorf("--controllers=%v leaves %v", wanted, got)
		}
	}
}
