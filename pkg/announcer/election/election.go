// Package election chooses the owner of an address among the nodes that could
// announce it. Every announcer computes the same owner from the same
// candidates without asking anyone (rendezvous hashing): addresses spread over
// the nodes, and a node that goes or comes moves only its own addresses. It is
// pure.
package election

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
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
			if bytes.Compare(b.sum, best[most-1].sum[:]) > 0 {
				continue
			}
			best = best[:most-1]
		}
		s := b.score(candidate)
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
		all[i] = b.score(candidate)
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
// because this is where a pass over a large cluster spends its time. For the
// same reason it pads the text itself (RFC 6234 section 4.1) and reads the sum
// from the state that the hash offers to save: asking the hash for its sum costs
// as much as the hashing, because it works on a copy.
type ballot struct {
	suffix []byte // what is hashed after the node's name
	length int    // of the name of the node last added, -1 at first
	text   []byte // of the node last added: its name, the suffix and the padding
	hash   interface {
		hash.Hash
		encoding.BinaryAppender
	}
	state []byte
	sum   []byte // of the node last added; valid until the next one
}

func newBallot(address netip.Addr) *ballot {
	b := &ballot{
		length: -1,
		suffix: address.AppendTo([]byte{'#'}),
		text:   make([]byte, 0, 2*sha256.BlockSize),
		state:  make([]byte, 0, 2*sha256.BlockSize),
	}
	b.hash = sha256.New().(interface {
		hash.Hash
		encoding.BinaryAppender
	})
	return b
}

func (b *ballot) add(node string) {
	if len(node) == b.length { // as most names are: all but the name is there
		copy(b.text, node)
	} else {
		b.length = len(node)
		b.text = pad(append(append(b.text[:0], node...), b.suffix...))
	}
	b.hash.Reset()
	b.hash.Write(b.text)
	var err error
	if b.state, err = b.hash.AppendBinary(b.state[:0]); err != nil {
		panic(err) // SHA-256 has no state that it could not save
	}
	b.sum = b.state[stateHeader:][:sha256.Size]
}

// score returns that of the node last added.
func (b *ballot) score(node string) score { return score{[sha256.Size]byte(b.sum), node} }

// stateHeader is how many bytes precede the sum in the state of a SHA-256.
const stateHeader = 4

// pad makes a text whole blocks, as SHA-256 wants its last one.
func pad(text []byte) []byte {
	const length = 8 // bytes that hold the length of the text
	bits := 8 * uint64(len(text))
	text = append(text, 0x80)
	text = append(text, zeros[:-(len(text)+length)&(sha256.BlockSize-1)]...)
	return binary.BigEndian.AppendUint64(text, bits)
}

var zeros [sha256.BlockSize]byte

func compare(a, b score) int { return bytes.Compare(a.sum[:], b.sum[:]) }

func names(scores []score) []string {
	out := make([]string, len(scores))
	for i, s := range scores {
		out[i] = s.node
	}
	return out
}
