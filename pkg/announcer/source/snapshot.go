package source

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Members is this node's view of the announcers.
type Members interface {
	// Members returns the live announcers, sorted by name, or an error that
	// says what the membership waits for.
	Members() ([]plan.Member, error)

	// Returns counts how often a member came back that had been alive meanwhile.
	Returns() int

	// Isolated tells whether nothing has come from any of them for a while.
	Isolated() bool

	// Settling tells whether this node has come back so lately, or so often,
	// that others are to be preferred.
	Settling() bool
}

// Source is a World and the members: all that a decision depends on.
type Source struct {
	world   *World
	members Members
}

// With completes the World to a Source.
func (w *World) With(members Members) *Source { return &Source{world: w, members: members} }

// Snapshot returns the current state, or an error that names what is not known
// yet. Once it has succeeded it never fails again. The caller may keep what it
// gets: nobody changes it.
func (s *Source) Snapshot() (plan.Snapshot, error) {
	snapshot, err := s.world.snapshot()
	if err != nil {
		return plan.Snapshot{}, err
	}
	snapshot.Members, err = s.members.Members()
	if err != nil {
		return plan.Snapshot{}, fmt.Errorf("waiting for %w", err)
	}
	snapshot.Returns, snapshot.Isolated = s.members.Returns(), s.members.Isolated()
	snapshot.Self = s.world.standing(snapshot.Members)
	snapshot.Self.Settling = s.members.Settling()
	return snapshot, nil
}

// Known returns nil once everything but the members is known, else what is missing.
func (w *World) Known() error {
	_, err := w.snapshot()
	return err
}

func (w *World) snapshot() (plan.Snapshot, error) {
	c, configErr := w.Config()
	links, linksErr := w.o.Links.current()
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []string
	for what, unknown := range map[string]bool{
		"Services": !w.services.synced, "EndpointSlices": !w.slices.synced,
		"Nodes": !w.nodes.synced, "Service " + apiService: !w.api.synced,
	} {
		if unknown {
			missing = append(missing, w.reach.missing(what))
		}
	}
	for _, err := range []error{configErr, linksErr} {
		if err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return plan.Snapshot{}, fmt.Errorf("waiting for %s", strings.Join(missing, ", "))
	}
	return plan.Snapshot{
		Node:     w.o.Node,
		Config:   c,
		Services: w.servicesView(c),
		Nodes:    w.nodesView(),
		Links:    w.linksView(links, c),
		Reserved: w.reservedView(),
	}, nil
}

// fewChanges is up to how many changed Services are put into their places one
// by one. Beyond, sorting all anew is cheaper.
const fewChanges = 64

// views are the parts of a snapshot, kept from pass to pass because most
// passes change at most one of them. A nil part has to be built again; one
// that was handed out is never changed.
type views struct {
	services  []plan.Service
	hash      string          // of the configuration that services was built with
	outdated  map[string]bool // what has changed since, by namespace/name
	endpoints map[string]plan.Endpoints
	nodes     []plan.Node
	reserved  []netip.Addr
	links     []plan.Link
	linksFrom *linkTable // what links was built from
	linksHash string
}

func (w *World) servicesView(c config.Config) []plan.Service {
	v := &w.views
	switch {
	case v.services == nil || v.hash != c.Hash || len(v.outdated) > fewChanges:
		v.services, v.hash = w.allServices(c), c.Hash
	case len(v.outdated) > 0:
		v.services = slices.Clone(v.services)
		for key := range v.outdated {
			w.place(key, c)
		}
	}
	clear(v.outdated)
	return v.services
}

// allServices builds the sorted list of our Services from nothing.
func (w *World) allServices(c config.Config) []plan.Service {
	list := make([]plan.Service, 0, len(w.services.rows))
	for key := range w.services.rows {
		if s, ok := w.service(key, c); ok {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, byName)
	return list
}

// place puts one Service into the list as it is now, or takes it out.
func (w *World) place(key string, c config.Config) {
	namespace, name, _ := strings.Cut(key, "/")
	at, had := slices.BinarySearchFunc(w.views.services, plan.Service{Namespace: namespace, Name: name}, byName)
	s, has := w.service(key, c)
	switch {
	case had && has:
		w.views.services[at] = s
	case had:
		w.views.services = slices.Delete(w.views.services, at, at+1)
	case has:
		w.views.services = slices.Insert(w.views.services, at, s)
	}
}

// service returns a Service with its endpoints, if it exists and is ours.
func (w *World) service(key string, c config.Config) (plan.Service, bool) {
	s, ok := w.services.rows[key]
	if !ok || !s.ours(c.Services) {
		return plan.Service{}, false
	}
	endpoints, ok := w.views.endpoints[key]
	if !ok {
		endpoints = merge(w.slicesFor(key))
		w.views.endpoints[key] = endpoints
	}
	s.Endpoints = endpoints
	if w.o.Rehearse && !s.judged {
		s.Allocated = s.adoptable(c)
	}
	return s.Service, true
}

func byName(a, b plan.Service) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (w *World) nodesView() []plan.Node {
	if w.views.nodes == nil {
		w.views.nodes = make([]plan.Node, 0, len(w.nodes.rows))
		for _, n := range w.nodes.rows {
			w.views.nodes = append(w.views.nodes, n.Node)
		}
		slices.SortFunc(w.views.nodes, func(a, b plan.Node) int { return cmp.Compare(a.Name, b.Name) })
	}
	return w.views.nodes
}

func (w *World) reservedView() []netip.Addr {
	if w.views.reserved == nil {
		w.views.reserved = []netip.Addr{}
		for _, addresses := range w.api.rows {
			w.views.reserved = append(w.views.reserved, addresses...)
		}
		for part := range w.slicesFor(apiService) {
			w.views.reserved = append(w.views.reserved, part.reserved...)
		}
		slices.SortFunc(w.views.reserved, netip.Addr.Compare)
		w.views.reserved = slices.Compact(w.views.reserved)
	}
	return w.views.reserved
}

func (w *World) linksView(from *linkTable, c config.Config) []plan.Link {
	v := &w.views
	if v.links != nil && v.linksFrom == from && v.linksHash == c.Hash {
		return v.links
	}
	links := make([]plan.Link, 0, len(from.links))
	internal := w.nodes.rows[w.o.Node].internal
	for _, l := range from.links {
		if plan.MayUse(c, l.Name) {
			l.NodeIP = len(internal) > 0 && slices.Contains(l.addresses, internal[0])
			links = append(links, l.Link)
		}
	}
	v.links, v.linksFrom, v.linksHash = links, from, c.Hash
	return links
}

// LeftOut returns the links of this node that carry no announcement whatever
// the decision, by name, each with the cause.
func (w *World) LeftOut() map[string]Cause {
	from, err := w.o.Links.current()
	if err != nil {
		return nil
	}
	out := maps.Clone(from.leftOut)
	if c, err := w.Config(); err == nil {
		for _, l := range from.links {
			if !plan.MayUse(c, l.Name) {
				out[l.Name] = Virtual
			}
		}
	}
	return out
}

// The functions below run when a row has changed, with the mutex held, and
// tell whether a decision could depend on it.

func (w *World) serviceChanged(key string, before, after *service) bool {
	if before != nil && after != nil && sameDecision(*before, *after) {
		return false // our own write mostly; another's is seen by the next pass, whatever causes that
	}
	w.views.outdated[key] = true
	if after == nil {
		delete(w.views.endpoints, key)
	}
	return w.concerns(before) || w.concerns(after)
}

// sameDecision tells whether two states of a Service are the same but for the
// condition that the announcers write themselves.
func sameDecision(a, b service) bool {
	a.announced, b.announced = Announced{}, Announced{}
	return reflect.DeepEqual(a, b)
}

func (w *World) concerns(s *service) bool {
	c, known, _ := w.document.current()
	return s != nil && (!known || s.ours(c.Services))
}

func (w *World) sliceChanged(key string, before, after *slice) bool {
	kick := false
	if before != nil {
		w.disown(before.service, key)
		kick = w.endpointsChanged(before.service)
	}
	if after != nil {
		w.owned[after.service] = append(w.owned[after.service], key)
		kick = w.endpointsChanged(after.service) || kick
	}
	return kick
}

func (w *World) disown(service, key string) {
	rest := slices.DeleteFunc(w.owned[service], func(k string) bool { return k == key })
	if len(rest) == 0 {
		delete(w.owned, service)
		return
	}
	w.owned[service] = rest
}

// slicesFor returns the slices of a Service, in any order.
func (w *World) slicesFor(service string) iter.Seq[slice] {
	return func(yield func(slice) bool) {
		for _, key := range w.owned[service] {
			if !yield(w.slices.rows[key]) {
				return
			}
		}
	}
}

// endpointsChanged tells whether the Service is one of ours. Most are not, and
// their endpoints change all the time.
func (w *World) endpointsChanged(service string) bool {
	delete(w.views.endpoints, service)
	if service == apiService {
		w.views.reserved = nil
		return true
	}
	s, ok := w.services.rows[service]
	if !ok {
		return false
	}
	w.views.outdated[service] = true
	return w.concerns(&s)
}

func (w *World) nodeChanged(name string, _, after *node) bool {
	w.views.nodes = nil
	if name == w.o.Node {
		w.views.links = nil
		w.vitals.noteReady(after == nil || !after.notReady, time.Now())
	}
	return true
}

func (w *World) apiChanged(string, *[]netip.Addr, *[]netip.Addr) bool {
	w.views.reserved = nil
	return true
}

// convertAPI drops all Services but the API server's, which a client that
// ignores field selectors could bring.
func convertAPI(o *corev1.Service) ([]netip.Addr, bool) {
	return clusterIPs(o), o.Namespace+"/"+o.Name == apiService
}
