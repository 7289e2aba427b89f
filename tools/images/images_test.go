package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// tested is the version that the tests give to their images.
const tested = "v7.8.9"

// built is where TestMain has made the images of both programs for this
// machine's architecture.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "images-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	built = dir
	begin := time.Now()
	if err := run(context.Background(), []string{"-version", tested, "-arch", "amd64", "-out", dir}, os.Stderr); err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "built after %.0f s\n", time.Since(begin).Seconds())
	return m.Run(), nil
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// contents returns all files below dir.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// elsewhere copies the repository as it is, commits and uncommitted work, to
// another directory.
func elsewhere(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "somewhere-else")
	must[[]byte](t)(exec.Command("git", "clone", "--quiet", "../..", dir).CombinedOutput())
	for _, name := range strings.Split(must[string](t)(git(t.Context(), "../..", "ls-files", "--cached", "--others", "--exclude-standard", "-z")), "\x00") {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if name == "" || err != nil { // deleted, and not committed yet
			continue
		}
		path := filepath.Join(dir, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Whoever builds a release again, on whatever day and in whatever directory, gets
// the same bytes, down to the digests.
func TestImagesAreReproducible(t *testing.T) {
	again := t.TempDir()
	if err := run(t.Context(), []string{"-root", elsewhere(t), "-version", tested, "-arch", "amd64", "-out", again}, io.Discard); err != nil {
		t.Fatal(err)
	}
	one, two := contents(t, built), contents(t, again)
	if a, b := slices.Sorted(maps.Keys(one)), slices.Sorted(maps.Keys(two)); !slices.Equal(a, b) {
		t.Fatalf("the files differ:\n%v\n%v", a, b)
	}
	for name := range one {
		if !bytes.Equal(one[name], two[name]) {
			t.Errorf("%s differs between two builds", name)
		}
	}
}

// image returns the image of a program in the OCI layout in dir, and what its
// index says of it.
func image(t *testing.T, dir, program, arch string) v1.Image {
	t.Helper()
	all := must[v1.ImageIndex](t)(layout.ImageIndexFromPath(filepath.Join(dir, program)))
	top := must[*v1.IndexManifest](t)(all.IndexManifest())
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != tested {
		t.Fatalf("the layout has %+v, want one index called %s", top.Manifests, tested)
	}
	index := must[v1.ImageIndex](t)(all.ImageIndex(top.Manifests[0].Digest))
	for _, m := range must[*v1.IndexManifest](t)(index.IndexManifest()).Manifests {
		if m.Platform.OS == "linux" && m.Platform.Architecture == arch {
			return must[v1.Image](t)(index.Image(m.Digest))
		}
	}
	t.Fatalf("%s has no image for linux/%s", program, arch)
	return nil
}

// root returns the files of an image.
func root(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, l := range must[[]v1.Layer](t)(image.Layers()) {
		r := tar.NewReader(must[io.ReadCloser](t)(l.Uncompressed()))
		for {
			header, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all[header.Name] = must[[]byte](t)(io.ReadAll(r))
		}
	}
	return all
}

func TestImageHoldsOneStaticProgramAndItsMaterials(t *testing.T) {
	for _, p := range programs {
		img := image(t, built, p.name, "amd64")
		if err := validate.Image(img); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		files := root(t, img)
		if got, want := slices.Sorted(maps.Keys(files)), slices.Sorted(slices.Values([]string{p.name, materialsFile})); !slices.Equal(got, want) {
			t.Errorf("the image of %s holds %v, want %v", p.name, got, want)
		}
		program := must[*elf.File](t)(elf.NewFile(bytes.NewReader(files[p.name])))
		if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 || program.Section(".interp") != nil {
			t.Errorf("%s is not static: %v, %v", p.name, libraries, err)
		}
		config := must[*v1.ConfigFile](t)(img.ConfigFile())
		if got := config.Config.Labels["org.opencontainers.image.revision"]; got != must[string](t)(commit(t.Context(), "../..")) {
			t.Errorf("the image of %s says that it is of commit %q", p.name, got)
		}
		if beside := must[[]byte](t)(os.ReadFile(filepath.Join(built, p.name+"-amd64.cdx.json"))); !bytes.Equal(beside, files[materialsFile]) {
			t.Errorf("the bill of materials of %s beside the image is another one than within", p.name)
		}
	}
}

// The compiler for another architecture costs minutes where nothing is cached,
// so it is the smaller program that is built for it.
func TestImageForAnotherArchitecture(t *testing.T) {
	dir := t.TempDir()
	if err := run(t.Context(), []string{"-version", tested, "-program", "announcer", "-arch", "arm64", "-out", dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	img := image(t, dir, "announcer", "arm64")
	program := must[*elf.File](t)(elf.NewFile(bytes.NewReader(root(t, img)["announcer"])))
	if program.Machine != elf.EM_AARCH64 {
		t.Errorf("the program is for %s", program.Machine)
	}
	if config := must[*v1.ConfigFile](t)(img.ConfigFile()); config.Architecture != "arm64" {
		t.Errorf("the image says that it is for %s", config.Architecture)
	}
}

func TestMaterialsNameEveryModule(t *testing.T) {
	for _, p := range programs {
		var b bill
		if err := json.Unmarshal(must[[]byte](t)(os.ReadFile(filepath.Join(built, p.name+"-amd64.cdx.json"))), &b); err != nil {
			t.Fatal(err)
		}
		if b.Format != "CycloneDX" || b.SpecVersion != "1.6" || b.Metadata.Component.Version != tested {
			t.Errorf("%s: %s %s of version %s", p.name, b.Format, b.SpecVersion, b.Metadata.Component.Version)
		}
		listed := map[string]string{}
		for _, c := range b.Components {
			listed[c.Name] = c.Version
		}
		want := modules(t, p.name)
		want["stdlib"] = listed["stdlib"]
		if !strings.HasPrefix(want["stdlib"], "go1.") || !maps.Equal(listed, want) {
			t.Errorf("the bill of %s lists\n%v\nand go list\n%v", p.name, listed, want)
		}
	}
}

// modules asks the go command which modules a program is made of.
func modules(t *testing.T, program string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/"+program)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	all := map[string]string{}
	for _, line := range strings.Split(string(must[[]byte](t)(cmd.Output())), "\n") {
		if path, version, ok := strings.Cut(line, " "); ok {
			all[path] = version
		}
	}
	return all
}

func TestPackageURLEscapesThePlus(t *testing.T) {
	if got, want := purl("example.org/m", "v3.0.0+incompatible"), "pkg:golang/example.org/m@v3.0.0%2Bincompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestImagesAreBuiltByTheFlagsOfTheMakefile(t *testing.T) {
	out := must[[]byte](t)(exec.Command("make", "-C", "../..", "--no-print-directory", "--dry-run", "build", "VERSION="+tested).Output())
	if want := "CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '" + linkerFlags(tested, must[string](t)(commit(t.Context(), "../.."))) + "' "; !strings.Contains(string(out), want) {
		t.Errorf("make build runs\n%snot %s", out, want)
	}
}

// The Dockerfile is for other tools, but the images are to be the same: run as the
// same user, and found by kubectl exec. Its bases have no registry in their names.
func TestDockerfileMakesTheSameImages(t *testing.T) {
	text := string(must[[]byte](t)(os.ReadFile("../../Dockerfile")))
	for _, p := range programs {
		stage := fmt.Sprintf("FROM scratch AS %[1]s\nCOPY --from=build /src/bin/%[1]s /\nENV PATH=/\nUSER %[2]s\nENTRYPOINT [\"/%[1]s\"]\n", p.name, p.user)
		if !strings.Contains(text, stage) {
			t.Errorf("there is no\n%s", stage)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if base, ok := strings.CutPrefix(line, "FROM "); ok && strings.Contains(base, "/") {
			t.Errorf("the base %s names a registry", base)
		}
	}
}

func TestCommandLineIsChecked(t *testing.T) {
	for _, args := range [][]string{{}, {"-version", "v1"}, {"-out", "x"}, {"-version", "v1", "-out", t.TempDir(), "-program", "kubectl"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
