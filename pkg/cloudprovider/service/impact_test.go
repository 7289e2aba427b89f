package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

func TestImpactCountsServicesThatWouldNotBeOursAnyMore(t *testing.T) {
	api := newAPIServer()
	l := lead(t, api, pool(4))
	for i := range 3 {
		api.create(lb(fmt.Sprintf("s%d", i)))
		api.awaitAddress(t, fmt.Sprintf("web/s%d", i))
	}
	l.settle(t)
	lost, inUse, err := l.Impact(context.Background(), load(t, "services: {handleUnclassed: false}\n"+pool(4)))
	if err != nil || len(lost) != 3 || inUse != 3 {
		t.Errorf("lost %q of %d, %v", lost, inUse, err)
	}
	lost, _, _ = l.Impact(context.Background(), load(t, pool(5)))
	if len(lost) != 0 {
		t.Errorf("a larger pool would lose %q", lost)
	}
}

func TestImpactWaitsForTheServices(t *testing.T) {
	for name, document := range map[string]string{"with a configuration": pool(4), "without one": ""} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer()
			release := make(chan struct{})
			api.set(func(s *apiserver) { s.onList = func() { <-release } })
			l := lead(t, api, document)
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			if _, _, err := l.Impact(ctx, config.Config{}); err == nil {
				t.Error("an answer before the services are known")
			}
			close(release)
			if _, _, err := l.Impact(context.Background(), load(t, pool(4))); err != nil {
				t.Error(err)
			}
		})
	}
}

// machine is a Node with labels, each written as key=value.
func machine(name string, labels ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	return n
}

func labelled(key, value string) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Labels = map[string]string{key: value} }
}

// restored is a Balancer that knows what Services hold under a configuration.
func restored(c config.Config, services []*v1.Service) *Balancer {
	b := NewBalancer(func(string) map[string]string { return nil })
	b.Configure(c, ipam.Cluster{})
	b.Restore(services)
	return b
}

func TestImpactCountsAddressesThatNoNodeWouldAnnounceAnyMore(t *testing.T) {
	const edge = pools2 + "advertisements:\n- {name: a, pools: [public], nodeSelector: edge=true, layer2: {}}\n- {name: b, pools: [inner], layer2: {}}\n"
	services := []*v1.Service{
		lb("one", given(time.Hour, "192.0.2.10"), labelled("app", "x")),
		lb("two", given(time.Hour, "192.0.2.11")),
		lb("inner", given(time.Hour, "198.51.100.1")),
		lb("outside", given(time.Hour, "203.0.113.1")),
	}
	nodes := []*v1.Node{machine("n1", "edge=true"), machine("n2", config.LabelExclude+"="), machine("w", "kubernetes.io/os=windows", "edge=no")}
	all := []string{"web/one 192.0.2.10", "web/two 192.0.2.11", "web/inner 198.51.100.1", "web/outside 203.0.113.1"}
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"the same":                       {edge, edge, nil},
		"everything":                     {edge, pools2, nil},
		"another node":                   {edge, strings.Replace(edge, "edge=true", "edge=false", 1), all[:2]},
		"no node for any":                {pools2, pools2 + "advertisements: [{name: a, nodeSelector: no=where, layer2: {}}]\n", all},
		"windows":                        {pools2, pools2 + "advertisements: [{name: a, nodeSelector: edge=no, layer2: {}}]\n", all},
		"by Services":                    {pools2, pools2 + "advertisements: [{name: a, serviceSelector: app=x, layer2: {}}]\n", all[1:]},
		"a pool without one":             {pools2, pools2 + "advertisements: [{name: a, pools: [public], layer2: {}}]\n", all[2:3]},
		"silent before as well":          {pools2 + "advertisements: [{name: a, nodeSelector: no=where, layer2: {}}]\n", pools2 + "advertisements: [{name: a, nodeSelector: no, layer2: {}}]\n", nil},
		"excluded, as the label says":    {"excludeLabel: ignore\n" + onExcluded, onExcluded, all},
		"excluded before, and no longer": {onExcluded, "excludeLabel: ignore\n" + onExcluded, nil},
	} {
		t.Run(name, func(t *testing.T) {
			impact := restored(load(t, c.before), services).Impact(load(t, c.after), services, nodes)
			var got []string
			for _, e := range impact.Effects {
				if e.Fate != Unannounced || !strings.Contains(e.Message, string(e.Service)) {
					t.Errorf("%+v", e)
				}
				got = append(got, fmt.Sprintf("%s %s", e.Service, e.Address))
			}
			want := slices.Clone(c.want)
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" || impact.InUse != 4 {
				t.Errorf("of %d, -want +got\n%s", impact.InUse, diff)
			}
		})
	}
}

const (
	pools2     = "pools:\n- {name: public, addresses: [192.0.2.10-192.0.2.19]}\n- {name: inner, addresses: [198.51.100.1]}\n"
	onExcluded = pools2 + "advertisements: [{name: a, nodeSelector: " + config.LabelExclude + ", layer2: {}}]\n"
)

func TestSharedAddressCountsOnceAndIsAnnouncedIfOneOfItsServicesIs(t *testing.T) {
	shared := func(name, app string, port int32) *v1.Service {
		return lb(name, given(time.Hour, "192.0.2.10"), labelled("app", app), func(svc *v1.Service) {
			svc.Annotations = map[string]string{wish.AnnotationSharingKey: "k"}
			svc.Spec.Ports[0].Port = port
		})
	}
	services := []*v1.Service{shared("a", "x", 80), shared("b", "y", 81)}
	b := restored(load(t, pools2), services)
	nodes := []*v1.Node{machine("n1")}
	if impact := b.Impact(load(t, pools2+"advertisements: [{name: a, serviceSelector: app=x, layer2: {}}]\n"), services, nodes); len(impact.Effects) != 0 || impact.InUse != 1 {
		t.Errorf("%+v", impact)
	}
	impact := b.Impact(load(t, pools2+"advertisements: [{name: a, serviceSelector: app=z, layer2: {}}]\n"), services, nodes)
	if len(impact.Effects) != 2 || len(impact.Addresses()) != 1 {
		t.Errorf("%+v", impact)
	}
}

func TestImpactTellsWhereServicesMove(t *testing.T) {
	services := []*v1.Service{lb("a", given(time.Hour, "192.0.2.10")), lb("b", given(2*time.Hour, "192.0.2.11"))}
	for i, svc := range services {
		svc.UID = "u" + svc.UID
		svc.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(i-10) * time.Hour))
	}
	b := restored(load(t, "pools:\n- {name: public, addresses: [192.0.2.10-192.0.2.11]}\n"), services)
	after := load(t, "pools:\n- {name: public, addresses: [192.0.2.10-192.0.2.11], namespaces: [other], onMismatch: reassign}\n- {name: new, addresses: [198.51.100.1]}\n")
	got := b.Impact(after, services, nil)
	if len(got.Effects) != 1 || got.Effects[0].Fate != Moved || got.Effects[0].To.String() != "198.51.100.1" || got.InUse != 2 {
		t.Errorf("%+v", got)
	}
}

func TestFirstImpactGoesByWhatTheServicesSay(t *testing.T) {
	class := "example.org/other"
	services := []*v1.Service{
		lb("kept", given(time.Hour, "192.0.2.10")),
		lb("outside", given(time.Hour, "203.0.113.1")), // kept as well
		lb("moved", given(time.Hour, "198.51.100.1")),
		lb("foreign", given(time.Hour, "192.0.2.11"), func(svc *v1.Service) { svc.Spec.LoadBalancerClass = &class }),
		lb("adopted", showing("192.0.2.12")), // was not given by us
		lb("new"),
		lb("left", given(time.Hour, "192.0.2.13"), func(svc *v1.Service) { svc.Spec.Type = v1.ServiceTypeClusterIP }),
	}
	document := "pools:\n- {name: public, addresses: [192.0.2.10-192.0.2.19]}\n- {name: inner, addresses: [198.51.100.1], namespaces: [x], onMismatch: reassign}\n"
	impact := NewBalancer(func(string) map[string]string { return nil }).FirstImpact(load(t, document), Survey{Services: services}, time.Now())
	var got []string
	for _, e := range impact.Effects {
		got = append(got, fmt.Sprintf("%s %s %s", e.Service, e.Address, e.Fate))
	}
	want := []string{"web/foreign 192.0.2.11 Lost", "web/moved 198.51.100.1 Moved"}
	if diff := cmp.Diff(want, got); diff != "" || impact.InUse != 4 {
		t.Errorf("of %d, -want +got\n%s", impact.InUse, diff)
	}
}
