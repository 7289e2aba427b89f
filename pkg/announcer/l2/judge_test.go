package l2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
)

// What the tests of both protocols share: claims, frames and what they mean, and
// the filter before them.

func testTable() *table  { return oneOfEach("192.0.2.1%d") }
func testTable6() *table { return oneOfEach("2001:db8::1%d") }

// oneOfEach holds one claim in each state; format makes an address of a digit.
func oneOfEach(format string) *table {
	t := &table{mac: ourMAC, owns: []mac{ourMAC, ourMAC2}, claims: map[netip.Addr]*claim{}}
	for i, state := range []uint32{answering, yielding, silent, released} {
		c := &claim{address: addr(fmt.Sprintf(format, i))}
		c.state.Store(state)
		t.claims[c.address] = c
	}
	return t
}

// judgeCase is a frame and what it means.
type judgeCase struct {
	name  string
	frame []byte
	cause Cause
	reply bool
	seen  string // address
	all   bool   // announced
}

// checkJudge compares what a frame means with what it should.
func checkJudge(t *testing.T, p protocol, tab *table, want judgeCase) {
	t.Helper()
	v := p.judge(tab, want.frame, make([]byte, 0, replyRoom))
	got := judgeCase{name: want.name, frame: want.frame, cause: v.cause, reply: v.reply != nil, all: v.announced}
	if v.seen != nil {
		got.seen = v.seen.address.String()
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(judgeCase{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// checkFilter holds the filter of a table's addresses against what frames mean:
// whatever judge acts on must get through, and what it drops for one of these
// causes must not wake us up.
func checkFilter(t *testing.T, p protocol, tab *table, cases []judgeCase, asleep ...Cause) {
	t.Helper()
	vm := filterOf(t, p, slices.Collect(maps.Keys(tab.claims))...)
	for _, c := range cases {
		v := p.judge(tab, c.frame, nil)
		passed := passes(t, vm, c.frame)
		if (v.reply != nil || v.seen != nil) && !passed {
			t.Errorf("%s: dropped by the filter", c.name)
		}
		if slices.Contains(asleep, v.cause) && passed {
			t.Errorf("%s: wakes us up", c.name)
		}
	}
}

// filterOf runs the filter of a protocol for addresses.
func filterOf(t *testing.T, p protocol, addresses ...netip.Addr) *bpf.VM {
	t.Helper()
	f, err := program(p, ourMAC, cover(addresses, maxPrefixes))
	must(t, err)
	return machine(f)
}

func passes(t *testing.T, vm *bpf.VM, frame []byte) bool {
	t.Helper()
	kept, err := vm.Run(frame)
	if err != nil {
		t.Fatal(err)
	}
	return kept > 0
}
