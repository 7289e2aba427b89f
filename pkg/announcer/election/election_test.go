package election

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The rankings were computed with printf and sha256sum. An announcer that
// ranks otherwise would not agree with those of other releases.
func TestRankNeverChanges(t *testing.T) {
	candidates := []string{"n1", "n2", "n3", "node-a", "worker-7.example.net"}
	for address, want := range map[string]string{
		"192.0.2.10":      "n2 worker-7.example.net n3 n1 node-a",
		"192.0.2.11":      "node-a worker-7.example.net n1 n3 n2",
		"198.51.100.40":   "n2 worker-7.example.net n3 n1 node-a",
		"2001:db8:51::40": "worker-7.example.net node-a n2 n1 n3",
	} {
		got := strings.Join(Rank(candidates, netip.MustParseAddr(address)), " ")
		if got != want {
			t.Errorf("Rank for %s = %s, want %s", address, got, want)
		}
	}
}

func TestNobodyOwnsWithoutCandidates(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.10")
	if owner, ok := Owner(nil, address); ok || owner != "" {
		t.Errorf("Owner = %q, %t, want nobody", owner, ok)
	}
	if best := Best([]string{"n1"}, address, 0); len(best) != 0 {
		t.Errorf("the best 0 are %v", best)
	}
}

func TestOwnerAndBestAgreeWithANaiveRanking(t *testing.T) {
	for range 500 {
		candidates, address := randomNodes(1+rand.IntN(40)), randomAddress()
		want := naiveRank(candidates, address)
		if diff := cmp.Diff(want, Rank(candidates, address)); diff != "" {
			t.Fatalf("rank for %s (-naive +got):\n%s", address, diff)
		}
		most := 1 + rand.IntN(50)
		if diff := cmp.Diff(want[:min(most, len(want))], Best(candidates, address, most)); diff != "" {
			t.Fatalf("best %d for %s (-naive +got):\n%s", most, address, diff)
		}
		if owner, ok := Owner(candidates, address); !ok || owner != want[0] {
			t.Fatalf("owner of %s is %q, want %q", address, owner, want[0])
		}
	}
}

func TestOrderOfCandidatesDoesNotMatter(t *testing.T) {
	for range 200 {
		candidates, address := randomNodes(20), randomAddress()
		want := Rank(candidates, address)
		shuffled := slices.Clone(candidates)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(want, Rank(shuffled, address)); diff != "" {
			t.Fatalf("rank for %s depends on the order:\n%s", address, diff)
		}
	}
}

func TestLosingANodeMovesOnlyItsAddresses(t *testing.T) {
	candidates := randomNodes(12)
	for range 2000 {
		address := randomAddress()
		ranking := Rank(candidates, address)
		lost := candidates[rand.IntN(len(candidates))]
		left := slices.DeleteFunc(slices.Clone(candidates), func(c string) bool { return c == lost })
		want := ranking[0]
		if want == lost {
			want = ranking[1]
		}
		if owner, _ := Owner(left, address); owner != want {
			t.Fatalf("%s went from %s to %s when %s was lost, want %s", address, ranking[0], owner, lost, want)
		}
	}
}

func TestAddressesSpreadOverTheNodes(t *testing.T) {
	const nodes, addresses = 10, 10000
	owned := map[string]int{}
	candidates := randomNodes(nodes)
	first := netip.MustParseAddr("198.18.0.0")
	for range addresses {
		owner, _ := Owner(candidates, first)
		owned[owner]++
		first = first.Next()
	}
	for node, n := range owned {
		// Five standard deviations of a fair draw are about 150.
		if n < addresses/nodes-150 || n > addresses/nodes+150 {
			t.Errorf("%s owns %d of %d addresses", node, n, addresses)
		}
	}
}

// naiveRank is the reference system's way: the hash inside the comparator.
func naiveRank(candidates []string, address netip.Addr) []string {
	out := slices.Clone(candidates)
	hash := func(node string) string {
		sum := sha256.Sum256([]byte(node + "#" + address.String()))
		return hex.EncodeToString(sum[:])
	}
	sort.Slice(out, func(i, j int) bool { return hash(out[i]) < hash(out[j]) })
	return out
}

func randomNodes(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("node-%d-%08x", i, rand.Uint32())
	}
	return out
}

func randomAddress() netip.Addr {
	if rand.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{198, 51, byte(rand.Uint32()), byte(rand.Uint32())})
	}
	a := netip.MustParseAddr("2001:db8::").As16()
	a[14], a[15] = byte(rand.Uint32()), byte(rand.Uint32())
	return netip.AddrFrom16(a)
}

func BenchmarkOwner500Nodes(b *testing.B) {
	candidates, address := benchNodes(500), netip.MustParseAddr("192.0.2.10")
	for b.Loop() {
		Owner(candidates, address)
	}
}

func BenchmarkRank500Nodes(b *testing.B) {
	candidates, address := benchNodes(500), netip.MustParseAddr("192.0.2.10")
	for b.Loop() {
		Rank(candidates, address)
	}
}

// BenchmarkNaive500Nodes is the yardstick: what a hash inside the comparator costs.
func BenchmarkNaive500Nodes(b *testing.B) {
	candidates, address := benchNodes(500), netip.MustParseAddr("192.0.2.10")
	less := func(x, y string) int {
		sx := sha256.Sum256([]byte(x + "#" + address.String()))
		sy := sha256.Sum256([]byte(y + "#" + address.String()))
		return slices.Compare(sx[:], sy[:])
	}
	for b.Loop() {
		slices.SortFunc(slices.Clone(candidates), less)
	}
}

func benchNodes(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("worker-%04d.example.net", i)
	}
	return out
}
