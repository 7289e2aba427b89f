package plan

import (
	"maps"
	"reflect"
	"testing"
)

// What is supposed is what later happens: the member is gone, or drains.
func TestSupposedChangesAreThoseThatHappen(t *testing.T) {
	for seed := range uint64(seeds) {
		s := randomSnapshot(t, seed)
		before := randomSnapshot(t, seed)
		for _, m := range s.Members {
			lost, drained := Lose(s, m.Name), Drain(s, m.Name)
			if len(lost.Members) != len(s.Members)-1 || len(lost.Departed) != len(s.Departed)+1 || len(drained.Members) != len(s.Members) {
				t.Fatalf("seed %d: without %s: %d members, %d departed", seed, m.Name, len(lost.Members), len(lost.Departed))
			}
			for address, owner := range owners(Decide(lost)) {
				if owner == m.Name {
					t.Fatalf("seed %d: %s is lost, and owns %s", seed, m.Name, address)
				}
			}
			if again := owners(Decide(Drain(drained, m.Name))); !maps.Equal(again, owners(Decide(drained))) {
				t.Fatalf("seed %d: %s drains twice", seed, m.Name)
			}
		}
		if !reflect.DeepEqual(s, before) {
			t.Fatalf("seed %d: supposing changed the snapshot", seed)
		}
		if !reflect.DeepEqual(Lose(s, "nobody"), s) || !reflect.DeepEqual(Drain(s, "nobody"), s) {
			t.Fatalf("seed %d: an unknown node changes something", seed)
		}
	}
}
