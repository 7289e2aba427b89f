// Package docs holds the documentation to its word: links lead somewhere, what it
// names is there, and its examples are accepted.
package docs

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const root = "../.."

// read returns all files of the repository whose name has the suffix, by path.
func read(t *testing.T, suffix string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "dist" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, suffix) {
			text, err := os.ReadFile(path)
			files[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// pages returns all pages, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := read(t, ".md")
	if len(all) < 25 {
		t.Fatalf("there are only %d pages", len(all))
	}
	return all
}

// A block is what stands between ``` and ```.
type block struct{ language, text string }

// split returns a page without its blocks, and these.
func split(page string) (string, []block) {
	var prose strings.Builder
	var blocks []block
	inside := false
	for line := range strings.Lines(page) {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			blocks = append(blocks, block{language: strings.TrimSpace(language)})
			inside = true
		case fence:
			inside = false
		case inside:
			blocks[len(blocks)-1].text += line
		default:
			prose.WriteString(line)
		}
	}
	return prose.String(), blocks
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	link    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("`[^`\n]+`")
)

// anchors returns the names by which links lead to the headings of a page: in
// lower case, without punctuation, with dashes for blanks, and numbered if there
// are several of a name.
func anchors(page string) []string {
	prose, _ := split(page)
	var all []string
	times := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(prose, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, link.ReplaceAllString(m[1], "$1"))
		times[name]++
		if n := times[name]; n > 1 {
			name += "-" + strconv.Itoa(n-1)
		}
		all = append(all, name)
	}
	return all
}

// dead says what is wrong with a link on a page; "" for nothing.
func dead(pages map[string]string, page, target string) string {
	if strings.Contains(target, "://") {
		return ""
	}
	path, anchor, _ := strings.Cut(target, "#")
	there := page
	if path != "" {
		there = filepath.Join(filepath.Dir(page), path)
	}
	if _, err := os.Stat(there); err != nil {
		return err.Error()
	}
	if anchor != "" && !slices.Contains(anchors(pages[there]), anchor) {
		return "there is no such heading"
	}
	return ""
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	links := 0
	for page, text := range all {
		prose, _ := split(text)
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(prose, ""), -1) {
			links++
			if wrong := dead(all, page, m[2]); wrong != "" {
				t.Errorf("%s links to %s: %s", page, m[2], wrong)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	page := filepath.Join(root, "README.md")
	all := map[string]string{page: "# One\n## Two `words`, [linked](x)\n## Two words linked\n```\n# none\n```\n"}
	for target, alive := range map[string]bool{
		"README.md": true, "docs/none.md": false, "https://example.com/none": true,
		"#one": true, "#two-words-linked": true, "#two-words-linked-1": true, "README.md#none": false,
	} {
		if wrong := dead(all, page, target); (wrong == "") != alive {
			t.Errorf("%s: %q", target, wrong)
		}
	}
}

// The names of what the documentation speaks of, wherever they stand in it.
var (
	ourPath   = regexp.MustCompile(`(?:^|[\s` + "`" + `(])((?:manifests|docs|pkg|cmd|test|tools|scripts)/[\w./-]*\w)`)
	ourMetric = regexp.MustCompile(`\b(?:announcer|ccm_baremetal)_[a-z0-9_]*[a-z0-9]\b`)
	ourTarget = regexp.MustCompile("(?m)(?:`|^ *)make ([a-z][a-z-]*)")
	ourTest   = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// names returns what the first group of the pattern, or else all of it, matches
// on each page.
func names(t *testing.T, pattern *regexp.Regexp) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for page, text := range pages(t) {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			name := m[len(m)-1]
			if !slices.Contains(found[name], page) {
				found[name] = append(found[name], page)
			}
		}
	}
	if len(found) < 5 {
		t.Fatalf("only %d names match %s", len(found), pattern)
	}
	return found
}

func TestPathsAreThere(t *testing.T) {
	for path, on := range names(t, ourPath) {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("%q name %s: %v", on, path, err)
		}
	}
}

func TestMetricsAreThere(t *testing.T) {
	reference, err := os.ReadFile(root + "/docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for metric, on := range names(t, ourMetric) {
		if !bytes.Contains(reference, []byte("| `"+metric+"` |")) {
			t.Errorf("%q name the metric %s, which docs/reference/metrics.md does not have", on, metric)
		}
	}
}

func TestTargetsOfMakeAreThere(t *testing.T) {
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for target, on := range names(t, ourTarget) {
		if !bytes.Contains(makefile, []byte("\n"+target+":")) {
			t.Errorf("%q name make %s", on, target)
		}
	}
}

// Tables of behaviours name the tests that prove them, some by their beginning.
func TestTestsAreThere(t *testing.T) {
	var tests strings.Builder
	for _, text := range read(t, "_test.go") {
		tests.WriteString(text)
	}
	for name, on := range names(t, ourTest) {
		if !strings.Contains(tests.String(), "func "+name) {
			t.Errorf("%q name the test %s", on, name)
		}
	}
}

// parts are the keys of the document with which an example may begin.
var parts = []string{"services", "pools", "advertisements", "bgp", "membership", "nodes"}

// document makes a whole document of an example that is one, or a part of one.
// It returns "" for an example of something else.
func document(example string) (string, error) {
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(example), &keys); err != nil {
		return "", err
	}
	if keys["kind"] == "CloudConfig" {
		return example, nil
	}
	if !slices.ContainsFunc(parts, func(part string) bool { return keys[part] != nil }) {
		return "", nil
	}
	text := "apiVersion: ccm-baremetal.io/v1alpha1\nkind: CloudConfig\n" + example
	if keys["pools"] == nil {
		text += "pools: [{addresses: [192.0.2.100-192.0.2.150]}]\n"
	}
	return text, nil
}

func TestExamplesOfTheDocumentAreAccepted(t *testing.T) {
	examples := 0
	for page, text := range pages(t) {
		_, blocks := split(text)
		for _, b := range blocks {
			if b.language != "yaml" {
				continue
			}
			whole, err := document(b.text)
			if err == nil && whole != "" {
				examples++
				_, err = config.Load([]byte(whole))
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", page, err, b.text)
			}
		}
	}
	if examples < 8 {
		t.Errorf("only %d examples were found", examples)
	}
}
