package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A program is what an image holds, and as whom it runs.
type program struct{ name, user string }

var programs = []program{
	{"ccm-baremetal", "65532:65532"},
	{"announcer", "0:0"}, // Kubernetes gives NET_RAW to root only
}

// materialsFile is the bill of materials in the root of each image.
const materialsFile = "sbom.cdx.json"

// A builder makes the images of one version.
type builder struct {
	root, version, commit, out string
	created                    time.Time // when the source was committed
}

// write makes the image of a program for each architecture: an OCI layout with
// all of them in out/NAME, and for each an archive that container engines load
// in out/NAME-ARCH.tar, with its bill of materials beside it.
func (b builder) write(ctx context.Context, p program, architectures []string) error {
	dir := filepath.Join(b.out, p.name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tag, err := name.NewTag(p.name + ":" + b.version)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := b.image(ctx, p, arch)
		if err != nil {
			return fmt.Errorf("for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
		if err := tarball.WriteToFile(b.path(p, arch, "tar"), tag, image); err != nil {
			return fmt.Errorf("write the archive for %s: %w", arch, err)
		}
	}
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return written.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": b.version}))
}

func (b builder) path(p program, arch, extension string) string {
	return filepath.Join(b.out, fmt.Sprintf("%s-%s.%s", p.name, arch, extension))
}

// image makes the image of a program for one architecture, and writes its bill
// of materials.
func (b builder) image(ctx context.Context, p program, arch string) (v1.Image, error) {
	binary, err := b.compile(ctx, p.name, arch)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("read what it was built of: %w", err)
	}
	bill, err := b.materials(p.name, info)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.path(p, arch, "cdx.json"), bill, 0o644); err != nil {
		return nil, err
	}
	layer, err := b.layer([]file{{p.name, 0o755, binary}, {materialsFile, 0o644, bill}})
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, b.config(config, p, arch))
}

// config says how an image is run.
func (b builder) config(base *v1.ConfigFile, p program, arch string) *v1.ConfigFile {
	c := base.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", arch, v1.Time{Time: b.created}
	c.Config = v1.Config{
		Entrypoint: []string{"/" + p.name},
		Env:        []string{"PATH=/"}, // for kubectl exec
		User:       p.user,
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    p.name,
			"org.opencontainers.image.version":  b.version,
			"org.opencontainers.image.revision": b.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return c
}

// compile builds a program by the flags of `make build`, and returns it.
func (b builder) compile(ctx context.Context, program, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "images-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, program)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", linkerFlags(b.version, b.commit), "-o", path, "./cmd/"+program)
	cmd.Dir = b.root
	// What the builder's machine prefers must not show in the result.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build it: %w: %s", err, printed)
	}
	return os.ReadFile(path)
}

// linkerFlags are those of the Makefile.
func linkerFlags(version, commit string) string {
	const ours = " -X github.com/ccm-baremetal/ccm-baremetal/pkg/version."
	return "-s -w" + ours + "release=" + version + ours + "commit=" + commit + " -X k8s.io/component-base/version.gitVersion=" + version
}

// A file of an image, in its root.
type file struct {
	name string
	mode int64
	data []byte
}

func (b builder) layer(files []file) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: b.created, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
