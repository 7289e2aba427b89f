package source

import (
	"iter"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// apiService is the Service of the API server, whose addresses are reserved.
const apiService = "default/kubernetes"

// slice is an EndpointSlice as far as announcing is concerned: not which
// endpoints there are, only where.
type slice struct {
	service     string // namespace/name of the Service
	ready       []string
	terminating []string

	nodelessReady, nodelessTerminating bool

	reserved []netip.Addr // the endpoints themselves, of the API server only
}

// convertSlice drops slices that belong to no Service, and those of host
// names, to which nothing can be forwarded. Hints say which clients prefer an
// endpoint, not whether it serves, so they are ignored.
func convertSlice(o *discoveryv1.EndpointSlice) (slice, bool) {
	name := o.Labels[discoveryv1.LabelServiceName]
	if name == "" || o.AddressType == discoveryv1.AddressTypeFQDN {
		return slice{}, false
	}
	s := slice{service: o.Namespace + "/" + name}
	for _, endpoint := range o.Endpoints {
		s.add(endpoint)
		if s.service == apiService {
			s.reserved = append(s.reserved, endpointAddresses(endpoint)...)
		}
	}
	s.ready, s.terminating = sorted(s.ready), sorted(s.terminating)
	return s, true
}

func (s *slice) add(endpoint discoveryv1.Endpoint) {
	ready, terminating := usable(endpoint.Conditions)
	named := endpoint.NodeName != nil && *endpoint.NodeName != ""
	switch {
	case ready && named:
		s.ready = append(s.ready, *endpoint.NodeName)
	case ready:
		s.nodelessReady = true
	case terminating && named:
		s.terminating = append(s.terminating, *endpoint.NodeName)
	case terminating:
		s.nodelessTerminating = true
	}
}

// usable reads the conditions as the API defines them: a missing ready means
// true, a missing serving means the same as ready, a missing terminating false.
func usable(c discoveryv1.EndpointConditions) (ready, servesWhileTerminating bool) {
	ready = c.Ready == nil || *c.Ready
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	return ready, !ready && serving && c.Terminating != nil && *c.Terminating
}

func endpointAddresses(endpoint discoveryv1.Endpoint) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range endpoint.Addresses {
		if address, ok := parseAddr(text); ok {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// merge puts the slices of one Service together. The same endpoint may be in
// two of them while the controller moves it.
func merge(parts iter.Seq[slice]) plan.Endpoints {
	var all slice
	for part := range parts {
		all.ready = append(all.ready, part.ready...)
		all.terminating = append(all.terminating, part.terminating...)
		all.nodelessReady = all.nodelessReady || part.nodelessReady
		all.nodelessTerminating = all.nodelessTerminating || part.nodelessTerminating
	}
	return plan.Endpoints{
		Ready:       sorted(all.ready),
		Terminating: sorted(all.terminating),
		Nodeless:    all.nodelessReady || all.nodelessTerminating && len(all.ready) == 0,
	}
}

// sorted sorts in place and drops repetitions, and what they took in memory.
func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Clip(slices.Compact(names))
}
