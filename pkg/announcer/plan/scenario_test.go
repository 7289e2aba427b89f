package plan

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var update = flag.Bool("update", false, "rewrite the verdicts in testdata")

// TestScenarios decides what the files in testdata describe and compares with
// what they say, first one node's verdicts, then what every node does.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("scenarios: %d, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := parseScenario(t, archive)
	got := map[string]string{"verdicts": Table(Decide(s)), "announcements": deeds(s)}
	sections := []string{"verdicts", "announcements"}
	if len(s.Config.BGP.Peers) > 0 {
		got["routes"], got["heralds"] = routes(s), heraldsOf(s)
		sections = append(sections, "routes", "heralds")
	}
	for _, section := range sections {
		i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == section })
		if i < 0 {
			archive.Files = append(archive.Files, txtar.File{Name: section})
			i = len(archive.Files) - 1
		}
		if diff := gocmp.Diff(string(archive.Files[i].Data), got[section]); diff != "" && !*update {
			t.Errorf("%s (-want +got):\n%s", section, diff)
		}
		archive.Files[i].Data = []byte(got[section])
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// deeds says what the announcer of each node does, all having the same view.
func deeds(s Snapshot) string {
	var b strings.Builder
	links := map[string][]Link{s.Node: s.Links}
	for _, m := range s.Members {
		links[m.Name] = m.Links
	}
	for _, m := range s.Members {
		s.Node, s.Links = m.Name, links[m.Name]
		for _, a := range Announcements(Decide(s), s) {
			deed := "announces"
			if a.Yield {
				deed = "would hand over"
			}
			fmt.Fprintf(&b, "%s %s %s on %s", m.Name, deed, a.Address, strings.Join(linkNames(a.Links), ", "))
			if a.Ask {
				b.WriteString(", asking first")
			}
			if a.Layer2.GratuitousRefresh != time.Minute || a.Layer2.ConflictDetection != config.ConflictWarn {
				fmt.Fprintf(&b, ", refresh %s, conflicts %s", a.Layer2.GratuitousRefresh, a.Layer2.ConflictDetection)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// heraldsOf says of each address who tells routers of it, and why others do not.
func heraldsOf(s Snapshot) string {
	var b strings.Builder
	for _, v := range Decide(s) {
		all := Heralds(s, v.Address)
		fmt.Fprintf(&b, "%s", v.Address)
		if len(all) == 0 {
			fmt.Fprintf(&b, " nobody")
		}
		for _, h := range all {
			fmt.Fprintf(&b, " %s:%s", h.Node, cmp.Or(strings.Join(h.Peers, ","), string(h.Reason)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// routes says what the announcer of each node tells its routers.
func routes(s Snapshot) string {
	var b strings.Builder
	for _, m := range s.Members {
		s.Node, s.Self = m.Name, m.Standing
		for _, p := range Peerings(s) {
			fmt.Fprintf(&b, "%s with %s", m.Name, p.Peer.Name)
			if p.Leaving != "" {
				fmt.Fprintf(&b, ", leaving: %s", p.Leaving)
			}
			b.WriteString("\n")
			for _, r := range p.Routes {
				fmt.Fprintf(&b, "  %s for %s by %s", r.Prefix, strings.Join(r.Services, ", "), strings.Join(r.Advertisements, ", "))
				if len(r.Communities) > 0 || r.LocalPref != 100 {
					fmt.Fprintf(&b, ": %v, preference %d", r.Communities, r.LocalPref)
				}
				if len(r.Conflict) > 0 {
					fmt.Fprintf(&b, ", against %s", strings.Join(r.Conflict, ", "))
				}
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}

// The cluster of a scenario, in a form that is quick to read. What is left out
// is as it should be: a node has a Node object, a live announcer, and a link
// eth0 in 192.0.2.0/24 and 2001:db8::/64.
type (
	scenarioDoc struct {
		View     string // the node whose verdicts are shown; default n1
		Reserved []netip.Addr
		Nodes    map[string]nodeDoc
		Services map[string]serviceDoc // by namespace/name
	}
	nodeDoc struct {
		Labels             map[string]string
		Taints             []string
		Addresses          []netip.Addr
		Object             string // missing, deleting
		NetworkUnavailable bool
		Announcer          string // none, passive, draining, departed; for the last the Node must be ready to be missed
		Standing           string // settling, stale, or the reason why it is unfit
		Rules              int    // default: the newest
		Ready              bool
		Links              map[string]linkDoc
		LinksUntold        bool
	}
	linkDoc struct {
		Prefixes []netip.Prefix
		Down     bool
		NodeIP   bool
		Default  bool
		Metric   int
	}
	serviceDoc struct {
		Addresses   []netip.Addr
		Labels      map[string]string
		Age         int // minutes
		Local       bool
		Ready       []string
		Terminating []string
		Nodeless    bool
		Unallocated bool
		Deleting    bool
	}
)

const (
	documentHead = "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n"
	defaultPools = "pools: [{name: public, addresses: [192.0.2.10-192.0.2.99, 198.51.100.0/24, '2001:db8::/64']}]\n"
)

func parseScenario(t *testing.T, archive *txtar.Archive) Snapshot {
	t.Helper()
	text := map[string]string{}
	for _, f := range archive.Files {
		text[f.Name] = string(f.Data)
	}
	document := documentHead + text["config.yaml"]
	if !strings.Contains(document, "\npools:") {
		document += defaultPools
	}
	c, err := config.Load([]byte(document))
	if err != nil {
		t.Fatalf("config.yaml: %v", err)
	}
	var doc scenarioDoc
	if err := yaml.UnmarshalStrict([]byte(text["cluster.yaml"]), &doc); err != nil {
		t.Fatalf("cluster.yaml: %v", err)
	}
	s := doc.snapshot()
	s.Config = c
	return s
}

func (doc scenarioDoc) snapshot() Snapshot {
	s := Snapshot{Node: cmp.Or(doc.View, "n1"), Reserved: doc.Reserved, Returns: 3}
	for _, name := range slices.Sorted(maps.Keys(doc.Nodes)) {
		n := doc.Nodes[name]
		if n.Object != "missing" {
			s.Nodes = append(s.Nodes, Node{
				Name: name, Labels: n.Labels, Taints: n.Taints, Addresses: n.Addresses,
				Deleting: n.Object == "deleting", NetworkUnavailable: n.NetworkUnavailable, Ready: n.Ready,
			})
		}
		m := n.member(name)
		switch n.Announcer {
		case "none":
		case "departed":
			s.Departed = append(s.Departed, m)
		default:
			s.Members = append(s.Members, m)
		}
		if name == s.Node {
			s.Links, s.Self = m.Links, m.Standing
		}
	}
	for _, key := range slices.Sorted(maps.Keys(doc.Services)) {
		s.Services = append(s.Services, doc.Services[key].service(key))
	}
	return s
}

func (n nodeDoc) member(name string) Member {
	m := Member{
		Name: name, Rules: cmp.Or(n.Rules, election.Rules), Links: n.links(),
		Passive: n.Announcer == "passive", Draining: n.Announcer == "draining",
	}
	switch n.Standing {
	case "settling":
		m.Settling = true
	case "stale":
		m.Stale = true
	default:
		m.Unfit = Reason(n.Standing)
	}
	return m
}

func (n nodeDoc) links() []Link {
	if n.LinksUntold {
		return nil
	}
	if n.Links == nil {
		return []Link{{Name: "eth0", Index: 2, Up: true, NodeIP: true, Default: true, Prefixes: []netip.Prefix{
			netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"),
		}}}
	}
	links := []Link{}
	for i, name := range slices.Sorted(maps.Keys(n.Links)) {
		l := n.Links[name]
		links = append(links, Link{
			Name: name, Index: i + 2, Up: !l.Down, Prefixes: l.Prefixes, NodeIP: l.NodeIP, Default: l.Default, Metric: l.Metric,
		})
	}
	return links
}

func (d serviceDoc) service(key string) Service {
	namespace, name, _ := strings.Cut(key, "/")
	return Service{
		Namespace: namespace, Name: name, Labels: d.Labels, Addresses: d.Addresses,
		Created:   time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Duration(d.Age) * time.Minute),
		Allocated: !d.Unallocated, Deleting: d.Deleting, Local: d.Local,
		Endpoints: Endpoints{Ready: d.Ready, Terminating: d.Terminating, Nodeless: d.Nodeless},
	}
}
