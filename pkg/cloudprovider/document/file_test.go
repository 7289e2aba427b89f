package document

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestFileIsReadAgainAndTheLastGoodOneKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	put := func(text string) {
		t.Helper()
		// By a rename, as a mounted ConfigMap changes.
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	r := &run{target: &target{inUse: map[string]int{"b": 10}}}
	source := &File{Path: path}
	r.Keeper = NewKeeper(source, r.target, slog.New(slog.DiscardHandler))
	last := ""
	for _, step := range []struct {
		do           func()
		inForce      string
		stale, ready bool
	}{
		{func() {}, "", true, false},
		{func() { put("nonsense") }, "", true, false},
		{func() { put(doc("a", "b")) }, "a+b", false, true},
		{func() { put(doc("a", "b", "c")) }, "a+b+c", false, true},
		{func() { put(doc("x", "x")) }, "a+b+c", true, true},
		{func() { put(doc("a")) }, "a+b+c", true, true}, // would take away all that is in use
		{func() { put(doc("a", "b", "c")) }, "a+b+c", false, true},
		{func() { _ = os.Remove(path) }, "a+b+c", true, true},
		{func() { put(doc("b")) }, "b", false, true},
	} {
		step.do()
		last = source.pass(context.Background(), r.Keeper, last)
		ready := r.HealthChecker().Check(nil) == nil
		if r.target.last() != step.inForce || r.isStale() != step.stale || ready != step.ready {
			t.Fatalf("in force %q, stale %v, ready %v; want %+v", r.target.last(), r.isStale(), ready, step)
		}
	}
	if len(r.target.applied) != 3 {
		t.Errorf("applied: %q", r.target.applied)
	}
}

func TestFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(doc("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &target{}
	follow(t, NewKeeper(&File{Path: path}, g, slog.New(slog.DiscardHandler)))
	eventually(t, "it is in force", func() bool { return g.last() == "a" })
	if err := os.WriteFile(path, []byte(doc("b")), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is in force", func() bool { return g.last() == "b" })
}
