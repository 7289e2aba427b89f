package cloudprovider

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/fakeapi"
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

// Without the controller of Services a document is judged all the same, by what
// the Services say that they were given: announcers would obey it.
func TestNodesAloneGetADocument(t *testing.T) {
	var objects []runtime.Object
	for i := range 8 {
		objects = append(objects, fakeapi.Held(fmt.Sprintf("s%d", i), fmt.Sprintf("192.0.2.%d", i)))
	}
	client := fake.NewClientset(objects...)
	p := provider(client)
	p.unbalanced = surveyor(client)
	events := record.NewFakeRecorder(10)
	keeper := document.NewKeeper(&document.ConfigMap{Client: client, Namespace: "kube-system", Events: events}, p, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go keeper.Run(ctx)

	stored := client.CoreV1().ConfigMaps("kube-system")
	wanted := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: document.UserConfigMap}, Data: map[string]string{config.ConfigMapKey: fakeapi.LAN}}
	if _, err := stored.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	accepted := func() string {
		m, err := stored.Get(ctx, document.AcceptedConfigMap, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return m.Data[config.ConfigMapKey]
	}
	eventually(t, "the document is accepted", func() bool { return accepted() == fakeapi.LAN })
	eventually(t, "it is in force", func() bool { return keeper.HealthChecker().Check(nil) == nil })

	wanted.Data[config.ConfigMapKey] = fakeapi.LAN + "services: {handleUnclassed: false, loadBalancerClass: example.org/ours}\n"
	if _, err := stored.Update(ctx, wanted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-events.Events; !strings.Contains(event, "8 of 8 addresses in use would be taken away") || accepted() != fakeapi.LAN {
		t.Errorf("%q, in force:\n%s", event, accepted())
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
