package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestVersionIsThatOfTheModule(t *testing.T) {
	mod, err := sources.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "\tk8s.io/kubernetes "+Version+"\n") {
		t.Errorf("go.mod does not require k8s.io/kubernetes %s, which the lab says it runs", Version)
	}
}

// TestEnsureBuildsOnce lets several programs want the same binary at once.
func TestEnsureBuildsOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GOCACHE", goCache(t))
	var out syncBuilder
	var dirs [3]string
	var wanting sync.WaitGroup
	for i := range dirs {
		wanting.Go(func() {
			dir, err := ensure(t.Context(), nodeTarget(), &out)
			if err != nil {
				t.Error(err)
			}
			dirs[i] = dir
		})
	}
	wanting.Wait()
	if n := strings.Count(out.String(), "built in"); n != 1 || dirs[0] != dirs[1] || dirs[1] != dirs[2] {
		t.Fatalf("built %d times, into %v", n, dirs)
	}
	if info, err := os.Stat(filepath.Join(dirs[0], nodeProgram)); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("the binary: %v, %v", info, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dirs[0]), "*.new"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPruneRemovesWhatNobodyUses(t *testing.T) {
	cache := t.TempDir()
	long := time.Now().Add(-2 * keepUnused)
	for _, name := range []string{"x-old", "x-new", "x-used", "y-old"} {
		dir := filepath.Join(cache, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "x-new" {
			continue
		}
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	if !used(filepath.Join(cache, "x-used")) || used(filepath.Join(cache, "x-never-built")) {
		t.Error("used does not tell what exists")
	}
	if err := prune(filepath.Join(cache, "x-*")); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, dir := range left {
		names = append(names, filepath.Base(dir))
	}
	if want := []string{"x-new", "x-used", "y-old"}; !slices.Equal(names, want) {
		t.Errorf("left %v, want %v", names, want)
	}
}

// goCache is asked for before XDG_CACHE_HOME points elsewhere.
func goCache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("GOCACHE"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(home, ".cache", "go-build")
}

func TestBuildSaysWhatTheCompilerSays(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("GOCACHE", goCache(t))
	broken := nodeTarget()
	broken.pkg = "./no-such-package"
	_, err := ensure(t.Context(), broken, &syncBuilder{})
	if err == nil || !strings.Contains(err.Error(), "no-such-package") {
		t.Fatalf("got %v, want what the go command says", err)
	}
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(cache)
	if err != nil || len(left) != 1 || left[0].Name() != ".lock" {
		t.Errorf("a build that went wrong left %v, %v; want the lock alone", left, err)
	}
}

func TestHashCoversInputsAndFlags(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*target){
		"as it is":       func(*target) {},
		"other flags":    func(x *target) { x.flags = append(x.flags, "-race") },
		"another source": func(x *target) { x.inputs = x.inputs[1:] },
	} {
		x := controlPlaneTarget()
		change(&x)
		if other, ok := seen[x.hash()]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[x.hash()] = name
	}
}

// TestFoundControlPlane looks at directories of programs that only say their
// version.
func TestFoundControlPlane(t *testing.T) {
	full, old, part := t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range controlPlanePrograms {
		fake(t, full, name, "Kubernetes v1.37.9")
		fake(t, old, name, "Kubernetes v1.36.1")
	}
	fake(t, part, "kube-apiserver", "Kubernetes v1.37.9")
	for _, test := range []struct {
		assets, path, want string
	}{
		{"", old + ":" + part, ""},
		{"", old + ":" + full, full},
		{full, old, full},
		{part, old, ""},
	} {
		t.Setenv("KUBEBUILDER_ASSETS", test.assets)
		t.Setenv("PATH", test.path+":/usr/bin:/bin")
		if got, ok := findControlPlane(t.Context()); got != test.want || ok != (test.want != "") {
			t.Errorf("KUBEBUILDER_ASSETS=%s PATH=%s: %q, want %q", test.assets, test.path, got, test.want)
		}
	}
}

func fake(t *testing.T, dir, name, version string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+version+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestProgressTellsPackagesFromComplaints(t *testing.T) {
	p := progress{}
	complaints := p.follow(strings.NewReader("k8s.io/api/core/v1\n# k8s.io/api\nmain.go:3:1: no\nruntime\n"))
	if p.compiled.Load() != 2 || complaints != "# k8s.io/api\nmain.go:3:1: no\n" {
		t.Errorf("%d packages, complaints %q", p.compiled.Load(), complaints)
	}
}

func TestMissingPackages(t *testing.T) {
	got := missingPackages([]program{{"sh", "dash"}, {"no-such-program", "a"}, {"nor-this-one", "a"}})
	if len(got) != 1 || got[0] != "a" {
		t.Errorf("missing %v, want a alone", got)
	}
}

// syncBuilder is a strings.Builder for several writers.
type syncBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
