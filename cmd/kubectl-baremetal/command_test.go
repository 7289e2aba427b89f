package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/diagnose"
	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

func TestCommandsThatReadTheCluster(t *testing.T) {
	kubeconfig := newAPI(t).serve(t)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"status":         {[]string{"status"}, []string{"ccm-1 leads", "3 of 3 ready", "2 of ours, 1 not served", "lan   active  IPv4    4", "shop/db", "no free address"}},
		"status json":    {[]string{"status", "-o", "json"}, []string{`"services": 2`, `"service": "shop/db"`}},
		"pools":          {[]string{"pools"}, []string{"##........ 25 %", "shop/db  PoolExhausted"}},
		"services":       {[]string{"services"}, []string{"shop/web  192.0.2.101  Allocated", "announcing 192.0.2.101 from n2, eth0"}},
		"of a namespace": {[]string{"services", "-n", "web"}, []string{"No Service of ours."}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := command(t, append(c.args, "--kubeconfig", kubeconfig)...)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range c.want {
				if !strings.Contains(out, text) {
					t.Errorf("does not say %q:\n%s", text, out)
				}
			}
		})
	}
}

func TestCommandsThatAskAnAnnouncer(t *testing.T) {
	p := newPlan(t)
	url := announcer(t, func(int) status.Plan { return p })
	kubeconfig := newAPI(t).serve(t)
	for want, args := range map[string][]string{
		"label node.kubernetes.io/exclude-from-external-load-balancers is present and empty": {"explain", "192.0.2.101"},
		"n2 *":                     {"members"},
		"n2 speaks with no router": {"bgp"},
	} {
		out, err := command(t, append(args, "--kubeconfig", kubeconfig, "--announcer-url", url)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v, without %q:\n%s", args, err, want, out)
		}
	}
}

// In a rehearsal nobody has written down that a document is in force.
func TestPageOfARehearsal(t *testing.T) {
	a := newAPI(t)
	delete(a.objects, "/api/v1/namespaces/kube-system/configmaps/ccm-baremetal-accepted")
	p := newPlan(t)
	p.ObserveOnly = true
	out, err := command(t, "ui", "--once", "--kubeconfig", a.serve(t), "--announcer-url", announcer(t, func(int) status.Plan { return p }))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(offered, and no controller has accepted it)", "A rehearsal:", "shop/web"} {
		if !strings.Contains(out, want) {
			t.Errorf("does not say %q:\n%s", want, out)
		}
	}
}

// A rehearsal as it should be has nothing that fails.
func TestARehearsalDoesNotLookBroken(t *testing.T) {
	a := newAPI(t)
	delete(a.objects, "/api/v1/namespaces/kube-system/configmaps/ccm-baremetal-accepted")
	delete(a.objects, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm-baremetal")
	a.deploy("--leader-elect", "--observe-only")
	a.objects["/apis/apps/v1/namespaces/kube-system/daemonsets/announcer"] = appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: runs("--observe-only")}}
	p := newPlan(t)
	p.ObserveOnly = true
	kubeconfig := a.serve(t)
	url := announcer(t, func(int) status.Plan { return p })
	for _, args := range [][]string{{"status"}, {"doctor", "--announcer-url", url}} {
		out, _ := command(t, append(args, "--kubeconfig", kubeconfig)...)
		for check, want := range map[string]string{
			"controller": "the controller only observes", "announcers": "only observe", "configuration": "is rehearsed, and no document is in force",
		} {
			line := regexp.MustCompile(`(?m)^.*\b` + check + ` .*$`).FindString(out)
			if !strings.Contains(line, "warn ") || !strings.Contains(line, want) {
				t.Errorf("%v: %q, without a warning %q", args, line, want)
			}
		}
	}
}

// One that settles announces though it is not ready.
func TestDoctorSeesAnnouncementsOfAnnouncersThatAreNotReady(t *testing.T) {
	a := newAPI(t)
	a.objects["/apis/apps/v1/namespaces/kube-system/daemonsets/announcer"] = appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3}}
	p := newPlan(t)
	out, _ := command(t, "doctor", "--kubeconfig", a.serve(t), "--announcer-url", announcer(t, func(int) status.Plan { return p }))
	if !strings.Contains(out, "0 of 3 ready; there are announcements all the same, by n2") {
		t.Error(out)
	}
}

func TestFlagOf(t *testing.T) {
	for _, c := range []struct {
		args     []string
		value    string
		given    bool
		observes bool
	}{
		{nil, "", false, false},
		{[]string{"--observe-only"}, "", true, true},
		{[]string{"--observe-only", "--leader-elect"}, "", true, true},
		{[]string{"--observe-only=true"}, "true", true, true},
		{[]string{"--observe-only", "--observe-only=false"}, "false", true, false},
		{[]string{"--observe-only-not"}, "", false, false},
	} {
		template := runs(c.args...)
		if value, given := flagOf(template, "observe-only"); value != c.value || given != c.given || observes(template) != c.observes {
			t.Errorf("%q: %q, %t, observes: %t", c.args, value, given, observes(template))
		}
	}
}

func TestDrainDryRunSaysWhatMovesAndWhatStays(t *testing.T) {
	a := newAPI(t)
	p := newPlan(t)
	out, err := command(t, "drain", "n2", "--dry-run", "--kubeconfig", a.serve(t), "--announcer-url", announcer(t, func(int) status.Plan { return p }))
	moves := strings.Count(out, "  n2    n3")
	owned := 0
	for _, v := range p.Verdicts {
		if v.Owner == "n2" {
			owned++
		}
	}
	if err != nil || owned == 0 || moves != owned || strings.Contains(out, "would stay") {
		t.Errorf("%v, %d of %d moves:\n%s", err, moves, owned, out)
	}
	if w := a.writes(); len(w) > 0 {
		t.Errorf("it wrote %v", w)
	}
	for i := range p.World.Services { // policy Local on n2 alone
		p.World.Services[i].Local = true
	}
	s, err := p.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	p.Verdicts = plan.Decide(s)
	out, err = command(t, "drain", "n2", "--dry-run", "--kubeconfig", a.serve(t), "--announcer-url", announcer(t, func(int) status.Plan { return p }))
	if err != nil || !strings.Contains(out, "192.0.2.100, 192.0.2.101, 192.0.2.102, 192.0.2.103 would stay on n2") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestDrainWaitsUntilNothingIsAnnounced(t *testing.T) {
	a := newAPI(t)
	url := announcer(t, func(asked int) status.Plan {
		p := newPlan(t)
		p.World.Members[1].Draining = asked > 1
		if asked > 3 {
			p.Answering = nil
		} else {
			p.Answering = p.Answering[:1]
		}
		return p
	})
	kubeconfig := a.serve(t)
	out, err := command(t, "drain", "n2", "--kubeconfig", kubeconfig, "--announcer-url", url)
	want := `node n2: annotation ccm-baremetal.io/drain is true. The way back: kubectl baremetal undrain n2
node n2: has not noticed yet
node n2: still answers for 1 addresses
node n2: drained, it announces nothing any more
`
	if diff := cmp.Diff(want, out); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if out, err = command(t, "undrain", "n2", "--kubeconfig", kubeconfig); err != nil || !strings.Contains(out, "is gone") {
		t.Errorf("%v: %s", err, out)
	}
	wrote := []string{
		`/api/v1/nodes/n2 {"metadata":{"annotations":{"ccm-baremetal.io/drain":"true"}}}`,
		`/api/v1/nodes/n2 {"metadata":{"annotations":{"ccm-baremetal.io/drain":null}}}`,
	}
	if diff := cmp.Diff(wrote, a.writes()); diff != "" {
		t.Error(diff)
	}
}

func TestDrainThatDoesNotEndSaysSo(t *testing.T) {
	p := newPlan(t)
	p.World.Members[1].Draining = true
	url := announcer(t, func(int) status.Plan { return p })
	kubeconfig := newAPI(t).serve(t)
	_, err := command(t, "drain", "n2", "--timeout", "2s", "--kubeconfig", kubeconfig, "--announcer-url", url)
	if err == nil || !strings.Contains(err.Error(), "not drained yet: still answers for") {
		t.Error(err)
	}
	_, err = command(t, "drain", "n3", "--timeout", "2s", "--kubeconfig", kubeconfig, "--announcer-url", url)
	if err == nil || !strings.Contains(err.Error(), "what answers is the announcer on n2") {
		t.Error(err)
	}
	if _, err = command(t, "drain", "n9", "--kubeconfig", kubeconfig); err == nil || !strings.Contains(err.Error(), "get node n9") {
		t.Error(err)
	}
}

func TestDoctor(t *testing.T) {
	a := newAPI(t)
	a.denied = "endpointslices"
	p := newPlan(t)
	p.Host = []status.HostLink{{Name: "eth0", MTU: 1500, ReversePath: 1}}
	url := announcer(t, func(int) status.Plan { return p })
	out, err := command(t, "doctor", "--kubeconfig", a.serve(t), "--announcer-url", url)
	if inspect.ExitCode(err) != 1 {
		t.Errorf("exit code of %v", err)
	}
	for _, want := range []string{
		"ok       controller          ccm-1 leads",
		"fail     configuration ", // the comment changes the hash
		"n1 (present and empty, as kubeadm sets it)",
		"ok       gossip              1 announcers see each other",
		"fail     kube-proxy          mode ipvs without strictARP",
		"fail     ports               metallb-system/speaker-1 on n3 has 7957",
		"fail     rights              missing: ccm-baremetal may not list endpointslices kubernetes of discovery.k8s.io",
		"warn     other-products      MetalLB",
		"ok       clocks ",
		"ok       mtu                 all links with a Node's address have the same: 1500 on n2",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("does not say %q:\n%s", want, out)
		}
	}
}

// An installation of manifests/base whose document has a password for a router.
func TestDoctorSeesWhatRoutersNeed(t *testing.T) {
	a := newAPI(t)
	a.denied = "secrets"
	a.objects["/api/v1/namespaces/kube-system/configmaps/ccm-baremetal-accepted"] = v1.ConfigMap{Data: map[string]string{config.ConfigMapKey: `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools: [{addresses: [192.0.2.100]}]
bgp: {localASN: 64500, peers: [{name: tor, address: 192.0.2.1, asn: 64501, passwordSecret: bgp-tor}]}
`}}
	p := newPlan(t)
	p.BGP = []status.BGPSession{{Peer: "tor", State: "Idle", Why: "the Secret kube-system/bgp-tor cannot be read"}}
	out, err := command(t, "doctor", "--kubeconfig", a.serve(t), "--announcer-url", announcer(t, func(int) status.Plan { return p }))
	if inspect.ExitCode(err) != 1 {
		t.Errorf("exit code of %v", err)
	}
	for _, want := range []string{
		"; announcer may not get secrets bgp-tor\n",
		"-> given by manifests/base, manifests/bgp, or the chart; the file there that grants to get Secrets has to name them",
		"fail     bgp                 no router can be told of addresses: tor: the Secret kube-system/bgp-tor cannot be read (n2)",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("does not say %q:\n%s", want, out)
		}
	}
}

func TestDoctorWithoutAnnouncersKnowsWhatItDoesNotKnow(t *testing.T) {
	out, _ := command(t, "doctor", "-o", "json", "--kubeconfig", newAPI(t).serve(t), "--announcer-url", "http://127.0.0.1:1")
	if !strings.Contains(out, `"name": "gossip",
      "verdict": "unknown"`) {
		t.Error(out)
	}
	if _, err := command(t, "doctor", "--kubeconfig", "/nowhere"); inspect.ExitCode(err) != 1 {
		t.Error(err)
	}
}

func TestDumpHasEverythingButSecrets(t *testing.T) {
	p := newPlan(t)
	p.Document += "# password: " + hidden + "\n"
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	out, err := command(t, "dump", "-f", file, "--kubeconfig", newAPI(t).serve(t), "--announcer-url", announcer(t, func(int) status.Plan { return p }))
	if err != nil || !strings.Contains(out, "Read it before you send it") {
		t.Fatalf("%v: %s", err, out)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, archive)
	for name, text := range files {
		if strings.Contains(text, hidden) {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
	for name, want := range map[string]string{
		"doctor.json": `"verdict": "fail"`, "plans/n2.json": `"Verdicts"`, "services.json": "192.0.2.101", "nodes.json": "n3",
		"configmap-ccm-baremetal.json": "192.0.2.100-192.0.2.103", "secrets.json": "ccm-baremetal-gossip", "daemonset.json": maskedAs,
		"logs/a-n2-announcer.log": "msg=started", "logs/a-n2-frr.log": "msg=started", "errors.txt": "deployment.json",
	} {
		if !strings.Contains(files["ccm-baremetal/"+name], want) {
			t.Errorf("%s does not have %q:\n%s", name, want, files["ccm-baremetal/"+name])
		}
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(packed); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[head.Name] = string(text)
	}
}

func TestMaskLines(t *testing.T) {
	for text, want := range map[string]string{
		"password: a b":               "password: MASKED",
		"--bgp-password x\nnext":      "--bgp-password MASKED\nnext",
		"api_token=abc":               "api_token=MASKED",
		`{"secretKey": "abc"}`:        `{"secretKey": MASKED`,
		"passwordSecret: router":      "passwordSecret: router",
		"the password is wrong":       "the password is wrong",
		"Authorization: Bearer abc":   "Authorization: MASKED",
		"address: 192.0.2.1":          "address: 192.0.2.1",
		"# db.password = x, y: z\nok": "# db.password = MASKED\nok",
	} {
		if got := maskLines(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestUIPage(t *testing.T) {
	p := newPlan(t)
	p.BGP = []status.BGPSession{{Peer: "tor-a", Address: "192.0.2.1", Port: 179, ASN: 64501, State: "Idle", Why: "connection <refused>", Wanted: 3}}
	p.Moves = []status.Move{
		{Time: time.Date(2026, 1, 31, 11, 59, 8, 0, time.UTC), Address: netip.MustParseAddr("192.0.2.101"), From: "n1", To: "n2", Cause: plan.Draining, Services: []string{"shop/s1"}},
		{Time: time.Date(2026, 1, 31, 11, 58, 0, 0, time.UTC), Address: netip.MustParseAddr("192.0.2.102"), From: "n1", Cause: plan.NoEndpoints, Services: []string{"shop/s2"}},
	}
	a := inspect.Allocations{Hash: "aa", Pools: []inspect.Pool{
		{Name: "lan", State: "active", Family: "IPv4", Size: 4, Used: 1, Free: 3},
		{Name: "full", State: "active", Family: "IPv6", Size: 10, Used: 10, Waiting: 2},
	}}
	services := []service{
		{Service: "shop/s1", Addresses: []string{"192.0.2.101"}, Allocated: condition{Status: "True", Reason: "Allocated"}, Announced: condition{Status: "True", Reason: "Announced", Message: "announcing 192.0.2.101 from n2, eth0"}},
		{Service: "shop/db", Addresses: []string{}, Allocated: condition{Status: "False", Reason: "PoolExhausted", Message: "no <free> address"}},
	}
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	if err := render(&out, newPage(now, a, services, p, nil)); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "ui.html"), out.String())
	wellFormed(t, out.String())
	for _, never := range []string{"<script", "http://", "https://", "url(", "<refused>"} {
		if strings.Contains(out.String(), never) {
			t.Errorf("the page has %q", never)
		}
	}
	out.Reset()
	p.ObserveOnly, p.Moves = true, nil
	if err := render(&out, newPage(now, a, services, p, nil)); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, out.String())
	for _, want := range []string{"A rehearsal: the announcer on n2 only observes", "None since the announcer on n2 has started"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("an observer's page does not say %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := render(&out, newPage(now, a, nil, status.Plan{}, errors.New("forbidden"))); err != nil || !strings.Contains(out.String(), "No announcer could be asked") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// wellFormed fails the test unless every element of a page ends where it has to.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	closed := regexp.MustCompile(`<(meta|br)([^>]*)>`).ReplaceAllString(page, "<$1$2/>") // they have no end in HTML
	d := xml.NewDecoder(strings.NewReader(closed))
	depth := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("at byte %d: %v", d.InputOffset(), err)
		}
		if e, ok := token.(xml.StartElement); ok {
			depth[e.Name.Local]++
		}
	}
	if depth["html"] != 1 || depth["title"] != 1 || depth["table"] < 2 || depth["tr"] < depth["table"] {
		t.Errorf("elements: %v", depth)
	}
}

func TestUIIsReadOnlyAndAnswersToItsOwnNameOnly(t *testing.T) {
	var fault error
	h := handler("127.0.0.1:8958", func(context.Context) (uiPage, error) { return uiPage{}, fault })
	ask := func(method, host, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s %s: no policy", method, path)
		}
		return w
	}
	for _, c := range []struct {
		method, host, path string
		want               int
	}{
		{"GET", "127.0.0.1:8958", "/", 200}, {"GET", "localhost:8958", "/", 200}, {"GET", "evil.example", "/", 421},
		{"POST", "127.0.0.1:8958", "/", 405}, {"GET", "127.0.0.1:8958", "/debug", 404},
	} {
		if w := ask(c.method, c.host, c.path); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
	fault = errors.New("no cluster")
	if w := ask("GET", "127.0.0.1:8958", "/"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "no cluster") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	if _, err := listenLoopback("0.0.0.0:0"); err == nil || !strings.Contains(err.Error(), "no loopback address") {
		t.Error(err)
	}
}

func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# kubectl baremetal\n\n<!-- Generated by the tests of cmd/kubectl-baremetal: make update. -->\n\n")
	root := newCommand()
	writeReference(&b, root.Long, root.Example, "")
	commands := root.Commands()
	slices.SortFunc(commands, func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	for _, cmd := range commands {
		if cmd.Hidden || cmd.Name() == "help" {
			continue
		}
		if cmd.Example == "" || len(cmd.Long) < 80 {
			t.Errorf("%s teaches nothing", cmd.Name())
		}
		b.WriteString("## kubectl baremetal " + strings.TrimSpace(cmd.Use) + "\n\n")
		writeReference(&b, cmd.Long, cmd.Example, cmd.LocalNonPersistentFlags().FlagUsages())
	}
	b.WriteString("## Flags of every command\n\n```\n" + strings.TrimRight(stripHome(root.PersistentFlags().FlagUsages()), "\n") + "\n```\n")
	golden.Check(t, filepath.Join("..", "..", "docs", "kubectl-baremetal.md"), b.String())
}

// stripHome takes out what differs between machines.
func stripHome(text string) string {
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return text
	}
	return strings.ReplaceAll(text, home, "~")
}

func writeReference(b *strings.Builder, long, example, flags string) {
	b.WriteString("```text\n" + strings.TrimSpace(long) + "\n```\n\n")
	if example != "" {
		b.WriteString("```\n" + strings.TrimRight(example, "\n") + "\n```\n\n")
	}
	if flags != "" {
		b.WriteString("```\n" + strings.TrimRight(flags, "\n") + "\n```\n\n")
	}
}

func TestHelpIsOfOneProgram(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"explain", "--help"}, {"check-config", "--help"}, {"drain", "--help"}} {
		out, err := command(t, args...)
		if err != nil || !strings.Contains(out, "kubectl baremetal") || strings.Contains(out, "PROGRAM") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if _, err := command(t, "status", "-o", "yaml", "--kubeconfig", newAPI(t).serve(t)); err == nil || !strings.Contains(err.Error(), "text or json") {
		t.Error(err)
	}
}

func TestSessionsSayWhatIsWrong(t *testing.T) {
	got := sessions(status.Plan{BGP: []status.BGPSession{
		{Peer: "a", State: "Established"},
		{Peer: "b", State: "Established", Why: "FRR has not taken its configuration", Mute: map[config.Family]string{config.IPv6: "no next hop"}},
		{Peer: "c", State: "Idle"},
		{Peer: "d", State: "Left", Why: "Draining"},
	}})
	want := []diagnose.Session{
		{Peer: "a"},
		{Peer: "b", Why: "FRR has not taken its configuration, IPv6: no next hop"},
		{Peer: "c", Down: true, Why: "Idle"},
		{Peer: "d"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
