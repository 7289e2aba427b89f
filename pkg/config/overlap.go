package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// overlap is two spans, by their index, that have addresses in common.
type overlap struct {
	first, second int // first < second
	common        netipx.IPRange
}

// mostOverlaps bounds what overlaps finds: n spans can overlap in n² ways.
const mostOverlaps = 100

// overlaps finds the pairs that have addresses in common, in the order of the
// addresses. It gives up after mostOverlaps of them.
func overlaps(spans []netipx.IPRange) []overlap {
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(spans[a].From().Compare(spans[b].From()), cmp.Compare(a, b))
	})
	var found []overlap
	var open []int // spans that begin before the one looked at and may reach into it
	for _, i := range order {
		open = slices.DeleteFunc(open, func(j int) bool { return spans[j].To().Less(spans[i].From()) })
		for _, j := range open {
			if len(found) == mostOverlaps {
				return found
			}
			common := netipx.IPRangeFrom(spans[i].From(), lesser(spans[i].To(), spans[j].To()))
			found = append(found, overlap{min(i, j), max(i, j), common})
		}
		open = append(open, i)
	}
	return found
}

func lesser(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}

// apart reports items that have addresses in common.
func (d *decoder) apart(items []item) {
	spans := make([]netipx.IPRange, len(items))
	for i, it := range items {
		spans[i] = it.span
	}
	d.overlapping(overlaps(spans), func(i int, _ netipx.IPRange) item { return items[i] })
}

// disjoint reports pools that have addresses in common which neither excludes.
func (d *decoder) disjoint(docs []placed[poolDoc], pools []Pool) {
	var spans []netipx.IPRange
	var owner []int
	for i, p := range pools {
		for _, r := range p.Ranges {
			spans = append(spans, r)
			owner = append(owner, i)
		}
	}
	d.overlapping(overlaps(spans), func(i int, common netipx.IPRange) item {
		items := docs[owner[i]].value.addresses.items
		return items[slices.IndexFunc(items, func(it item) bool { return it.span.Overlaps(common) })]
	})
}

// overlapping reports overlaps. whose returns the item of the document behind
// a span, as far as it has the common addresses.
func (d *decoder) overlapping(found []overlap, whose func(span int, common netipx.IPRange) item) {
	for n, o := range found {
		more := ""
		if n+1 == mostOverlaps {
			more = fmt.Sprintf("; more than these %d overlaps are not shown", mostOverlaps)
		}
		first, second := whose(o.first, o.common), whose(o.second, o.common)
		d.fail(second.place, "%s overlaps %s of %s: both have %s%s",
			quote(second.text), quote(first.text), first.place, show(o.common), more)
	}
}
