// Package names keeps docs/reference/names.md, the list of all that we write into
// objects of the API and read from them, in step with the constants in the code.
package names

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/reference/names.md")

const (
	root      = "../.."
	reference = root + "/docs/reference/names.md"
	domain    = "ccm-baremetal.io/"
)

// about says of a name on which object it is, and who writes it.
type about struct{ on, writer string }

// annotations are all that we know.
var annotations = map[string]about{
	domain + "addresses":   {"Service", "you"},
	domain + "pool":        {"Service", "you"},
	domain + "sharing-key": {"Service", "you"},
	domain + "ignore":      {"Service", "you"},
	domain + "drain":       {"Node", "you, or `kubectl baremetal drain`"},
	domain + "node-labels": {"Node", "`ccm-baremetal`"},
	domain + "refused":     {"ConfigMap `ccm-baremetal-accepted`", "`ccm-baremetal`"},
}

// others are names with our domain that are no annotations.
var others = map[string]string{
	domain + "Allocated":    "condition of Services, by `ccm-baremetal`: [reasons](services.md#status)",
	domain + "Announced":    "condition of Services, by the announcers; `NoAnnouncer` by `ccm-baremetal`: [reasons](services.md#status)",
	domain + "announcer":    "`loadBalancerClass` of the Services that are ours, unless `services.loadBalancerClass` says otherwise",
	domain + "v1alpha1":     "`apiVersion` of the [configuration](configuration.md)",
	domain + "gossip/v1":    "goes into what the gossip's keys are made of",
	domain + "gossip/v1/id": "goes into what the gossip's keys are told apart by",
}

// events are the reasons of Events, besides those of the conditions.
var events = map[string]about{
	"ConfigurationAccepted": {"ConfigMap `ccm-baremetal`", "Normal"},
	"ConfigurationRefused":  {"ConfigMap `ccm-baremetal`", "Warning"},
	"Released":              {"Service", "Normal"},
	"Announcing":            {"Service", "Normal"},
	"DuplicateAddress":      {"Service", "Warning"},
	"UnknownAnnotation":     {"Service", "Warning"},
	"StatusNotWritten":      {"Service", "Warning"},
	"StatusOverwritten":     {"Service", "Warning"},
	"ExternalIPConflict":    {"Service", "Warning"},
	"NodeNotInitialized":    {"Node", "Warning"},
	"PossibleNodeDeletion":  {"Node", "Warning"},
	"NodeDeletionHeld":      {"Node", "Warning"},
	"NodeLabelsNotWritten":  {"Node", "Warning"},
}

// A constant is a string that the code has a name for.
type constant struct{ name, kind, value, comment string }

// constants returns those of all packages below a directory, without tests.
func constants(t *testing.T, dir string) []constant {
	t.Helper()
	var all []constant
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if g, ok := declaration.(*ast.GenDecl); ok && g.Tok == token.CONST {
				all = append(all, declared(g)...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func declared(g *ast.GenDecl) []constant {
	var all []constant
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		for i, name := range v.Names {
			if i >= len(v.Values) {
				continue
			}
			c := constant{name: name.Name, value: text(v.Values[i])}
			if kind, ok := v.Type.(*ast.Ident); ok {
				c.kind = kind.Name
			}
			for _, comment := range []*ast.CommentGroup{v.Comment, v.Doc, g.Doc} {
				if c.comment == "" {
					c.comment = strings.Join(strings.Fields(comment.Text()), " ")
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// text returns what a string literal says, or one after the constant with our
// domain; "" for everything else.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		if first, ok := e.X.(*ast.Ident); ok && first.Name == "prefix" {
			return domain + text(e.Y)
		}
	}
	return ""
}

// meaning is a constant's comment, without what is for programmers only.
func (c constant) meaning() string {
	said, _, _ := strings.Cut(c.comment, " Changing ")
	said = strings.TrimSuffix(strings.TrimPrefix(said, c.name+" "), ".")
	return said
}

// ours returns the names with our domain.
func ours(t *testing.T) map[string]constant {
	t.Helper()
	all := map[string]constant{}
	for _, c := range slices.Concat(constants(t, "pkg"), constants(t, "cmd")) {
		if strings.HasPrefix(c.value, domain) && c.value != domain && all[c.value].comment == "" {
			all[c.value] = c
		}
	}
	// The default class is a value in a table, and no constant.
	all[domain+"announcer"] = constant{}
	return all
}

func TestEveryNameOfOurDomainIsKnown(t *testing.T) {
	found := slices.Sorted(maps.Keys(ours(t)))
	known := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(annotations)), slices.Collect(maps.Keys(others)))))
	if !slices.Equal(found, known) {
		t.Errorf("the code has\n%q\nand the lists here\n%q", found, known)
	}
}

// reasons returns the constants that are reasons of Events about what the CCM or an
// announcer did, and of nothing else.
func reasons(t *testing.T) map[string]constant {
	t.Helper()
	all := map[string]constant{}
	for _, c := range constants(t, "pkg") {
		if strings.HasPrefix(c.name, "reason") || c.name == "Announcing" {
			all[c.value] = c
		}
	}
	return all
}

func TestEveryReasonOfAnEventIsKnown(t *testing.T) {
	found, known := slices.Sorted(maps.Keys(reasons(t))), slices.Sorted(maps.Keys(events))
	if !slices.Equal(found, known) {
		t.Errorf("the code has\n%q\nand the list here\n%q", found, known)
	}
}

// The reasons of the condition Announced that the announcers have for themselves
// say in their comment with which status they come.
func TestEveryReasonOfAnnouncedIsExplained(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reference/services.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, c := range constants(t, "pkg/announcer/status") {
		status, _, said := strings.Cut(c.comment, ": ")
		if !said || status != "True" && status != "False" {
			continue
		}
		rows++
		if row := "| " + status + " | `" + c.value + "` |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/services.md has no row %q: %s", row, c.comment)
		}
	}
	if rows < 5 {
		t.Errorf("there are %d reasons", rows)
	}
}

// Whoever meets a reason of the CCM's condition finds out what to do about it.
func TestEveryReasonOfAllocatedIsExplained(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reference/services.md")
	if err != nil {
		t.Fatal(err)
	}
	all := typed(t, "pkg/cloudprovider/ipam")
	for _, c := range all {
		if !strings.Contains(string(page), "`"+c.value+"`") {
			t.Errorf("docs/reference/services.md does not explain %s: %s", c.value, c.meaning())
		}
	}
	if len(all) < 10 {
		t.Errorf("there are %d reasons", len(all))
	}
}

// typed returns the constants of type Reason in a package, by value.
func typed(t *testing.T, dir string) []constant {
	t.Helper()
	all := slices.DeleteFunc(constants(t, dir), func(c constant) bool { return c.kind != "Reason" })
	slices.SortFunc(all, func(a, b constant) int { return strings.Compare(a.value, b.value) })
	return all
}

func TestReferenceOfNamesIsUpToDate(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- Generated from the source by: go test ./test/names -update -->\n# Names in objects of the API\n\n" +
		"Changing one of these is an API change. How Services use them: [Services](services.md); Nodes: [Nodes](../nodes.md), [election](../election.md). [Metrics](metrics.md) have a page of their own.\n" +
		"Annotations of other products that are understood, and labels and taints of Kubernetes that count, are on those pages.\n\n" +
		"## Annotations\n\n| annotation | on | written by | meaning |\n|---|---|---|---|\n")
	found := ours(t)
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, annotations[name].on, annotations[name].writer, found[name].meaning())
	}
	b.WriteString("\n## Other names of the domain\n\n| name | what it is |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(others)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, others[name])
	}
	b.WriteString("\n## Events\n\nBesides these, an Event on a Service has the reason of the [condition](services.md#status) that it tells of.\n\n" +
		"| reason | type | on | meaning |\n|---|---|---|---|\n")
	said := reasons(t)
	for _, name := range slices.Sorted(maps.Keys(events)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, events[name].writer, events[name].on, said[name].meaning())
	}
	b.WriteString("\n## Reasons in `announcer explain` and `/debug/plan`\n\nWhy an address is announced from where it is, or not at all, and why a node is left out. [The rule](../election.md#the-rule) has their order.\n\n| reason | meaning |\n|---|---|\n")
	for _, c := range typed(t, "pkg/announcer/plan") {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.value, c.meaning())
	}
	if *update {
		if err := os.WriteFile(reference, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(reference); err != nil || string(have) != b.String() {
		t.Errorf("%s is not what the code says (%v): go test ./test/names -update rewrites it", reference, err)
	}
}
