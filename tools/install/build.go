package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/builtins"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// images are the names of the two images, without registry and version.
var images = []string{"ccm-baremetal", "announcer"}

// overlay returns the objects of a directory for kustomize, as YAML. A version
// other than "" becomes that of the images.
func overlay(dir, version string) ([]byte, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", dir, err)
	}
	if version != "" {
		if err := tag(objects, version); err != nil {
			return nil, fmt.Errorf("set the version in %s: %w", dir, err)
		}
	}
	return objects.AsYaml()
}

func tag(objects resmap.ResMap, version string) error {
	for _, name := range images {
		set := builtins.ImageTagTransformerPlugin{
			ImageTag:   types.Image{Name: name, NewTag: version},
			FieldSpecs: []types.FieldSpec{{Path: "spec/template/spec/containers[]/image"}},
		}
		if err := set.Transform(objects); err != nil {
			return err
		}
	}
	return nil
}

// chart returns the objects that the chart in dir makes of values in a
// namespace, as YAML. Values that the chart's schema refuses are an error.
func chart(dir, namespace string, values map[string]any) ([]byte, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("load the chart %s: %w", dir, err)
	}
	release := common.ReleaseOptions{Name: "ccm-baremetal", Namespace: namespace, Revision: 1, IsInstall: true}
	merged, err := util.ToRenderValues(c, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("check the values: %w", err)
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), c, merged)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); strings.HasSuffix(name, ".yaml") && text != "" {
			fmt.Fprintf(&out, "---\n%s\n", strings.TrimPrefix(text, "---\n"))
		}
	}
	return out.Bytes(), nil
}

// readValues reads a file of values; "" stands for none.
func readValues(path string) (map[string]any, error) {
	if path == "" {
		return map[string]any{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return nil, fmt.Errorf("read the values %s: %w", path, err)
	}
	return values, nil
}

// released are the overlays of which a release has one file each, by the name of
// that file. metal3 and delete-nodes are rights that are applied beside one of
// these.
var released = map[string]string{
	"install.yaml":               "base",
	"install-bgp-passwords.yaml": "bgp",
	"install-bgp-frr-k8s.yaml":   "bgp-frr-k8s",
	"install-bgp-frr.yaml":       "bgp-frr",
	"install-lb-only.yaml":       "lb-only",
	"metal3.yaml":                "metal3",
	"delete-nodes.yaml":          "delete-nodes",
}

// release writes the manifests of a version into dir, which is made if needed.
// Equal input gives equal bytes.
func release(manifests, dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(released)) {
		text, err := overlay(filepath.Join(manifests, released[name]), version)
		if err != nil {
			return err
		}
		title := fmt.Sprintf("# ccm-baremetal %s, made of manifests/%s.\n", version, released[name])
		if err := os.WriteFile(filepath.Join(dir, name), append([]byte(title), text...), 0o644); err != nil {
			return err
		}
	}
	return nil
}
