package config

import (
	"slices"
	"strings"

	"go4.org/netipx"
)

// defaultName is what a pool or an advertisement is called that is the only
// one without a name.
const defaultName = "default"

// assemble makes the Config, with the checks that need several values.
func (d *decoder) assemble(doc documentDoc) Config {
	c := Config{
		ClusterName:  doc.clusterName,
		Services:     doc.services,
		Membership:   doc.membership,
		ExcludeLabel: doc.excludeLabel, DataPathCheck: doc.dataPathCheck,
	}
	for i, name := range d.poolNames(doc.pools) {
		pool := d.pool(doc.pools[i].value)
		pool.Name = name
		c.Pools = append(c.Pools, pool)
	}
	d.disjoint(doc.pools, c.Pools)
	c.BGP = d.bgp(doc.bgp)
	for i, name := range d.advertisementNames(doc.advertisements) {
		advertisement := d.advertisement(doc.advertisements[i], doc, c)
		advertisement.Name = name
		c.Advertisements = append(c.Advertisements, advertisement)
	}
	c.Nodes = d.nodes(doc.nodes, c.Pools)
	d.communities(doc.advertisements, c.Advertisements)
	d.preferences(doc.advertisements, c.Advertisements)
	if len(c.Advertisements) == 0 {
		layer2 := defaultLayer2()
		c.Advertisements = []Advertisement{{Name: defaultName, Layer2: &layer2}}
	}
	return c
}

// entity is something that has a name of its own.
type entity struct {
	at   place
	name placed[string]
}

func (d *decoder) poolNames(pools []placed[poolDoc]) []string {
	var entities []entity
	for _, p := range pools {
		entities = append(entities, entity{p.place, p.value.name})
	}
	return d.names("pool", entities)
}

func (d *decoder) advertisementNames(advertisements []placed[advertisementDoc]) []string {
	var entities []entity
	for _, a := range advertisements {
		entities = append(entities, entity{a.place, a.value.name})
	}
	return d.names("advertisement", entities)
}

// names returns a name for each entity, and reports names that several have.
func (d *decoder) names(what string, entities []entity) []string {
	names := make([]string, len(entities))
	first := map[string]entity{}
	var unnamed place
	for i, e := range entities {
		name, at := e.name.value, e.name.place
		switch {
		case name != "":
		case unnamed.path != "":
			d.fail(e.at, "has no name, and neither has %s: only one %s can go without", unnamed, what)
			continue
		default:
			name, at, unnamed = defaultName, e.at, e.at
		}
		if before, taken := first[name]; taken {
			d.fail(at, "the %s name %s is taken already: by %s", what, quote(name), before.at)
			continue
		}
		first[name] = e
		names[i] = name
	}
	return names
}

// pool works out what addresses, exclude and reservations leave.
func (d *decoder) pool(doc poolDoc) Pool {
	d.apart(doc.addresses.items)
	whole := union(doc.addresses.items)
	pool := doc.Pool
	pool.Ranges = minus(whole, union(doc.exclude.items)).Ranges()
	reserved := d.reservations(doc.reservations, &pool)
	if !doc.addresses.broken {
		d.within(doc.exclude.items, whole.Ranges(), "not in the pool's addresses")
		inside := d.within(reserved, whole.Ranges(), "not in the pool's addresses")
		d.within(inside, pool.Ranges, "excluded")
	}
	return pool
}

// reservations adds the reservations to the pool and returns all their items.
func (d *decoder) reservations(docs []placed[reservationDoc], pool *Pool) []item {
	var reserved []item
	first := map[string]place{}
	for _, r := range docs {
		service, items := r.value.service, r.value.addresses.items
		before, twice := first[service]
		switch {
		case service == "":
		case twice:
			d.fail(r.place, "%s has a reservation in this pool already: %s", service, before)
		default:
			first[service] = r.place
		}
		namespace, name, _ := strings.Cut(service, "/")
		pool.Reservations = append(pool.Reservations, Reservation{
			Namespace: namespace, Name: name, Ranges: union(items).Ranges(),
		})
		reserved = append(reserved, items...)
	}
	d.apart(reserved)
	return reserved
}

// within reports the items with an address that is in none of the ranges, and
// returns the others.
func (d *decoder) within(items []item, ranges []netipx.IPRange, fault string) []item {
	var inside []item
	for _, it := range items {
		addr, found := outside(ranges, it.span)
		switch {
		case !found:
			inside = append(inside, it)
		case it.span.From() == it.span.To():
			d.fail(it.place, "%s is %s", quote(it.text), fault)
		default:
			d.fail(it.place, "%s: %s is %s", quote(it.text), addr, fault)
		}
	}
	return inside
}

// advertisement checks that the pools and peers exist, and that it says how to
// announce.
func (d *decoder) advertisement(from placed[advertisementDoc], all documentDoc, c Config) Advertisement {
	doc := from.value
	advertisement := doc.Advertisement
	advertisement.Layer2 = doc.layer2.value
	var known, names []string
	for _, p := range c.Pools {
		names = append(names, p.Name)
		if p.Name != "" {
			known = append(known, p.Name)
		}
	}
	if doc.layer2.value == nil && doc.bgp.value == nil {
		d.fail(from.place, "says neither layer2 nor bgp: nobody would announce anything; for example layer2: {}")
	}
	for _, name := range doc.pools {
		if !slices.Contains(known, name.value) {
			d.fail(name.place, "there is no pool %s; the pools are %s", quote(name.value), strings.Join(known, ", "))
		}
		advertisement.Pools = append(advertisement.Pools, name.value)
	}
	if doc.bgp.value != nil {
		advertisement.BGP = d.bgpAdvertisement(doc.bgp.place, *doc.bgp.value, c.BGP, all.bgp.aliases)
		d.aggregates(*doc.bgp.value, advertisement.Pools, all.pools, names)
	}
	return advertisement
}

// union is the set of addresses in any of the items.
func union(items []item) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, it := range items {
		b.AddRange(it.span)
	}
	return built(&b)
}

// minus is the set of addresses in a and not in b.
func minus(a, b *netipx.IPSet) *netipx.IPSet {
	var out netipx.IPSetBuilder
	out.AddSet(a)
	out.RemoveSet(b)
	return built(&out)
}

// built returns what a builder has collected. A builder complains of invalid
// ranges only, and every item is a valid one.
func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	set, err := b.IPSet()
	if err != nil {
		panic(err)
	}
	return set
}
