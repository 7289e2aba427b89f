package plan

import (
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// advertisement is one by layer 2, and what it selects in this cluster.
type advertisement struct {
	services config.Selector
	pools    map[string]bool // nil: all
	nodes    []bool          // by place
	layer2   config.Layer2
}

func newAdvertisements(c config.Config, nodes []node) []advertisement {
	var out []advertisement
	for _, from := range c.Advertisements {
		if from.Layer2 == nil {
			continue
		}
		ad := advertisement{services: from.ServiceSelector, layer2: *from.Layer2, nodes: make([]bool, len(nodes))}
		for i := range nodes {
			ad.nodes[i] = from.NodeSelector.Matches(nodes[i].labels())
		}
		for _, name := range from.Pools {
			if ad.pools == nil {
				ad.pools = map[string]bool{}
			}
			ad.pools[name] = true
		}
		out = append(out, ad)
	}
	return out
}

// matching returns those of some advertisements that are for a pool. An
// address in no pool (its pool was removed while a Service kept it) matches
// all of them: a change of the configuration makes nobody silent by surprise.
func (v *view) matching(among []int, pool string) []int {
	other := func(i int) bool {
		ad := &v.advertisements[i]
		return pool != "" && ad.pools != nil && !ad.pools[pool]
	}
	if !slices.ContainsFunc(among, other) {
		return among // as for nearly all addresses
	}
	return slices.DeleteFunc(slices.Clone(among), other)
}

// wishes returns how the node is to announce according to those of some
// advertisements that select it.
func (v *view) wishes(node int, among []int) []config.Layer2 {
	var out []config.Layer2
	for _, i := range among {
		if v.advertisements[i].nodes[node] {
			out = append(out, v.advertisements[i].layer2)
		}
	}
	return out
}

// allWishes is wishes for advertisements that select the node or not.
func (v *view) allWishes(among []int) []config.Layer2 {
	out := make([]config.Layer2, len(among))
	for i, ad := range among {
		out[i] = v.advertisements[ad].layer2
	}
	return out
}

// merge makes one of several ways to announce: the shortest refresh and the
// strictest conflict detection.
func merge(wishes []config.Layer2) config.Layer2 {
	var out config.Layer2
	for i, w := range wishes {
		if i == 0 || w.GratuitousRefresh < out.GratuitousRefresh {
			out.GratuitousRefresh = w.GratuitousRefresh
		}
		if i == 0 || strictness(w.ConflictDetection) > strictness(out.ConflictDetection) {
			out.ConflictDetection = w.ConflictDetection
		}
	}
	return out
}

func strictness(c config.ConflictDetection) int {
	return slices.Index([]config.ConflictDetection{config.ConflictOff, config.ConflictWarn, config.ConflictRefuse}, c)
}
