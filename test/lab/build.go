package lab

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Version is the Kubernetes that the lab runs; go.mod requires the same.
const Version = "v1.37.2"

// nodeProgram stands in for a kubelet and is the program in every pod.
const nodeProgram = "lab-node"

// The programs of a control plane. All are one binary, which goes by its name.
var controlPlanePrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kubectl"}

// sources is what the programs are built from. They are embedded, so that a
// test, or a copy of the lab command somewhere else, can build them too.
//
//go:embed go.mod go.sum controlplane/main.go node/*.go
var sources embed.FS

// Binaries are the paths of the programs that a lab runs, by their names.
type Binaries map[string]string

// dir returns the directory of the control plane's programs.
func (b Binaries) dir() string { return filepath.Dir(b["kubectl"]) }

// Names returns the programs' names, sorted.
func (b Binaries) Names() []string { return slices.Sorted(maps.Keys(b)) }

// A target is one binary that is built from sources and kept in the cache.
type target struct {
	name   string
	pkg    string
	inputs []string // what its hash covers
	flags  []string
	links  []string // other names under which it can be called
}

func controlPlaneTarget() target {
	major, minor, _ := strings.Cut(strings.TrimPrefix(Version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const v = "-X k8s.io/component-base/version."
	return target{
		name: "controlplane", pkg: "./controlplane",
		inputs: []string{"go.mod", "go.sum", "controlplane/main.go"},
		flags:  []string{"-ldflags", fmt.Sprintf("-s -w %sgitVersion=%s %sgitMajor=%s %sgitMinor=%s", v, Version, v, major, v, minor)},
		links:  controlPlanePrograms,
	}
}

func nodeTarget() target {
	return target{name: nodeProgram, pkg: "./node", inputs: []string{"node/main.go", "node/pod.go", "node/heartbeat.go"}}
}

// Build returns the programs of a lab, and makes those that are missing. The
// control plane is taken from KUBEBUILDER_ASSETS or from a directory on PATH
// when all of it is there in the right version; else it is built from its Go
// modules, once for all labs of this user, below CacheDir. That takes minutes,
// and out gets a line every ten seconds. Debian packages that the lab needs are
// installed.
func Build(ctx context.Context, out io.Writer) (Binaries, error) {
	if out == nil {
		out = io.Discard
	}
	if err := installPrograms(ctx, out); err != nil {
		return nil, err
	}
	binaries := Binaries{}
	if dir, ok := findControlPlane(ctx); ok {
		fmt.Fprintf(out, "control plane: using the one in %s\n", dir)
		binaries.add(dir, controlPlanePrograms...)
	} else {
		dir, err := ensure(ctx, controlPlaneTarget(), out)
		if err != nil {
			return nil, err
		}
		binaries.add(dir, controlPlanePrograms...)
	}
	dir, err := ensure(ctx, nodeTarget(), out)
	if err != nil {
		return nil, err
	}
	binaries.add(dir, nodeProgram)
	return binaries, nil
}

func (b Binaries) add(dir string, names ...string) {
	for _, name := range names {
		b[name] = filepath.Join(dir, name)
	}
}

// findControlPlane looks for a directory that holds every program, all of them
// of the lab's minor version.
func findControlPlane(ctx context.Context) (string, bool) {
	for _, dir := range append([]string{os.Getenv("KUBEBUILDER_ASSETS")}, filepath.SplitList(os.Getenv("PATH"))...) {
		if dir != "" && fits(ctx, dir) {
			return dir, true
		}
	}
	return "", false
}

func fits(ctx context.Context, dir string) bool {
	for _, name := range controlPlanePrograms {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	minor := Version[:strings.LastIndexByte(Version, '.')+1]
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy"} {
		out, err := exec.CommandContext(ctx, filepath.Join(dir, name), "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), "Kubernetes "+minor) {
			return false
		}
	}
	return true
}

// CacheDir is where built programs are kept, for all later labs.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "ccm-baremetal-lab"), nil
}

// ensure returns the directory that holds a target, which it builds unless that
// was done before. Of several programs that want the same, one builds.
func ensure(ctx context.Context, t target, out io.Writer) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(cache, t.name+"-"+t.hash())
	if used(dir) {
		return dir, nil
	}
	unlock, err := lockFile(filepath.Join(cache, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if used(dir) {
		return dir, nil
	}
	if err := t.buildInto(ctx, dir, out); err != nil {
		return "", fmt.Errorf("build %s: %w", t.name, err)
	}
	return dir, prune(filepath.Join(cache, t.name+"-*"))
}

// used says whether dir exists, and notes that it is in use.
func used(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// keepUnused is how long a build is kept that nobody uses.
const keepUnused = 7 * 24 * time.Hour

// prune removes the directories that match pattern and were not used for long:
// each change of a dependency makes a new build.
func prune(pattern string) error {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err == nil && time.Since(info.ModTime()) > keepUnused {
			err = os.RemoveAll(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hash covers everything that makes one build differ from another.
func (t target) hash() string {
	h := sha256.New()
	for _, name := range t.inputs {
		b, err := sources.ReadFile(name)
		if err != nil {
			panic(err) // not embedded: a bug
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	fmt.Fprintf(h, "%q %s %s %s", t.flags, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// buildInto makes dir with the binary and its other names. It appears as a
// whole or not at all.
func (t target) buildInto(ctx context.Context, dir string, out io.Writer) error {
	source, err := os.MkdirTemp("", "ccm-lab-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(source)
	if err := os.CopyFS(source, sources); err != nil {
		return err
	}
	work := dir + ".new"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	if err := t.compile(ctx, source, filepath.Join(work, t.name), out); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	for _, link := range t.links {
		if err := os.Symlink(t.name, filepath.Join(work, link)); err != nil {
			return err
		}
	}
	return os.Rename(work, dir)
}

// lockFile waits until nobody else holds the lock called path. The kernel gives
// it back when its holder dies.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
