package migrate

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files")

// sources returns the inputs of a golden file.
func sources(a *txtar.Archive) []Source {
	var out []Source
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, ".yaml") {
			out = append(out, Source{f.Name, f.Data})
		}
	}
	return out
}

func goldens(t testing.TB) map[string]*txtar.Archive {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	out := map[string]*txtar.Archive{}
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = a
	}
	return out
}

// shown is an outcome as golden files have it.
func shown(r Result, err error) []txtar.File {
	var out []txtar.File
	add := func(name, text string) {
		if text != "" {
			out = append(out, txtar.File{Name: name, Data: []byte(text)})
		}
	}
	add("document", string(r.Document))
	pools := ""
	for _, p := range r.Config.Pools {
		pools += fmt.Sprintf("%s:", p.Name)
		for _, span := range p.Ranges {
			pools += " " + span.String()
		}
		pools += "\n"
	}
	add("given out", pools)
	lines := func(remarks []Remark) string {
		text := ""
		for _, r := range remarks {
			text += r.String() + "\n"
		}
		return text
	}
	add("losses", lines(r.Losses))
	add("notes", lines(r.Notes))
	if err != nil {
		add("faults", err.Error()+"\n")
	}
	return out
}

func TestGoldens(t *testing.T) {
	for name, a := range goldens(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			r, err := Import(sources(a))
			got := &txtar.Archive{Comment: a.Comment}
			for _, f := range a.Files {
				if strings.HasSuffix(f.Name, ".yaml") {
					got.Files = append(got.Files, f)
				}
			}
			got.Files = append(got.Files, shown(r, err)...)
			want, is := string(txtar.Format(a)), string(txtar.Format(got))
			if *update {
				if err := os.WriteFile(name, []byte(is), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("-want +got (go test ./pkg/migrate -update rewrites it):\n%s", diff)
			}
		})
	}
}

// What is not a document is a reason, and a shape that is refused names what
// is wrong.
func TestRefusedOrWhole(t *testing.T) {
	for name, a := range goldens(t) {
		r, err := Import(sources(a))
		if (err == nil) != (len(r.Document) > 0) {
			t.Errorf("%s: a document of %d bytes and the error %v", name, len(r.Document), err)
		}
		if strings.HasPrefix(filepath.Base(name), "broken-") && err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestPasswordsAreNeverShown(t *testing.T) {
	seen := 0
	for name, a := range goldens(t) {
		if !strings.Contains(string(txtar.Format(&txtar.Archive{Files: a.Files})), "hunter2") {
			continue
		}
		seen++
		if text := string(txtar.Format(&txtar.Archive{Files: shown(Import(sources(a)))})); strings.Contains(text, "hunter2") {
			t.Errorf("%s: the password is shown:\n%s", name, text)
		}
	}
	if seen < 2 {
		t.Errorf("only %d golden files have a password", seen)
	}
}

var separator = regexp.MustCompile(`(?m)^---\n`)

// Neither the order of documents nor their distribution over files changes
// anything, and Windows line ends and a byte order mark do not either.
func TestOrderAndFormDoNotMatter(t *testing.T) {
	for name, a := range goldens(t) {
		var parts []Source
		for _, s := range sources(a) {
			for _, text := range separator.Split(string(s.Text), -1) {
				parts = append(parts, Source{s.Name, []byte(text)})
			}
		}
		want := shown(Import(parts))
		slices.Reverse(parts)
		for i := range parts {
			parts[i].Text = []byte("\ufeff" + strings.ReplaceAll(string(parts[i].Text), "\n", "\r\n"))
		}
		if diff := cmp.Diff(string(txtar.Format(&txtar.Archive{Files: want})), string(txtar.Format(&txtar.Archive{Files: shown(Import(parts))}))); diff != "" {
			t.Errorf("%s: reversed:\n%s", name, diff)
		}
	}
}

func TestB152AvoidedEdgesLeaveAggregatesValid(t *testing.T) {
	a := goldens(t)["testdata/b152-edges-and-aggregates.txtar"]
	r, err := Import(sources(a))
	if err != nil {
		t.Fatal(err)
	}
	pool := r.Config.Pools[0]
	if len(pool.Ranges) != 1 || pool.Ranges[0].String() != "203.0.113.0-203.0.113.255" || !pool.AvoidBuggyIPs {
		t.Errorf("%v, avoided: %t; want the whole CIDR with its edges avoided", pool.Ranges, pool.AvoidBuggyIPs)
	}
	var lengths []int
	for _, ad := range r.Config.Advertisements {
		lengths = append(lengths, ad.BGP.Length("IPv4"))
	}
	if !slices.Equal(lengths, []int{32, 24}) || !strings.Contains(string(r.Document), "203.0.113.0/24") {
		t.Errorf("lengths %v:\n%s", lengths, r.Document)
	}
}

// A glob matches what the expression matches, for every name of a list.
func TestGlobsMatchWhatExpressionsMatch(t *testing.T) {
	names := []string{"", "eth0", "eth10", "eth", "xeth0", "eth0x", "enp3s0", "bond0.678", "bond0x678", "abond0x678b", "a", "abcd", "lo", "br-lan"}
	globs := 0
	for _, expression := range []string{
		"^eth[0-9]+", "^eth[0-9]+$", "^enp.*", "bond0.678", `^bond0\.678$`, "eth", "^eth0$", "", "^.+$", "^lo$|^eth0$", "(?i)ETH", "^eth\\d", "^(a|bcd)+$", "x?$", "^eth0x?",
	} {
		pattern, ok := glob(expression)
		if !ok {
			continue
		}
		globs++
		for _, name := range names {
			got, err := filepath.Match(pattern, name)
			if err != nil || got != regexp.MustCompile(expression).MatchString(name) {
				t.Errorf("%q became %q, which differs on %q (%v)", expression, pattern, name, err)
			}
		}
	}
	if globs < 9 {
		t.Errorf("only %d expressions are globs", globs)
	}
}

func FuzzImport(f *testing.F) {
	for _, a := range goldens(f) {
		for _, s := range sources(a) {
			f.Add(s.Text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := Import([]Source{{"f", text}})
		second, again := Import([]Source{{"f", text}})
		if (err == nil) != (len(first.Document) > 0) || (err == nil) != (again == nil) || string(first.Document) != string(second.Document) {
			t.Errorf("%v, %v:\n%s\n%s", err, again, first.Document, second.Document)
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("^eth[0-9]+", "eth0")
	f.Add("bond0.678", "bond0x678")
	f.Fuzz(func(t *testing.T, expression, name string) {
		pattern, ok := glob(expression)
		if !ok || strings.ContainsAny(name, "/\n") {
			return
		}
		got, err := filepath.Match(pattern, name)
		if want := regexp.MustCompile(expression).MatchString(name); err != nil || got != want {
			t.Errorf("%q became %q: %t for %q, want %t (%v)", expression, pattern, got, name, want, err)
		}
	})
}

// A long file with one wrong item among hundreds: the message names pool and item.
func TestOneWrongItemOfALongFileIsFound(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: metallb-system, name: config}\ndata:\n  config: |\n    address-pools:\n")
	for pool := range 60 {
		fmt.Fprintf(&b, "    - name: pool-%d\n      protocol: layer2\n      addresses:\n", pool)
		for item := range 30 {
			address := fmt.Sprintf("10.%d.%d.0/28", pool, item)
			if pool == 37 && item == 21 {
				address = "10.37.21.0/280"
			}
			fmt.Fprintf(&b, "      - %s\n", address)
		}
	}
	if b.Len() < 38_000 {
		t.Fatalf("%d bytes are no long file", b.Len())
	}
	_, err := Import([]Source{{Name: "config.yaml", Text: []byte(b.String())}})
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(faults[0].String(), `address-pools[37] (pool-37).addresses[21]: "10.37.21.0/280"`) {
		t.Errorf("got %v", err)
	}
}
