package inspect

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/migrate"
)

// foreign are the objects of other products in a cluster: of each the paths
// under which an API server may serve it, the newest first.
var foreign = [][]string{
	{"/apis/metallb.io/v1beta1/ipaddresspools"},
	{"/apis/metallb.io/v1beta1/addresspools"},
	{"/apis/metallb.io/v1beta1/l2advertisements"},
	{"/apis/metallb.io/v1beta1/bgpadvertisements"},
	{"/apis/metallb.io/v1beta2/bgppeers", "/apis/metallb.io/v1beta1/bgppeers"},
	{"/apis/metallb.io/v1beta1/communities"},
	{"/apis/metallb.io/v1beta1/bfdprofiles"},
	{"/api/v1/namespaces/metallb-system/configmaps/config"},
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

// readForeign reads the objects of other products. Kinds that the API server
// does not have are left out; one that may not be read is a loss, as nobody
// knows what is in it.
func readForeign(ctx context.Context, client rest.Interface) ([]migrate.Source, []migrate.Remark, error) {
	var out []migrate.Source
	var unread []migrate.Remark
	for _, paths := range foreign {
		for _, path := range paths {
			text, err := client.Get().AbsPath(path).DoRaw(ctx)
			switch {
			case apierrors.IsNotFound(err):
				continue
			case apierrors.IsForbidden(err):
				unread = append(unread, migrate.Remark{Source: "cluster", Path: path, Message: "not read, and so not carried over: you have no right to"})
			case err != nil:
				return nil, nil, fmt.Errorf("read %s: %w", path, err)
			default:
				out = append(out, migrate.Source{Name: "cluster", Text: text})
			}
			break
		}
	}
	return out, unread, nil
}
