package ipam

import (
	"net/netip"

	"github.com/google/btree"
	"go4.org/netipx"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// degree of the trees: about a page per node.
const degree = 32

// intervals is a set of addresses of one family, kept as the ranges that they
// form: each as long as possible, so no two of them touch. However many
// addresses are in it, it costs as much as it has gaps. The zero value is the
// empty set.
type intervals struct {
	tree *btree.BTreeG[netipx.IPRange] // by first address
}

func single(addr netip.Addr) netipx.IPRange {
	return netipx.IPRangeFrom(addr, addr)
}

// add adds a range of which no address may be in the set yet.
func (s *intervals) add(r netipx.IPRange) {
	if s.tree == nil {
		s.tree = btree.NewG(degree, func(a, b netipx.IPRange) bool { return a.From().Less(b.From()) })
	}
	from, to := r.From(), r.To()
	if left, ok := s.upTo(from); ok && left.To().Next() == from {
		s.tree.Delete(left)
		from = left.From()
	}
	if right, ok := s.from(to); ok && to.Next() == right.From() {
		s.tree.Delete(right)
		to = right.To()
	}
	s.tree.ReplaceOrInsert(netipx.IPRangeFrom(from, to))
}

// cut takes all addresses of a range out of the set, as far as they are in it.
func (s *intervals) cut(r netipx.IPRange) {
	for {
		hit, ok := s.upTo(r.To())
		if !ok || hit.To().Less(r.From()) {
			return
		}
		s.tree.Delete(hit)
		if hit.From().Less(r.From()) {
			s.tree.ReplaceOrInsert(netipx.IPRangeFrom(hit.From(), r.From().Prev()))
		}
		if r.To().Less(hit.To()) {
			s.tree.ReplaceOrInsert(netipx.IPRangeFrom(r.To().Next(), hit.To()))
		}
	}
}

// upTo returns the last interval that begins at or before addr.
func (s *intervals) upTo(addr netip.Addr) (found netipx.IPRange, ok bool) {
	if s.tree == nil {
		return found, false
	}
	s.tree.DescendLessOrEqual(single(addr), func(r netipx.IPRange) bool {
		found, ok = r, true
		return false
	})
	return found, ok
}

// from returns the first interval that begins at or after addr.
func (s *intervals) from(addr netip.Addr) (found netipx.IPRange, ok bool) {
	if s.tree == nil {
		return found, false
	}
	s.tree.AscendGreaterOrEqual(single(addr), func(r netipx.IPRange) bool {
		found, ok = r, true
		return false
	})
	return found, ok
}

// pick returns the address that is next in an order. For config.Hashed that
// is the first one from start on, and then from the beginning.
func (s *intervals) pick(order config.Order, start netip.Addr) (netip.Addr, bool) {
	if s.tree == nil || s.tree.Len() == 0 {
		return netip.Addr{}, false
	}
	switch order {
	case config.Highest:
		last, _ := s.tree.Max()
		return last.To(), true
	case config.Hashed:
		if at, ok := s.upTo(start); ok && at.Contains(start) {
			return start, true
		}
		if after, ok := s.from(start); ok {
			return after.From(), true
		}
	}
	first, _ := s.tree.Min()
	return first.From(), true
}

// ranges returns the intervals in ascending order.
func (s *intervals) ranges() []netipx.IPRange {
	var out []netipx.IPRange
	if s.tree != nil {
		s.tree.Ascend(func(r netipx.IPRange) bool {
			out = append(out, r)
			return true
		})
	}
	return out
}
