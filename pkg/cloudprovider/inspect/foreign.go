package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/migrate"
)

// foreign are the objects of other products in a cluster: of each the paths
// under which an API server may have it, of which the first that is there counts.
var foreign = [][]string{
	{"/apis/metallb.io/v1beta1/ipaddresspools"},
	{"/apis/metallb.io/v1beta1/addresspools"},
	{"/apis/metallb.io/v1beta1/l2advertisements"},
	{"/apis/metallb.io/v1beta1/bgpadvertisements"},
	{"/apis/metallb.io/v1beta2/bgppeers", "/apis/metallb.io/v1beta1/bgppeers"},
	{"/apis/metallb.io/v1beta1/communities"},
	{"/apis/metallb.io/v1beta1/bfdprofiles"},
	{"/api/v1/namespaces/metallb-system/configmaps/config"},
	{"/apis/apps/v1/namespaces/metallb-system/daemonsets/speaker", "/apis/apps/v1/namespaces/metallb-system/daemonsets/metallb-speaker"}, // by manifests, by its chart
	{"/apis/frrk8s.metallb.io/v1beta1/frrconfigurations"},
	{"/api/v1/namespaces/kube-system/configmaps/kubevip"},
	{"/api/v1/namespaces/kube-system/configmaps/plndr"},
	{"/apis/cilium.io/v2/ciliumloadbalancerippools", "/apis/cilium.io/v2alpha1/ciliumloadbalancerippools"},
	{"/apis/cilium.io/v2/ciliuml2announcementpolicies", "/apis/cilium.io/v2alpha1/ciliuml2announcementpolicies"},
	{"/apis/cilium.io/v2alpha1/ciliumbgppeeringpolicies"},
	{"/apis/cilium.io/v2/ciliumbgpclusterconfigs", "/apis/cilium.io/v2alpha1/ciliumbgpclusterconfigs"},
	{"/apis/cilium.io/v2/ciliumbgppeerconfigs", "/apis/cilium.io/v2alpha1/ciliumbgppeerconfigs"},
	{"/apis/cilium.io/v2/ciliumbgpadvertisements", "/apis/cilium.io/v2alpha1/ciliumbgpadvertisements"},
	{"/apis/cilium.io/v2/ciliumbgpnodeconfigoverrides", "/apis/cilium.io/v2alpha1/ciliumbgpnodeconfigoverrides"},
	{"/apis/purelb.io/v2/servicegroups", "/apis/purelb.io/v1/servicegroups"},
	{"/apis/purelb.io/v2/lbnodeagents", "/apis/purelb.io/v1/lbnodeagents"},
}

// A reading is what a cluster has of other products.
type reading struct {
	sources []migrate.Source
	unread  []migrate.Remark // what may not be read: losses, as nobody knows what is in it
	absent  []migrate.Remark // kinds of a product that is there otherwise: notes
}

// readForeign reads the objects of other products.
func readForeign(ctx context.Context, client rest.Interface) (reading, error) {
	var out reading
	missing, there := map[string][]string{}, map[string]bool{}
	for _, paths := range foreign {
		found := false
		for _, path := range paths {
			text, err := client.Get().AbsPath(path).DoRaw(ctx)
			switch {
			case apierrors.IsNotFound(err):
				continue
			case apierrors.IsForbidden(err):
				out.unread = append(out.unread, migrate.Remark{Source: "cluster", Path: path, Message: "not read, and so not carried over: you have no right to"})
			case err != nil:
				return reading{}, fmt.Errorf("read %s: %w", path, err)
			default:
				out.sources = append(out.sources, migrate.Source{Name: "cluster", Text: text})
			}
			found = true
			break
		}
		if group, kind, ok := groupOf(paths[0]); ok && found {
			there[group] = true
		} else if ok {
			missing[group] = append(missing[group], kind)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(there)) {
		if kinds := missing[group]; len(kinds) > 0 {
			out.absent = append(out.absent, migrate.Remark{Source: "cluster", Path: group,
				Message: "the API server does not have these kinds, so nothing can be in them: " + strings.Join(kinds, ", ")})
		}
	}
	return out, nil
}

// groupOf returns the API group and the resource of a path to all objects of a
// kind; not of a path to a single object.
func groupOf(path string) (group, resource string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/apis/"), "/")
	if len(parts) != 3 || parts[0] == "" {
		return "", "", false
	}
	return parts[0], parts[2], true
}
