package membership

import (
	"cmp"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// What a member may tell. A table at all its bounds has about 40 KiB.
const (
	maxName     = 253 // of a member: the longest name of a Node
	maxLinks    = 64
	maxPrefixes = 32 // per link
	maxLinkName = 64 // a kernel gives 15, an alternative name may have more
	maxMAC      = 32
	maxNumber   = 1<<31 - 1 // an index or a metric
	maxTable    = 64 << 10  // encoded
	maxState    = 8 << 20   // all tables, encoded; memberlist takes 20 MiB in all
)

// The flags of a link. Changing one is a change of the format.
const (
	linkUp byte = 1 << iota
	linkNodeIP
	linkDefault
)

// table is the links of one member.
type table struct {
	name  string // of the member
	life  uint64 // the process that tells it
	seq   uint64 // within its life: higher is newer
	links []plan.Link

	encoded []byte    // as it travels, kept to be passed on
	heard   time.Time // when it was taken in
}

// newTable makes the table of this announcer. It holds what the others will
// read from it, so that all see the same.
func newTable(name string, life, seq uint64, links []plan.Link) table {
	b := appendChunk(nil, name)
	b = binary.BigEndian.AppendUint64(b, life)
	b = binary.AppendUvarint(b, seq)
	links = cut(links)
	b = binary.AppendUvarint(b, uint64(len(links)))
	for _, l := range links {
		b = appendChunk(b, encodeLink(l))
	}
	t, err := decodeTable(b)
	if err != nil {
		panic("membership: a table of ours cannot be read: " + err.Error())
	}
	return t
}

// decodeTable reads what newTable encoded, and later versions of it. The
// table's encoding is that buffer.
func decodeTable(b []byte) (table, error) {
	if len(b) > maxTable {
		return table{}, errGarbled
	}
	r := reader{buf: b}
	t := table{name: r.text(maxName), life: r.uint64(), seq: r.uvarint(), encoded: b}
	n := r.number(maxLinks)
	t.links = make([]plan.Link, 0, min(n, maxLinks))
	for range n {
		l, err := decodeLink(r.chunk(maxTable))
		if r.bad || err != nil {
			return table{}, errGarbled
		}
		t.links = append(t.links, l)
	}
	if r.bad || t.name == "" {
		return table{}, errGarbled
	}
	return t, nil
}

// cut keeps what may be told of links: of more than 64, those with the Node's
// address, then those with a default route, then those with the lowest index.
func cut(links []plan.Link) []plan.Link {
	return shorten(slices.Clone(links), maxLinks, func(a, b plan.Link) int {
		return cmp.Or(first(a.NodeIP, b.NodeIP), first(a.Default, b.Default), cmp.Compare(a.Index, b.Index))
	})
}

// cutPrefixes keeps, of more than 32, those that hold most addresses.
func cutPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	valid := slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return !p.IsValid() })
	return shorten(valid, maxPrefixes, func(a, b netip.Prefix) int {
		return cmp.Compare(hostBits(b), hostBits(a))
	})
}

func hostBits(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }

// shorten keeps the first items by some order if there are too many.
func shorten[T any](items []T, most int, order func(a, b T) int) []T {
	if len(items) <= most {
		return items
	}
	slices.SortStableFunc(items, order)
	return items[:most]
}

// first orders what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func encodeLink(l plan.Link) []byte {
	b := []byte{flag(l.Up, linkUp) | flag(l.NodeIP, linkNodeIP) | flag(l.Default, linkDefault)}
	b = appendChunk(b, strings.ToValidUTF8(l.Name[:min(len(l.Name), maxLinkName)], ""))
	b = binary.AppendUvarint(b, uint64(min(max(l.Index, 0), maxNumber)))
	mac, _ := net.ParseMAC(l.MAC) // a link without one has an empty MAC
	b = appendChunk(b, []byte(mac))
	b = binary.AppendUvarint(b, uint64(min(max(l.Metric, 0), maxNumber)))
	prefixes := cutPrefixes(l.Prefixes)
	b = binary.AppendUvarint(b, uint64(len(prefixes)))
	for _, p := range prefixes {
		b = append(b, byte(p.Bits()))
		b = appendChunk(b, p.Addr().AsSlice())
	}
	return b
}

func decodeLink(b []byte) (plan.Link, error) {
	r := reader{buf: b}
	flags := r.byte()
	l := plan.Link{
		Up:      flags&linkUp != 0,
		NodeIP:  flags&linkNodeIP != 0,
		Default: flags&linkDefault != 0,
		Name:    r.text(maxLinkName),
		Index:   r.number(maxNumber),
		MAC:     net.HardwareAddr(r.chunk(maxMAC)).String(),
		Metric:  r.number(maxNumber),
	}
	for range r.number(maxPrefixes) {
		l.Prefixes = append(l.Prefixes, r.prefix())
	}
	return l, r.err()
}

func (r *reader) prefix() netip.Prefix {
	bits := int(r.byte())
	address, ok := netip.AddrFromSlice(r.chunk(net.IPv6len))
	if !ok || bits > address.BitLen() {
		r.bad = true
		return netip.Prefix{}
	}
	return netip.PrefixFrom(address, bits)
}
