// Package election chooses the owner of an address among the nodes that could
// announce it. Every announcer computes the same owner from the same
// candidates without asking anyone (rendezvous hashing): addresses spread over
// the nodes, and a node that goes or comes moves only its own addresses. It is
// pure.
package election

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"net/netip"
	"slices"
)

// Rules is the number of the election rules in this package and in plan: which
// nodes are candidates, and which of them is the owner. Whoever changes either
// adds rules under a new number and keeps the old ones for a release. All
// announcers use the lowest number that a live member knows, so that mixed
// versions agree.
//
// The second rules brought the tiers, and nodes that say themselves that they
// are unfit.
const Rules = 2

// Owner returns the candidate that announces address, and whether there is
// one. The order of candidates does not matter; none may be listed twice, and
// address is neither an IPv4-mapped one nor has it a zone. The same holds for
// Best and Rank.
func Owner(candidates []string, address netip.Addr) (string, bool) {
	best := Best(candidates, address, 1)
	if len(best) == 0 {
		return "", false
	}
	return best[0], true
}

// Best returns the first most candidates of Rank, for less than ranking all.
func Best(candidates []string, address netip.Addr, most int) []string {
	switch {
	case most <= 0:
		return nil
	case most >= len(candidates):
		return Rank(candidates, address)
	}
	b := newBallot(address)
	best := make([]score, 0, most)
	for _, candidate := range candidates {
		b.add(candidate)
		if len(best) == most {
			if bytes.Compare(b.sum[:], best[most-1].sum[:]) > 0 {
				continue
			}
			best = best[:most-1]
		}
		s := score{b.sum, candidate}
		i, _ := slices.BinarySearchFunc(best, s, compare)
		best = slices.Insert(best, i, s)
	}
	return names(best)
}

// Rank returns all candidates, the owner first. If the owner goes, the next
// one is the owner.
func Rank(candidates []string, address netip.Addr) []string {
	b := newBallot(address)
	all := make([]score, len(candidates))
	for i, candidate := range candidates {
		b.add(candidate)
		all[i] = score{b.sum, candidate}
	}
	slices.SortFunc(all, compare)
	return names(all)
}

// score is a node's place for an address: the smallest sum is the first.
type score struct {
	sum  [sha256.Size]byte
	node string
}

// ballot computes sums for one address. It keeps its memory from node to node,
// because this is where a pass over a large cluster spends its time.
type ballot struct {
	suffix []byte // what is hashed after the node's name
	text   []byte
	hash   hash.Hash
	sum    [sha256.Size]byte // of the node last added
}

func newBallot(address netip.Addr) *ballot {
	return &ballot{suffix: address.AppendTo([]byte{'#'}), text: make([]byte, 0, 128), hash: sha256.New()}
}

func (b *ballot) add(node string) {
	b.text = append(append(b.text[:0], node...), b.suffix...)
	b.hash.Reset()
	b.hash.Write(b.text)
	b.hash.Sum(b.sum[:0])
}

func compare(a, b score) int { return bytes.Compare(a.sum[:], b.sum[:]) }

func names(scores []score) []string {
	out := make([]string, len(scores))
	for i, s := range scores {
		out[i] = s.node
	}
	return out
}
