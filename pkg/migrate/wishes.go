package migrate

import (
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/wish"
)

// wishes looks at what Services ask for by annotations that are understood, and
// whether that can be fulfilled. The pools must have their new names.
func (im *importer) wishes() {
	for _, o := range im.of("v1", "Service") {
		spec := o.part("spec")
		if spec.text("type") != "LoadBalancer" {
			continue
		}
		annotations := o.wishes()
		addresses := wish.Addresses(annotations, spec.text("loadBalancerIP"), config.Dialects())
		pools, key := wish.Pools(annotations, config.Dialects()), wish.SharingKey(annotations, config.Dialects())
		o.loseWishes(slices.Concat(addresses.Faults, pools.Faults, key.Faults))
		for _, s := range addresses.Said {
			if s.Dialect == config.KubeVIP {
				o.note("annotation "+s.Where, "read as a wish for that address; where kube-vip's provider wrote it, it is a record and may be removed")
			}
		}
		for _, s := range pools.Said {
			im.checkPools(o, s)
		}
	}
}

// wishes returns the annotations of a Service that are wishes.
func (o *object) wishes() map[string]string {
	annotations := o.object("metadata").object("annotations")
	out := map[string]string{}
	for _, key := range wish.Words(config.Dialects()) {
		out[key] = annotations.text(key)
	}
	return out
}

// unfulfilled is what becomes of a Service whose wishes cannot be understood.
const unfulfilled = "the Service keeps the address that it has, and waits if it has none"

func (o *object) loseWishes(faults []wish.Fault) {
	for _, f := range faults {
		place := f.Where
		if place != wish.InSpec {
			place = "annotation " + place
		}
		o.lose(place, "%s: %s", f.Why(), unfulfilled)
	}
}

// checkPools looks whether the pools that a Service asks for are in the document,
// under the names by which it asks: those of a product, or the new ones in our words.
func (im *importer) checkPools(service *object, s wish.Said) {
	names, place := wish.List(s.Value), "annotation "+s.Where
	var missing []string
	for _, name := range names {
		i := slices.IndexFunc(im.pools, func(p pool) bool {
			return p.product == s.Dialect && p.old == name || s.Dialect == "" && p.Name == name
		})
		switch {
		case i < 0:
			missing = append(missing, name)
		case im.pools[i].Name != name:
			service.lose(place, "the pool %q is called %q now: name that", name, im.pools[i].Name)
		}
	}
	switch {
	case len(missing) == 0:
	case len(missing) == len(names):
		service.lose(place, "the document has no pool %s: %s", quoted(missing), unfulfilled)
	default:
		service.note(place, "the document has no pool %s; an address of the others is given", quoted(missing))
	}
}
