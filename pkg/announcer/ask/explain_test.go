package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

const document = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools:
- {name: public, addresses: [192.0.2.100-192.0.2.199]}
- {name: dmz, addresses: [198.51.100.0/24]}
advertisements:
- {name: lan, pools: [public], nodeSelector: "edge=true", layer2: {}}
- {name: rest, pools: [dmz], layer2: {}}
`

// page returns what the announcer on n1 shows of a cluster in which most
// things happen at once: n3 is no edge, n4 drains, n5 has no announcer.
func page(t *testing.T) status.Plan {
	t.Helper()
	c, err := config.Load([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	s := plan.Snapshot{Node: "n1", Config: c}
	for _, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
		labels := map[string]string{"kubernetes.io/os": "linux"}
		if name != "n3" {
			labels["edge"] = "true"
		}
		if name == "n4" {
			labels[config.LabelExclude] = "" // as kubeadm does it
		}
		s.Nodes = append(s.Nodes, plan.Node{Name: name, Labels: labels})
		if name == "n5" {
			continue
		}
		links := []plan.Link{{
			Name: "eth0", Index: 2, MAC: "02:00:00:00:00:0" + name[1:], Up: name != "n2", NodeIP: true, Default: true,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		}}
		s.Members = append(s.Members, plan.Member{Name: name, Rules: 2, Draining: name == "n4", Config: c.Hash, Links: links})
	}
	s.Links = s.Members[0].Links
	add := func(name string, change func(*plan.Service), addresses ...string) {
		svc := plan.Service{Namespace: "web", Name: name, Allocated: true, Created: time.Unix(int64(len(s.Services)), 0).UTC(),
			Endpoints: plan.Endpoints{Ready: []string{"n1", "n3"}}}
		for _, a := range addresses {
			svc.Addresses = append(svc.Addresses, netip.MustParseAddr(a))
		}
		change(&svc)
		s.Services = append(s.Services, svc)
	}
	add("shop", func(*plan.Service) {}, "192.0.2.101", "198.51.100.7")
	add("idle", func(s *plan.Service) { s.Endpoints = plan.Endpoints{} }, "192.0.2.102")
	add("shared", func(s *plan.Service) { s.Allocated = false }, "192.0.2.101")
	add("pending", func(*plan.Service) {})

	p := status.Plan{Document: document, World: status.World{
		Node: s.Node, Services: s.Services, Nodes: s.Nodes, Members: s.Members, Links: s.Links,
	}}
	verdicts := plan.Decide(s)
	p.Verdicts = verdicts
	p.Answering = plan.Announcements(verdicts, s)[:1]
	return p
}

// ask runs the command line against an announcer that shows a page.
func ask(t *testing.T, p status.Plan, args ...string) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debug/plan" {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(p); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	return execute(append(args, "--server", server.URL+"/")...)
}

// execute runs a command line.
func execute(args ...string) (string, error) {
	root := &cobra.Command{Use: "announcer", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(Options{Program: "announcer", Asked: "somebody", Pages: func() Pages { return &Server{} }})...)
	var out bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

func TestExplain(t *testing.T) {
	p := page(t)
	tests := map[string][]string{
		"explain-service.txt":  {"explain", "web/shop"},
		"explain-address.txt":  {"explain", "192.0.2.102"},
		"explain-service.json": {"explain", "web/shop", "-o", "json"},
		"members.txt":          {"members"},
		"members.json":         {"members", "-o", "json"},
		"simulate.txt":         {"simulate", "--lose", "n1", "--drain", "n3"},
		"simulate.json":        {"simulate", "--lose", "n1", "-o", "json"},
		"simulate-nothing.txt": {"simulate", "--lose", "n4"},
	}
	for file, args := range tests {
		t.Run(file, func(t *testing.T) {
			out, err := ask(t, p, args...)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", file), out)
		})
	}
}

// The Service has endpoints on n1 and n3, of which n1 alone has a session with
// both routers.
func TestExplainAndSimulateRoutes(t *testing.T) {
	p := page(t)
	p.Document = strings.Replace(document, "- {name: rest, pools: [dmz], layer2: {}}", `- {name: tor, pools: [dmz], bgp: {}}
bgp: {localASN: 64500, peers: [{name: r1, address: 203.0.113.1, asn: 64501}, {name: r2, address: 203.0.113.2, asn: 64501, nodeSelector: "edge=true"}]}`, 1)
	p.World.Services[0].Local = true
	for file, args := range map[string][]string{
		"explain-routes.txt":   {"explain", "198.51.100.7"},
		"explain-routes.json":  {"explain", "198.51.100.7", "-o", "json"},
		"simulate-routes.txt":  {"simulate", "--lose", "n1"},
		"simulate-routes.json": {"simulate", "--drain", "n3", "-o", "json"},
	} {
		t.Run(file, func(t *testing.T) {
			out, err := ask(t, p, args...)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", file), out)
		})
	}
}

func TestExplainHandOverAndSilence(t *testing.T) {
	p := page(t)
	p.Answering[0].Yield = true
	out, err := ask(t, p, "explain", "192.0.2.101")
	if want := "still answering on eth0 until the new owner is heard"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v, without %q:\n%s", err, want, out)
	}
	p.Answering = nil
	out, err = ask(t, p, "explain", "192.0.2.101")
	if want := "NOT answering"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v, without %q:\n%s", err, want, out)
	}
}

func TestSimulateAnotherConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new.yaml")
	text := strings.Replace(document, `nodeSelector: "edge=true"`, `nodeSelector: "kubernetes.io/os=linux"`, 1)
	if err := os.WriteFile(file, []byte(strings.Replace(text, "name: rest, pools: [dmz]", "name: rest, pools: [dmz], nodeSelector: edge=false", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := ask(t, page(t), "simulate", "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "simulate-config.txt"), out)
	if err := os.WriteFile(file, []byte("kind: Nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, page(t), "simulate", "--config", file); err == nil || !strings.Contains(err.Error(), "new.yaml") {
		t.Errorf("a wrong document: %v", err)
	}
}

func TestAnObserversAnswersSaySo(t *testing.T) {
	p := page(t)
	p.ObserveOnly, p.Answering = true, nil
	for _, args := range [][]string{{"explain", "192.0.2.101"}, {"members"}, {"simulate", "--drain", "n1"}, {"bgp"}} {
		out, err := ask(t, p, args...)
		if err != nil || !strings.HasPrefix(out, "The announcer on n1 only observes: ") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		if args[0] == "explain" && !strings.Contains(out, "not answering, for it only observes") {
			t.Errorf("%v:\n%s", args, out)
		}
	}
	out, err := ask(t, p, "explain", "192.0.2.101", "-o", "json")
	if err != nil || !strings.Contains(out, `"observeOnly": true`) || !json.Valid([]byte(out)) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestExplainSavedPage(t *testing.T) {
	text, err := json.Marshal(page(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute("explain", "web/shop", "--file", file)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "explain-service.txt"), out)
}

func TestExplainErrors(t *testing.T) {
	p := page(t)
	unsynced := status.Plan{Error: "waiting for Nodes", World: status.World{Node: "n1"}}
	tests := []struct {
		name string
		p    status.Plan
		args []string
		want string
	}{
		{"no such Service", p, []string{"explain", "web/none"}, "the Service web/none is not ours"},
		{"no address yet", p, []string{"explain", "web/pending"}, "holds no address; its condition ccm-baremetal.io/Allocated says why"},
		{"nobody's address", p, []string{"explain", "192.0.2.1"}, "no Service of ours holds 192.0.2.1"},
		{"nonsense", p, []string{"explain", "shop"}, `"shop" is neither an address nor NAMESPACE/SERVICE`},
		{"nothing asked", p, []string{"explain"}, "accepts 1 arg(s), received 0"},
		{"unknown output", p, []string{"members", "-o", "yaml"}, `--output is text or json, not "yaml"`},
		{"nothing to suppose", p, []string{"simulate"}, "nothing to suppose: give --drain, --lose, --config or --trace"},
		{"no such node", p, []string{"simulate", "--drain", "n1,n5"}, "there is no live announcer on n5"},
		{"no such file", p, []string{"simulate", "--config", "/nowhere"}, "--config: open /nowhere"},
		{"not synced", unsynced, []string{"members"}, "the announcer on n1 does not know enough yet: waiting for Nodes"},
		{"something else", status.Plan{}, []string{"members"}, "this is no /debug/plan"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := ask(t, tt.p, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s\n%s", err, tt.want, out)
			}
		})
	}
	_, err := execute("members", "--server", "http://127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "is it running on this node?") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestTextsNameTheProgram(t *testing.T) {
	for _, cmd := range Commands(Options{Program: "kubectl baremetal", Asked: "whoever listens", Pages: func() Pages { return &Server{} }}) {
		if !strings.Contains(cmd.Long, "whoever listens") || !strings.Contains(cmd.Example, "kubectl baremetal "+cmd.Name()) {
			t.Errorf("%s:\n%s\n%s", cmd.Name(), cmd.Long, cmd.Example)
		}
		if strings.Contains(cmd.Long+cmd.Example, "PROGRAM") {
			t.Errorf("%s: a word is left:\n%s", cmd.Name(), cmd.Example)
		}
	}
}
