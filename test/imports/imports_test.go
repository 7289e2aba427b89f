// Package imports holds the architecture to its word: which package may import
// what is a rule of docs/design.md, and here it is checked.
package imports

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ccm-baremetal/ccm-baremetal"

// pure are the packages that decide: values in, values out.
var pure = []string{
	"pkg/config",
	"pkg/cloudprovider/ipam",
	"pkg/cloudprovider/instances/decide",
	"pkg/cloudprovider/eventtext",
	"pkg/announcer/election",
	"pkg/announcer/plan",
	"pkg/announcer/bgp/frrk8s",
	"pkg/announcer/bgp/frr",
	"pkg/announcer/bgp/roster",
	"pkg/announcer/settling",
	"pkg/announcer/replay",
	"pkg/migrate",
	"pkg/wish",
	"pkg/diagnose",
}

// impure is what a pure package must not import itself. An entry that ends in
// a slash stands for everything below it.
var impure = []string{
	"os", "os/", "net", "net/http", "net/http/", "log", "log/", "syscall", "context",
	"crypto/rand", "math/rand", "math/rand/",
	"k8s.io/api/", "k8s.io/client-go/", "k8s.io/klog/", "k8s.io/cloud-provider/", "k8s.io/component-base/",
	"github.com/prometheus/", "github.com/hashicorp/", "github.com/mdlayher/", "github.com/vishvananda/",
	"golang.org/x/sys/", "golang.org/x/net/",
}

// clocks are the functions of package time that read the clock or wait.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// ours says which of our own packages a package may import.
var ours = map[string][]string{
	"pkg/diagnose":               {},
	"pkg/rehearse":               {},
	"pkg/version":                {},
	"pkg/config":                 {},
	"pkg/wish":                   {"pkg/config"},
	"pkg/migrate":                {"pkg/config", "pkg/wish"},
	"pkg/cloudprovider/ipam":     {"pkg/config"},
	"pkg/cloudprovider/document": {"pkg/config", "pkg/cloudprovider/eventtext", "pkg/rehearse"},
	"pkg/cloudprovider/service":  {"pkg/config", "pkg/wish", "pkg/cloudprovider/ipam", "pkg/cloudprovider/eventtext", "pkg/rehearse"},
	"pkg/cloudprovider":          {"pkg/config", "pkg/cloudprovider/ipam", "pkg/cloudprovider/document", "pkg/cloudprovider/service", "pkg/cloudprovider/watchdog", "pkg/cloudprovider/instances", "pkg/cloudprovider/fence", "pkg/rehearse"},
	"pkg/cloudprovider/watchdog": {"pkg/config"},
	"pkg/cloudprovider/inspect":  {"pkg/config", "pkg/migrate", "pkg/cloudprovider/document", "pkg/cloudprovider/service"},
	"pkg/announcer/election":     {"pkg/config"},
	"pkg/announcer/plan":         {"pkg/config", "pkg/announcer/election"},
	"pkg/announcer":              {"pkg/config", "pkg/announcer/plan"},
	"pkg/announcer/membership":   {"pkg/config", "pkg/announcer/plan", "pkg/announcer/election"},
	"pkg/announcer/settling":     {},
	"pkg/announcer/record":       {"pkg/announcer/settling"},
	"pkg/announcer/replay":       {"pkg/config", "pkg/announcer/plan", "pkg/announcer/election", "pkg/announcer/settling"},
	"pkg/announcer/source":       {"pkg/config", "pkg/announcer/plan"},
	"pkg/announcer/l2":           {"pkg/config", "pkg/announcer/plan"},
	"pkg/announcer/bgp":          {"pkg/config", "pkg/announcer/plan", "pkg/announcer/bgp/roster"},
	"pkg/announcer/bgp/roster":   {"pkg/config", "pkg/announcer/plan"},
	"pkg/announcer/bgp/keeper":   {"pkg/announcer/plan", "pkg/announcer/bgp"},
	"pkg/announcer/bgp/frrk8s":   {"pkg/config", "pkg/announcer/plan"},
	"pkg/announcer/bgp/frr":      {"pkg/config", "pkg/announcer/plan"},
	"pkg/announcer/bgp/frrhost":  {"pkg/config", "pkg/announcer/plan", "pkg/announcer/bgp", "pkg/announcer/bgp/frr", "pkg/announcer/bgp/keeper", "pkg/announcer/bgp/roster"},
	"pkg/announcer/status":       {"pkg/config", "pkg/announcer/plan"},
	"pkg/announcer/ask":          {"pkg/config", "pkg/announcer/plan", "pkg/announcer/replay", "pkg/announcer/status"},

	"pkg/announcer/bgp/frrcluster":       {"pkg/config", "pkg/announcer/plan", "pkg/announcer/bgp", "pkg/announcer/bgp/frrk8s", "pkg/announcer/bgp/keeper", "pkg/announcer/bgp/roster"},
	"pkg/cloudprovider/eventtext":        {},
	"pkg/cloudprovider/fence":            {"pkg/rehearse"},
	"pkg/cloudprovider/instances":        {"pkg/config", "pkg/cloudprovider/eventtext", "pkg/cloudprovider/instances/decide"},
	"pkg/cloudprovider/instances/decide": {"pkg/config"},
}

// foreign is what a package outside the pure ones must not import directly.
var foreign = map[string][]string{
	"pkg/announcer/l2":         {"k8s.io/", "github.com/vishvananda/", "github.com/hashicorp/"},
	"pkg/announcer/bgp":        {"k8s.io/", "github.com/vishvananda/", "github.com/hashicorp/", "github.com/mdlayher/"},
	"pkg/announcer/membership": {"k8s.io/", "github.com/mdlayher/"},

	"pkg/announcer/bgp/keeper":     {"k8s.io/", "github.com/vishvananda/", "github.com/hashicorp/", "github.com/mdlayher/"},
	"pkg/announcer/bgp/frrhost":    {"k8s.io/", "github.com/vishvananda/", "github.com/hashicorp/", "github.com/mdlayher/"},
	"pkg/announcer/bgp/frrcluster": {"k8s.io/", "github.com/vishvananda/", "github.com/hashicorp/", "github.com/mdlayher/"},

	"pkg/announcer": {"k8s.io/", "github.com/mdlayher/", "github.com/hashicorp/", "github.com/vishvananda/"},
}

// linked is what a binary must not contain, however indirectly.
var linked = map[string][]string{
	"cmd/announcer":         {"k8s.io/cloud-provider", "k8s.io/apiserver", "github.com/osrg/gobgp/v4/pkg/server", "google.golang.org/grpc"},
	"cmd/kubectl-baremetal": {"github.com/osrg/gobgp/v4/pkg/server", "github.com/hashicorp/memberlist", "github.com/mdlayher/", "github.com/vishvananda/netlink"},
	"cmd/ccm-baremetal":     {"github.com/osrg/gobgp", "github.com/hashicorp/memberlist", "github.com/mdlayher/", "github.com/vishvananda/netlink"},
}

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// list asks the go command about packages of the module, by path below it.
func list(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./pkg/...", "./cmd/...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read what go list says: %v", err)
		}
		packages[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
}

func within(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if strings.HasSuffix(pattern, "/") {
			return strings.HasPrefix(path, pattern)
		}
		return path == pattern
	})
}

func TestPurePackagesTouchNothing(t *testing.T) {
	packages := list(t)
	for _, name := range pure {
		p, ok := packages[name]
		if !ok {
			t.Errorf("%s: no such package", name)
			continue
		}
		for _, path := range p.Imports {
			if within(path, impure) {
				t.Errorf("%s is pure and must not import %s", name, path)
			}
		}
		for _, file := range p.GoFiles {
			for _, call := range clockCalls(t, filepath.Join(p.Dir, file)) {
				t.Errorf("%s is pure and must not read the clock: %s", name, call)
			}
		}
	}
}

// clockCalls returns the positions in a file that name a function of package
// time which reads the clock or waits.
func clockCalls(t *testing.T, path string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, selector.Sel.Name) {
			found = append(found, files.Position(selector.Pos()).String())
		}
		return true
	})
	return found
}

func TestPackagesImportOnlyWhatTheirRowSays(t *testing.T) {
	packages := list(t)
	for name, p := range packages {
		if strings.HasPrefix(name, "cmd/") {
			continue
		}
		allowed, ok := ours[name]
		if !ok {
			t.Errorf("%s: no row says what it may import: add one here and in docs/design.md", name)
			continue
		}
		for _, path := range p.Imports {
			if own, ok := strings.CutPrefix(path, module+"/"); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s must not import %s", name, own)
			}
			if slices.ContainsFunc(foreign[name], func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				t.Errorf("%s must not import %s", name, path)
			}
		}
	}
	for name := range ours {
		if _, ok := packages[name]; !ok {
			t.Errorf("%s has a row here, but there is no such package", name)
		}
	}
}

func TestBinariesLinkOnlyTheirOwnSide(t *testing.T) {
	packages := list(t)
	for name, forbidden := range linked {
		p, ok := packages[name]
		if !ok {
			t.Errorf("%s: no such binary", name)
			continue
		}
		for _, path := range p.Deps {
			if slices.ContainsFunc(forbidden, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				t.Errorf("%s must not link %s", name, path)
			}
		}
	}
}

func TestOnlyTestsImportWhatIsForTests(t *testing.T) {
	for name, p := range list(t) {
		for _, path := range p.Imports {
			if strings.HasPrefix(path, module+"/test/") {
				t.Errorf("%s must not import %s, which is for tests", name, path)
			}
		}
	}
}
