package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/eventtext"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// byExternalIP is the index of Services by the addresses in spec.externalIPs.
const byExternalIP = "external IP"

func externalIPIndex() cache.Indexers {
	return cache.Indexers{byExternalIP: func(obj any) ([]string, error) {
		var out []string
		if svc, ok := obj.(*v1.Service); ok {
			for _, a := range externalIPs(svc) {
				out = append(out, a.String())
			}
		}
		return out, nil
	}}
}

// externalIPs returns the addresses in spec.externalIPs, sorted.
func externalIPs(svc *v1.Service) []netip.Addr {
	var out []netip.Addr
	for _, text := range svc.Spec.ExternalIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// externalNews is what is told of the external IPs that a Service has got: was
// is how it was before, nil if it is new. kube-proxy sends what arrives for an
// external IP to its Service, whoever was given that address.
func (b *Balancer) externalNews(was, is *v1.Service) []event {
	before := []netip.Addr(nil)
	if was != nil {
		before = externalIPs(was)
	}
	var out []event
	for _, a := range externalIPs(is) {
		if slices.Contains(before, a) {
			continue
		}
		if why := b.usedAs(a, keyOf(is)); why != "" {
			out = append(out, event{v1.EventTypeWarning, reasonExternalIP, fmt.Sprintf("external IP %s %s", a, why)})
		}
	}
	return out
}

// usedAs says what an address is to anybody but one Service, "" if nothing.
func (b *Balancer) usedAs(a netip.Addr, but ipam.Key) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	holders := b.alloc.Holders(a)
	others := slices.DeleteFunc(slices.Clone(holders), func(key ipam.Key) bool { return key == but })
	if len(others) > 0 {
		return "is the address of " + joined(others)
	}
	if pool, ok := b.config.PoolOf(a); ok && len(holders) == 0 {
		return fmt.Sprintf("lies in pool %q and may be given to another Service", pool.Name)
	}
	return ""
}

// externalConflicts is what is told of addresses that a Service was given just
// now and that are external IPs of others.
func externalConflicts(svc *v1.Service, given []netip.Addr, index cache.Indexer) []event {
	var out []event
	for _, a := range given {
		users, _ := index.IndexKeys(byExternalIP, a.String()) // the only error is that there is no such index
		users = slices.DeleteFunc(users, func(key string) bool { return key == string(keyOf(svc)) })
		if len(users) > 0 {
			slices.Sort(users)
			out = append(out, event{v1.EventTypeWarning, reasonExternalIP,
				eventtext.Limit(fmt.Sprintf("%s is an external IP of %s, which gets what arrives for it on ports of its own", a, strings.Join(users, ", ")))})
		}
	}
	return out
}

func joined(keys []ipam.Key) string {
	out := make([]string, 0, len(keys))
	for _, key := range keys {
		out = append(out, string(key))
	}
	return strings.Join(out, ", ")
}
