package config_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var update = flag.Bool("update", false, "rewrite golden files and references")

// head begins every document of these tests.
const head = "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n"

// TestGolden reads each document in testdata and compares what is wrong with
// it, or all that it says, with what stands below it.
func TestGolden(t *testing.T) {
	for name, archive := range goldens(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			got := outcome(archive.Files[0].Data)
			want := string(archive.Files[1].Data)
			archive.Files[1].Data = []byte(got)
			golden(t, name, want, got, txtar.Format(archive))
		})
	}
}

// goldens returns the archives of testdata by file name. Each has a document
// and what becomes of it.
func goldens(t testing.TB) map[string]*txtar.Archive {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	archives := map[string]*txtar.Archive{}
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(archive.Files) != 2 || archive.Files[0].Name != "config.yaml" || archive.Files[1].Name != "want" {
			t.Fatalf("%s: the files are not config.yaml and want", name)
		}
		archives[name] = archive
	}
	return archives
}

// golden compares got with want, or rewrites the file that want comes from.
func golden(t *testing.T, name, want, got string, file []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, file, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s: -want +got (go test ./pkg/config -update rewrites it):\n%s", name, diff)
	}
}

// outcome is what Load makes of a document, as text.
func outcome(document []byte) string {
	c, err := config.Load(document)
	if err != nil {
		return err.Error() + "\n"
	}
	return render(c)
}

// render writes everything that a Config says, except the hash.
func render(c config.Config) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("cluster %q, exclude label: %s, data path check: %s", c.ClusterName, c.ExcludeLabel, c.DataPathCheck)
	line("services: class %s, unclassed too: %t, also understood: %v, mass change: %t",
		c.Services.LoadBalancerClass, c.Services.HandleUnclassed, c.Services.Compatibility, c.Services.AllowMassChange)
	line("membership: port %d, advertise %q, detection %s, settle %s, quorum %s",
		c.Membership.Port, c.Membership.Advertise, c.Membership.Detection, c.Membership.Settle, c.Membership.Quorum)
	for _, p := range c.Pools {
		line("pool %s: %s, priority %d, auto-assign %t, order %s, avoid buggy %t, on mismatch %s",
			p.Name, p.State, p.Priority, p.AutoAssign, p.Order, p.AvoidBuggyIPs, p.OnMismatch)
		line("  sizes %d and %d, ranges %v", p.Size(config.IPv4), p.Size(config.IPv6), p.Ranges)
		line("  namespaces %v or %v, enforced %t, at most %d each; services %v",
			p.Namespaces, p.NamespaceSelector, p.EnforceNamespaces, p.MaxPerNamespace, p.ServiceSelector)
		for _, r := range p.Reservations {
			line("  for %s/%s: %v", r.Namespace, r.Name, r.Ranges)
		}
	}
	for _, a := range c.Advertisements {
		line("advertisement %s: pools %v, services %v, nodes %v", a.Name, a.Pools, a.ServiceSelector, a.NodeSelector)
		if a.Layer2 != nil {
			line("  layer 2 on %v, every %s, conflicts: %s", a.Layer2.Interfaces, a.Layer2.GratuitousRefresh, a.Layer2.ConflictDetection)
		}
		if a.BGP != nil {
			line("  BGP to %v, communities %v, local preference %s, lengths /%d and /%d",
				a.BGP.Peers, a.BGP.Communities, preference(a.BGP.LocalPref), a.BGP.AggregationLength, a.BGP.AggregationLengthV6)
		}
	}
	renderNodes(line, c.Nodes)
	renderBGP(line, c.BGP)
	for _, w := range config.Warnings(c) {
		line("warning: %v", w)
	}
	return b.String()
}

func renderNodes(line func(string, ...any), n config.Nodes) {
	line("nodes: source %s, internal %v, external %v, never %v, delete the gone: %t after %s and %d sightings, off after %s",
		n.Source, n.InternalCIDRs, n.ExternalCIDRs, n.Exclude, n.DeleteGone, n.GoneAfter, n.GoneSightings, n.OffAfter)
	for _, m := range n.Inventory {
		line("  node %q or %v: provider ID %q, addresses %v, zone %q, region %q, type %q, labels %v, decommissioned %t",
			m.Name, m.Selector, m.ProviderID, m.Addresses, m.Zone, m.Region, m.InstanceType, m.Labels, m.Decommissioned)
	}
	if m := n.Metal3; n.Source == config.SourceMetal3 {
		line("  metal3: secret %q, namespace %s; labels %s, %s, %s and %v; addresses %t, by name %t, without host %t, missing: %s",
			m.KubeconfigSecret, m.Namespace, m.ZoneLabel, m.RegionLabel, m.InstanceTypeLabel, m.Labels,
			m.HostAddresses, m.MatchHostNames, m.InitializeWithoutHost, m.OnMissingHost)
	}
}

func renderBGP(line func(string, ...any), b config.BGP) {
	if len(b.Peers) == 0 {
		return
	}
	line("BGP: %s, AS %d, router ID %v, pause %s", b.Backend, b.LocalASN, b.RouterID, b.LeavePause)
	for _, p := range b.Peers {
		line("peer %s: %s port %d, AS %d %s, ours %d, router ID %v, internal %t, families %v, nodes %v",
			p.Name, p.Router(), p.Port, p.ASN, p.Kind, p.LocalASN, p.RouterID, p.Internal(), p.Families, p.NodeSelector)
		line("  from %v, hold %s, keepalive %s, connect %s, multihop %d, TTL security %d, secret %q, graceful restart %s",
			p.SourceAddress, p.HoldTime, p.KeepaliveTime, p.ConnectTime, p.Multihop, p.TTLSecurity, p.PasswordSecret, p.GracefulRestart)
		if p.VRF != "" || p.Passive {
			line("  VRF %q, passive %t", p.VRF, p.Passive)
		}
		if bfd := p.BFD; bfd != nil {
			line("  BFD %s: receive %s, send %s, times %d, echo %t every %s, passive %t, TTL from %d", bfd.Name, bfd.ReceiveInterval, bfd.TransmitInterval,
				bfd.DetectMultiplier, bfd.EchoMode, bfd.EchoInterval, bfd.PassiveMode, bfd.MinimumTTL)
		}
	}
}

func preference(p *uint32) string {
	if p == nil {
		return "unset"
	}
	return fmt.Sprint(*p)
}

// faultsOf returns what is wrong with a document, and fails if nothing is.
func faultsOf(t *testing.T, document string) config.Errors {
	t.Helper()
	_, err := config.Load([]byte(document))
	var faults config.Errors
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("got error %v for\n%s", err, document)
	}
	return faults
}

func load(t testing.TB, document string) config.Config {
	t.Helper()
	c, err := config.Load([]byte(document))
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, document)
	}
	return c
}

func TestB002DoubledPoolNameNamesBothPositions(t *testing.T) {
	document := head + `pools:
- name: default
  addresses: [198.51.100.32-198.51.100.47]
- name: gold
  addresses: [198.51.100.64-198.51.100.79]
- name: default
  addresses: [198.51.100.128-198.51.100.191]
`
	want := config.Errors{{
		Path:    "pools[2] (default).name",
		Line:    8,
		Message: `the pool name "default" is taken already: by pools[0] (default), line 4`,
	}}
	if diff := cmp.Diff(want, faultsOf(t, document)); diff != "" {
		t.Error(diff)
	}
}

func TestSmallestDocumentIsReadAndHasAllDefaults(t *testing.T) {
	c := load(t, config.Smallest)
	if c.Pools[0].Name != "default" || len(c.Advertisements) != 1 || c.Advertisements[0].Layer2 == nil {
		t.Errorf("got %+v", c)
	}
}

// What is the same document for people is the same for Load, whatever the
// editor did to it.
func TestByteOrderMarkLineEndsAndKeyOrderDoNotMatter(t *testing.T) {
	plain := head + "pools:\n- name: lan\n  addresses: ['198.51.100.240 - 198.51.100.250']\n"
	want := render(load(t, plain))
	for name, document := range map[string]string{
		"byte order mark":  "\ufeff" + plain,
		"Windows":          strings.ReplaceAll(plain, "\n", "\r\n"),
		"both":             "\ufeff" + strings.ReplaceAll(plain, "\n", "\r\n"),
		"tabs round dash":  strings.ReplaceAll(plain, " - ", "\t-\t"),
		"no blanks":        strings.ReplaceAll(plain, " - ", "-"),
		"document start":   "---\n" + plain,
		"document end":     plain + "...\n",
		"comments":         "# mine\n" + plain + "# end\n",
		"no final newline": strings.TrimSuffix(plain, "\n"),
		"key order":        "pools:\n- addresses:\n  - 198.51.100.240-198.51.100.250\n  name: lan\nkind: CloudConfig\napiVersion: ccm-baremetal.io/v1alpha1\n",
		"JSON": `{"kind": "CloudConfig", "apiVersion": "ccm-baremetal.io/v1alpha1",
			"pools": [{"addresses": ["198.51.100.240-198.51.100.250"], "name": "lan"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, render(load(t, document))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSyntaxFaultsHaveTheirLine(t *testing.T) {
	for name, test := range map[string]struct {
		document string
		line     int
		message  string
	}{
		"tab":            {"pools:\n- name: a\n\taddresses: []\n", 3, "a tab in the indentation: YAML takes blanks only"},
		"tab and blanks": {"a: 1\nb:\n  c: 1\n  \td: 2\n", 4, "a tab in the indentation: YAML takes blanks only"},
		"bad indent":     {"pools:\n- name: a\n   addresses: []\n", 3, "mapping values are not allowed in this context"},
		"open list":      {"a: 1\npools: [1, 2\nb: 3\n", 3, "did not find expected ',' or ']'"},
		"no colon":       {"a: 1\nb\nc: 2\n", 2, "could not find expected ':'"},
		"not UTF-8":      {"a: 1\nb: \xff\n", 2, "invalid leading UTF-8 octet"},
		"control":        {"a: 1\nb: 2\nc: \x01\n", 3, "control characters are not allowed"},
		"first line":     {"a: b: c\n", 1, "mapping values are not allowed in this context"},
		"no such anchor": {"a: 1\nb: *c\n", 2, "unknown anchor 'c' referenced"},
		"two documents":  {head + "---\n" + head, 3, "a second YAML document begins here"},
		"broken second":  {head + "---\n\t- a\n", 4, "a tab in the indentation"},
		"open second":    {head + "---\na: 1\nb: [\n", 5, "did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := faultsOf(t, test.document)
			if len(faults) != 1 || faults[0].Line != test.line || !strings.Contains(faults[0].Message, test.message) {
				t.Errorf("got %v, want %q in line %d", faults, test.message, test.line)
			}
		})
	}
}

func TestEmptyDocumentIsAnsweredWithTheSmallest(t *testing.T) {
	for _, document := range []string{"", "\n\n", "# nothing yet\n", "---\n", "\ufeff", "null\n", "~", "  \r\n"} {
		faults := faultsOf(t, document)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Message, "the document is empty") ||
			!strings.Contains(faults[0].Message, config.Smallest) {
			t.Errorf("%q: got %v", document, faults)
		}
	}
}

// A file of fifty pools with one bad item.
func TestFaultInALargeDocumentNamesPoolAndItem(t *testing.T) {
	var b strings.Builder
	b.WriteString(head + "pools:\n")
	for i := range 50 {
		last := fmt.Sprintf("10.%d.3.0/24", i)
		if i == 37 {
			last = "10.37.3.0/33"
		}
		fmt.Fprintf(&b, "- name: pool-%d\n  addresses:\n  - 10.%d.1.0/24\n  - 10.%d.2.0/24\n  - %s\n", i, i, i, last)
	}
	faults := faultsOf(t, b.String())
	if len(faults) != 1 || faults[0].Path != "pools[37] (pool-37).addresses[2]" || faults[0].Line != 4+37*5+4 {
		t.Errorf("got %v", faults)
	}
}

func TestHashIsThatOfTheBytes(t *testing.T) {
	one, again := load(t, config.Smallest), load(t, config.Smallest)
	other := load(t, config.Smallest+"# a comment\n")
	if one.Hash != again.Hash || one.Hash == other.Hash || len(one.Hash) != 12 {
		t.Errorf("got %s, %s and %s", one.Hash, again.Hash, other.Hash)
	}
}

// A document that overlaps everywhere must not take minutes, nor drown its
// reader.
func TestOverlapsAreBounded(t *testing.T) {
	document := head + "pools:\n" + strings.Repeat("- name: same\n  addresses: [192.0.2.0/24]\n", 1000)
	overlaps := 0
	last := ""
	for _, fault := range faultsOf(t, document) {
		if strings.Contains(fault.Message, "overlaps") {
			overlaps++
			if strings.Contains(fault.Message, "not shown") {
				last = fault.Message
			}
		}
	}
	if overlaps != 100 || !strings.HasSuffix(last, "more than these 100 overlaps are not shown") {
		t.Errorf("got %d overlaps, the last one %q", overlaps, last)
	}
}

func TestErrorsAreOneLineEach(t *testing.T) {
	errs := config.Errors{
		{Path: "pools[0] (a).name", Line: 3, Message: "is bad"},
		{Line: 4, Message: "is worse"},
		{Path: "pools", Message: "is lost"},
	}
	want := "line 3: pools[0] (a).name: is bad\nline 4: is worse\npools: is lost"
	if got := errs.Error(); got != want {
		t.Errorf("got %q", got)
	}
}
