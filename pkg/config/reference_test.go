package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// TestReferenceIsUpToDate compares docs/reference/configuration.md with what
// the shape of the document says. It is in the package itself, because the
// shape is nobody else's business.
func TestReferenceIsUpToDate(t *testing.T) {
	const name = "../../docs/reference/configuration.md"
	whole, err := txtar.ParseFile("testdata/whole.txtar")
	if err != nil {
		t.Fatal(err)
	}
	upToDate(t, name, renderReference(whole.Files[0].Data))
}

// upToDate compares a generated reference with what is generated now.
func upToDate(t *testing.T, name, got string) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-want +got (go test ./pkg/config -update rewrites it):\n%s", diff)
	}
}

// The examples in messages and in the reference are right themselves: they may
// be refused for what the rest of the document lacks, but not for themselves.
func TestExamplesOfKeysAreAccepted(t *testing.T) {
	labels := regexp.MustCompile(` \([^)]*\)`)
	elsewhere := regexp.MustCompile(`there is no (pool|peer)|is not in the pool's addresses|there are no peers to advertise to|our AS number is missing|there is no BFD profile|the backend embedded `)
	walk(&documentShape.spec, "", func(path string, s *spec) {
		for _, k := range s.keys {
			key := join(path, k.name)
			document := documentAround(key, k.spec.example)
			_, err := Load([]byte(document))
			var errs Errors
			if err != nil && !errors.As(err, &errs) {
				t.Errorf("%s: %v", key, err)
			}
			for _, e := range errs {
				at := strings.ReplaceAll(labels.ReplaceAllString(e.Path, ""), "[0]", "[]")
				missing := at != key && strings.HasPrefix(e.Message, "is missing")
				if strings.HasPrefix(at, key) && !missing && !elsewhere.MatchString(e.Message) {
					t.Errorf("%s: %v in\n%s", key, e, document)
				}
			}
		}
	})
}

// documentAround puts a value at a path into a document that has nothing else.
func documentAround(path, value string) string {
	parts := strings.Split(path, ".")
	slices.Reverse(parts)
	for _, part := range parts {
		name, list := strings.CutSuffix(part, "[]")
		if list {
			value = "[" + value + "]"
		}
		value = "{" + name + ": " + value + "}"
	}
	return value
}

// walk visits all mappings of the document in the order of the reference.
func walk(s *spec, path string, visit func(path string, s *spec)) {
	if s.item != nil {
		walk(s.item, path+"[]", visit)
	}
	if s.keys == nil {
		return
	}
	visit(path, s)
	for _, k := range s.keys {
		walk(k.spec, join(path, k.name), visit)
	}
}

// renderReference writes the reference.
func renderReference(whole []byte) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	walk(&documentShape.spec, "", func(path string, s *spec) {
		title := "The document"
		if path != "" {
			title = "`" + path + "`"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n", title)
		for _, k := range s.keys {
			fmt.Fprintf(&b, "| `%s` | %s, for example `%s` | %s | %s |\n", k.name, k.spec.what, k.spec.example, defaultOf(k), k.doc)
		}
	})
	fmt.Fprintf(&b, referenceTail, whole)
	return b.String()
}

// defaultOf is what happens without the key.
func defaultOf(k keySpec) string {
	switch v := k.initial.(type) {
	case nil:
		if k.required {
			return "must be there"
		}
		return ""
	case string:
		return "`" + v + "`"
	default:
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return "`" + strings.NewReplacer(`"`, "", ",", ", ").Replace(string(text)) + "`"
	}
}

const referenceHead = `<!-- Generated from the source by: go test ./pkg/config -update -->
# The configuration document

One document configures both binaries. It is the text under the key ` + "`" + ConfigMapKey + "`" + ` of the
ConfigMap ` + "`ccm-baremetal`" + `, or a file given with ` + "`--cloud-config`" + `. The smallest useful one is

` + "```yaml\n" + Smallest + "```" + `

and everything else has a default. ` + "`ccm-baremetal check-config FILE`" + ` checks a document without a cluster;
` + "[`configuration.schema.json`](configuration.schema.json)" + ` is its JSON Schema, for editors.

## Rules for the whole document

- It is read strictly: an unknown key, a key given twice, a key without a value and a value of another type are faults.
  All faults are told at once, and a document with a fault is refused as a whole: what was in force before stays in force.
- It is one YAML 1.2 document. A byte order mark and Windows line ends do no harm. Aliases and merge keys are not read.
- true and false are written without quotes; whole numbers are decimal.
- An empty list is accepted only where it cannot be taken for "all".

**Addresses.** An entry of a list of addresses is one of

| Form | Example |
|---|---|
| an address | ` + "`192.0.2.10`, `2001:db8::10`" + ` |
| a CIDR, all addresses of which are meant, first and last too | ` + "`192.0.2.0/28`, `2001:db8::/64`" + ` |
| a range, both ends of which are meant; blanks round the dash do no harm | ` + "`192.0.2.10-192.0.2.20`, `2001:db8::10 - 2001:db8::1f`" + ` |

An entry with commas is as many entries. Refused, because every reader takes them differently: a CIDR with host bits
set, a reversed range, a range with a short end (` + "`192.0.2.10-20`" + `), leading zeros, IPv4-mapped addresses, zones.
Refused, because no Service can use them: 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 240.0.0.0/4, ::, ::1,
::ffff:0:0/96, fe80::/10, ff00::/8. No address may be listed twice in a pool, nor be given out by two; what one pool
excludes, another may have. The size of a pool costs nothing: a /64 is as good as a /28. In YAML an IPv6 address that
ends in a colon needs quotes (` + "`\"2001:db8::\"`" + `).

**Communities** are two numbers of 16 bits (` + "`65000:100`" + `, RFC 1997), three of 32 bits (` + "`65000:1:2` or `large:65000:1:2`" + `,
RFC 8092), a well-known name (` + "`no-export`, `no-advertise`, `no-peer`, `blackhole`, `graceful-shutdown`" + ` and so on), or a name that
` + "`bgp.communityAliases`" + ` gives one of these numbers. A number that does not fit is a fault.

**Label selectors** are strings as kubectl takes them (` + "`tier in (web, edge),!internal`" + `), or a list of them of which
any may match. Without a selector, and with an empty string, everything is selected.
`

const referenceTail = `
## A document with every key

` + "```yaml\n%s```\n"
