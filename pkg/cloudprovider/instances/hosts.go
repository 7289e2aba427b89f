package instances

import (
	"k8s.io/client-go/tools/cache"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
)

// Indices of the kept BareMetalHosts.
const (
	byUID      = "uid"
	byConsumer = "consumer"
	byName     = "name"
)

var hostIndexers = cache.Indexers{
	byUID:      index(func(h decide.Host) string { return h.UID }),
	byConsumer: index(func(h decide.Host) string { return h.Consumer.Name }),
	byName:     index(func(h decide.Host) string { return h.Name }),
}

func index(of func(decide.Host) string) cache.IndexFunc {
	return func(obj any) ([]string, error) { return []string{of(obj.(*kept).host)}, nil }
}

// hosts are the BareMetalHosts as they were last known; the zero hosts are
// none. They implement decide.Hosts.
type hosts struct {
	hosts, hardware cache.Indexer
}

var _ decide.Hosts = hosts{}

// ByUID returns the hosts with a UID.
func (h hosts) ByUID(uid string) []decide.Host { return h.find(byUID, uid) }

// ByConsumer returns the hosts that something of a name uses.
func (h hosts) ByConsumer(name string) []decide.Host { return h.find(byConsumer, name) }

// ByName returns the hosts of a name.
func (h hosts) ByName(name string) []decide.Host { return h.find(byName, name) }

func (h hosts) find(index, value string) []decide.Host {
	if h.hosts == nil {
		return nil
	}
	found, _ := h.hosts.ByIndex(index, value) // fails for an unknown index only
	var out []decide.Host
	for _, obj := range found {
		out = append(out, h.whole(obj))
	}
	return out
}

// named returns the host that a providerID names, nil if there is none.
func (h hosts) named(id decide.ProviderID) *decide.Host {
	if id.Form == decide.FormUID {
		if found := h.ByUID(id.UID); len(found) == 1 {
			return &found[0]
		}
		return nil
	}
	if h.hosts == nil {
		return nil
	}
	obj, ok, _ := h.hosts.GetByKey(id.Namespace + "/" + id.Host) // reads from memory
	if !ok {
		return nil
	}
	host := h.whole(obj)
	return &host
}

// whole returns a host together with its HardwareData, which has its name.
func (h hosts) whole(obj any) decide.Host {
	host := obj.(*kept).host
	if h.hardware == nil {
		return host
	}
	if data, ok, _ := h.hardware.GetByKey(host.Namespace + "/" + host.Name); ok { // reads from memory
		data.(*kept).hardware.addTo(&host)
	}
	return host
}

// len counts the hosts.
func (h hosts) len() int {
	if h.hosts == nil {
		return 0
	}
	return len(h.hosts.ListKeys())
}
