package membership

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

var allowUnexported = cmp.AllowUnexported(metadata{}, message{}, table{})

func exampleLinks() []plan.Link {
	return []plan.Link{
		{
			Name: "eth0", Index: 2, MAC: "02:00:00:00:00:01", Up: true, NodeIP: true, Default: true, Metric: 100,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
		},
		{Name: "bond0.12", Index: 7, MAC: "02:00:00:00:00:02"},
	}
}

// later returns a metadata as a release that adds a field may write it.
func later(d metadata) []byte {
	b := d.padded().encode()
	if d.second {
		b = append(b, "a later field"...)
	}
	return b
}

func TestMetadataRoundTrip(t *testing.T) {
	for _, d := range []metadata{
		{},
		{passive: true, rules: 1, life: 0xfeedfacefeedface, counter: 3, seq: 12, linksSeq: 4},
		{draining: true, leaving: true, rules: maxRules, life: 1<<64 - 1, counter: 1<<64 - 1, seq: 1<<64 - 1, linksSeq: 1<<64 - 1},
		{settling: true, second: true, config: "0123456789ab", keys: "abcd"},
		{
			stale: true, noAPI: true, established: true, second: true, life: 1<<64 - 1, counter: 1<<64 - 1, seq: 1<<64 - 1, linksSeq: 1<<64 - 1,
			config: strings.Repeat("f", maxConfig), unfit: strings.Repeat("x", maxUnfit), keys: strings.Repeat("k", maxKeys*keyIDBytes),
		},
	} {
		b := d.encode()
		if len(b) > 140 {
			t.Errorf("%+v takes %d bytes, want at most 140", d, len(b))
		}
		if n := len(d.padded().encode()); n > 140+maxPadding {
			t.Errorf("padded it takes %d bytes", n)
		}
		got, err := decodeMetadata(later(d))
		if err != nil || got != d {
			t.Errorf("read back %+v, %v, want %+v", got, err, d)
		}
	}
}

// TestMetadataIsReadOneVersionBack: the bytes are what the first release wrote,
// and ours begin like that.
func TestMetadataIsReadOneVersionBack(t *testing.T) {
	first := []byte{1, flagPassive, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 12, 4, 2, 0, 0}
	want := metadata{passive: true, rules: 1, life: 7, seq: 12, linksSeq: 4}
	if got, err := decodeMetadata(first); err != nil || got != want {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
	want.second, want.padding, want.config = true, 2, "0123456789ab"
	if got := want.encode(); !bytes.HasPrefix(got, first) {
		t.Errorf("wrote %v, which does not begin like %v", got, first)
	}
}

func TestGarbledMetadataIsRefused(t *testing.T) {
	good := metadata{rules: 1, life: 7, seq: 300}.encode()
	for name, b := range map[string][]byte{
		"nothing":        nil,
		"other version":  append([]byte{formatVersion + 1}, good[1:]...),
		"rules too high": {formatVersion, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"endless number": append([]byte{formatVersion, 0}, bytes.Repeat([]byte{0xff}, 30)...),
		"too long":       append(good, make([]byte, 512)...),
		"foreign":        []byte("{\"role\":\"speaker\"}"),
		"strange unfit":  metadata{second: true, unfit: "no\nroom"}.encode(),
		"strange config": metadata{second: true, config: "<b>"}.encode(),
		"too many keys":  append(good, 0, 0, maxKeys*keyIDBytes+4),
	} {
		if d, err := decodeMetadata(b); err == nil {
			t.Errorf("%s: read %+v, want an error", name, d)
		}
	}
	for i := range good {
		if _, err := decodeMetadata(good[:i]); err == nil {
			t.Errorf("cut after %d bytes: no error", i)
		}
	}
}

func TestTableRoundTrip(t *testing.T) {
	links := exampleLinks()
	got, err := decodeTable(newTable("node-a", 9, 4, links).encoded)
	if err != nil {
		t.Fatal(err)
	}
	if got.name != "node-a" || got.life != 9 || got.seq != 4 {
		t.Errorf("read back %s, life %d, seq %d", got.name, got.life, got.seq)
	}
	if d := cmp.Diff(links, got.links, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
		t.Error(d)
	}
	if n := len(got.encoded); n > 120 {
		t.Errorf("two links take %d bytes, want at most 120", n)
	}
}

func TestNoLinksIsNotUnknownLinks(t *testing.T) {
	if got := newTable("node-a", 9, 1, []plan.Link{}); got.links == nil {
		t.Error("links are nil, want an empty list")
	}
}

func TestTooManyLinksAreCutByTheRule(t *testing.T) {
	var links []plan.Link
	for i := range 100 {
		l := plan.Link{Name: fmt.Sprintf("%s%d", strings.Repeat("x", 70), i), Index: 100 - i, MAC: "02:00:00:00:00:01"}
		for bits := range 100 {
			l.Prefixes = append(l.Prefixes, netip.PrefixFrom(netip.MustParseAddr("2001:db8::1"), bits+20))
		}
		links = append(links, l)
	}
	links[3].Default = true // index 97
	links[5].NodeIP = true  // index 95
	got := newTable(strings.Repeat("n", maxName), 1, 1, links)

	if len(got.encoded) > maxTable {
		t.Errorf("the table takes %d bytes, want at most %d", len(got.encoded), maxTable)
	}
	if len(got.links) != maxLinks {
		t.Fatalf("%d links, want %d", len(got.links), maxLinks)
	}
	if got.links[0].Index != 95 || got.links[1].Index != 97 || got.links[2].Index != 1 || got.links[63].Index != 62 {
		t.Errorf("kept %d, %d, %d ... %d", got.links[0].Index, got.links[1].Index, got.links[2].Index, got.links[63].Index)
	}
	if p := got.links[0].Prefixes; len(p) != maxPrefixes || p[0].Bits() != 20 || p[31].Bits() != 51 {
		t.Errorf("kept prefixes %v, want the 32 widest", p)
	}
}

func TestStateSkipsWhatItCannotRead(t *testing.T) {
	a, b := newTable("a", 1, 1, exampleLinks()), newTable("b", 2, 1, nil)
	bad := table{encoded: []byte{1, 'x', 0}}
	got, err := decodeState(encodeState([]table{a, bad, b}))
	if err == nil {
		t.Error("no error for a table that cannot be read")
	}
	if len(got) != 2 || got[0].name != "a" || got[1].name != "b" {
		t.Errorf("read %d tables, want a and b", len(got))
	}
}

func TestUnknownMessagesAreNoFault(t *testing.T) {
	if m, err := decodeMessage([]byte{formatVersion, 77, 1, 2, 3}); err != nil || m.kind != 77 {
		t.Errorf("got kind %d, %v", m.kind, err)
	}
}

func exampleMessages() []message {
	return []message{
		{kind: kindState, name: "node-a", state: metadata{draining: true, rules: 1, life: 5, seq: 6}},
		{kind: kindTable, table: newTable("node-a", 5, 1, exampleLinks())},
		{kind: kindAsk, name: "node-b"},
		{kind: kindReturned, life: 99},
		{kind: kindReturned, life: 99, counted: true, counter: 3},
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(metadata{passive: true, rules: 1, life: 5, seq: 1}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeMetadata(b)
		if err != nil {
			return
		}
		if again, err := decodeMetadata(d.encode()); err != nil || again != d {
			t.Errorf("%+v became %+v, %v", d, again, err)
		}
	})
}

func FuzzMessage(f *testing.F) {
	for _, m := range exampleMessages() {
		f.Add(m.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := decodeMessage(m.encode())
		if err != nil {
			t.Fatalf("%+v cannot be read again: %v", m, err)
		}
		if d := cmp.Diff(m, again, allowUnexported, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Error(d)
		}
		if m.kind == kindTable && (len(m.table.links) > maxLinks || len(m.table.encoded) > maxTable) {
			t.Error("a table exceeds its bounds")
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add(encodeState([]table{newTable("a", 1, 1, exampleLinks()), newTable("b", 2, 1, nil)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		tables, _ := decodeState(b)
		again, err := decodeState(encodeState(tables))
		if err != nil || len(again) != len(tables) {
			t.Errorf("%d tables became %d, %v", len(tables), len(again), err)
		}
	})
}

// FuzzOwnLinks: whatever the kernel tells of a link, our table of it can be read.
func FuzzOwnLinks(f *testing.F) {
	f.Add("eth0", 2, "02:00:00:00:00:01", 100, []byte{192, 0, 2, 7}, 24)
	f.Add(strings.Repeat("é", 60), -1, "x", -5, []byte{1}, 300)
	f.Fuzz(func(t *testing.T, name string, index int, mac string, metric int, address []byte, bits int) {
		a, _ := netip.AddrFromSlice(address)
		l := plan.Link{Name: name, Index: index, MAC: mac, Metric: metric, Prefixes: []netip.Prefix{netip.PrefixFrom(a, bits)}}
		got := newTable("node-a", 1, 1, []plan.Link{l})
		again := newTable("node-a", 1, 1, got.links)
		if !bytes.Equal(got.encoded, again.encoded) {
			t.Errorf("%+v changes when it is told again", got.links)
		}
	})
}
