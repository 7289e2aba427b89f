package election

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
)

// favoured is how many of the best nodes Favourites remember at most, and
// tooFew how many they have to be, or they are sought anew. A Verdict names half
// as many as the former, so that a look at the favourites nearly always tells
// enough unless many nodes are no candidates.
const (
	favoured = 32
	tooFew   = 24
)

// Favourites are the best of all nodes for one address, whether they are
// candidates at the moment or not. Kept from one election to the next they
// spare hashing all nodes again whenever one comes or goes. The zero value
// knows no node.
type Favourites struct {
	best []favourite // best first
	some bool        // there are nodes besides, all of them worse than these
}

// favourite is a node by its place in the list of all nodes, below the first
// bytes of its sum: so numbers compare as the sums do, and 32 of these for each
// of thousands of addresses fit into a small process.
type favourite uint64

func newFavourite(sum []byte, node int32) favourite {
	return favourite(binary.BigEndian.Uint32(sum))<<32 | favourite(node)
}

func (x favourite) sum() uint32 { return uint32(x >> 32) }
func (x favourite) node() int32 { return int32(uint32(x)) }

// moved returns the same sum for another place in the list.
func (x favourite) moved(node int32) favourite { return x&^math.MaxUint32 | favourite(node) }

// Renumbering says how one sorted list of nodes becomes another one.
type Renumbering struct {
	nodes []string // the new list
	to    []int32  // for each node of the old list its place in the new one, -1: gone
	added []int32  // places in the new list of those that are new
}

// Renumber compares two sorted lists of nodes without repetition.
func Renumber(from, to []string) Renumbering {
	r := Renumbering{nodes: to, to: make([]int32, len(from))}
	j := 0
	for i, name := range from {
		for j < len(to) && to[j] < name {
			r.added = append(r.added, int32(j))
			j++
		}
		if j < len(to) && to[j] == name {
			r.to[i] = int32(j)
			j++
		} else {
			r.to[i] = -1
		}
	}
	for ; j < len(to); j++ {
		r.added = append(r.added, int32(j))
	}
	return r
}

// Follow makes f, which were the favourites among the old nodes of r, those
// among the new ones.
func (f *Favourites) Follow(r Renumbering, address netip.Addr) {
	kept := f.best[:0]
	for _, x := range f.best {
		if node := r.to[x.node()]; node >= 0 {
			kept = append(kept, x.moved(node))
		}
	}
	f.best = kept
	again := f.some && len(f.best) < tooFew
	if !again && len(r.added) == 0 {
		return
	}
	b := newBallot(address)
	if again {
		f.best, f.some = f.best[:0], false
		for i := range r.nodes {
			f.add(b, r.nodes, int32(i))
		}
		return
	}
	for _, node := range r.added {
		f.add(b, r.nodes, node)
	}
}

// add takes a node in if it is good enough.
func (f *Favourites) add(b *ballot, nodes []string, node int32) {
	b.add(nodes[node])
	x := newFavourite(b.sum, node)
	closed := len(f.best) == favoured || f.some && len(f.best) > 0
	if closed && f.best[len(f.best)-1].sum() < x.sum() { // nearly all of them, if there are many
		f.some = true
		return
	}
	i := f.place(b, nodes, x)
	if closed && i == len(f.best) {
		f.some = true
		return
	}
	if len(f.best) == favoured {
		f.best, f.some = f.best[:favoured-1], true
	}
	if f.best == nil {
		f.best = make([]favourite, 0, min(favoured, len(nodes)))
	}
	f.best = slices.Insert(f.best, i, x)
}

// place returns where the node last added belongs.
func (f *Favourites) place(b *ballot, nodes []string, x favourite) int {
	i, _ := slices.BinarySearch(f.best, x.moved(0))
	if i == len(f.best) || f.best[i].sum() != x.sum() {
		return i
	}
	sum := [sha256.Size]byte(b.sum) // rarely two begin alike
	for ; i < len(f.best) && f.best[i].sum() == x.sum(); i++ {
		if b.add(nodes[f.best[i].node()]); bytes.Compare(b.sum, sum[:]) > 0 {
			break
		}
	}
	return i
}

// Best returns what the function Best returns for those nodes that passes
// picks by their place in the list, size of them, and whether the favourites
// tell that.
func (f *Favourites) Best(nodes []string, passes func(node int) bool, size, most int) ([]string, bool) {
	want := min(most, size)
	out := make([]string, 0, max(want, 0))
	for _, x := range f.best {
		if len(out) >= want {
			break
		}
		if node := int(x.node()); passes(node) {
			out = append(out, nodes[node])
		}
	}
	return out, len(out) >= want
}
