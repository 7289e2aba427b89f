package election

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// Whoever comes and goes, and whoever is a candidate: the favourites give what
// an election from nothing gives, or say that they cannot.
func TestFavouritesFollowTheNodes(t *testing.T) {
	told, silent := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		all := make([]string, 1+r.IntN(300))
		for i := range all {
			all[i] = fmt.Sprintf("node-%03d", i)
		}
		address := netip.AddrFrom4([4]byte{192, 0, 2, byte(seed)})
		var f Favourites
		var nodes []string
		for range 12 {
			leave := r.IntN(10)
			var next []string
			for _, name := range all {
				was := slices.Contains(nodes, name)
				if was && r.IntN(100) >= leave || !was && r.IntN(3) == 0 {
					next = append(next, name)
				}
			}
			f.Follow(Renumber(nodes, next), address)
			nodes = next

			share := 1 + r.IntN(4)
			passes := func(node int) bool { return (node*7+int(seed))%4 < share }
			var candidates []string
			for i, name := range nodes {
				if passes(i) {
					candidates = append(candidates, name)
				}
			}
			got, ok := f.Best(nodes, passes, len(candidates), 16)
			if !ok {
				silent++
				continue
			}
			told++
			if want := Best(candidates, address, 16); !slices.Equal(got, want) {
				t.Fatalf("seed %d: of %d candidates\n%v\nwant\n%v", seed, len(candidates), got, want)
			}
		}
	}
	if silent > told/2 { // a quarter of the nodes is too few
		t.Errorf("no answer %d times, an answer only %d times", silent, told)
	}
}

func TestRenumber(t *testing.T) {
	r := Renumber([]string{"a", "c", "d"}, []string{"b", "c", "e"})
	if !slices.Equal(r.to, []int32{-1, 1, -1}) || !slices.Equal(r.added, []int32{0, 2}) {
		t.Errorf("to %v, added %v", r.to, r.added)
	}
}
