//go:build chromium

package main

import (
	"bufio"
	"context"
	"fmt"
	"image"
	"image/color"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/net/html"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

// elsewhere is the host that hostile strings want a browser to ask.
const elsewhere = "elsewhere.test"

const sceneDocument = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools:
- {name: edge, addresses: [192.0.2.100-192.0.2.107]}
- {name: full, addresses: [192.0.2.200-192.0.2.201], autoAssign: false}
- {name: old, addresses: [192.0.2.240-192.0.2.243], state: draining}
- {name: six, addresses: ["2001:db8:1::/64"], autoAssign: false}
`

// hostile are strings that would do something if a browser took them for markup,
// by the place where they are put.
var hostile = map[string]string{
	"Service":   `x"></td></tr></table><img src="http://elsewhere.test/service" onerror="document.title='ran'">`,
	"reason":    `<script>document.title = "ran"</script>`,
	"allocated": `</style><style>@import "http://elsewhere.test/style"; body { display: none }</style>`,
	"announced": `<iframe src="http://elsewhere.test/frame"></iframe>&lt;script src=http://elsewhere.test/script&gt;`,
	"Node":      `n5<svg onload="fetch('http://elsewhere.test/svg')"></svg>`,
	"label":     `"><a href="javascript:document.title='ran'">a</a>{{.Hash}}`,
	"link":      `<b>eth0</b>`, // a name that Linux would allow, without the slash
	"peer":      `<meta http-equiv="refresh" content="0;url=http://elsewhere.test/refresh">`,
	"why":       `<form action="http://elsewhere.test/form"><input autofocus onfocus="form.submit()"></form>`,
	"from":      `<base href="http://elsewhere.test/"><link rel="stylesheet" href="base">`,
}

// scene is a cluster of five nodes on a bad day, in which every string that comes
// from somebody else is hostile somewhere.
func scene(t *testing.T) (*api, status.Plan) {
	t.Helper()
	a := newAPI(t)
	a.objects["/api/v1/namespaces/kube-system/configmaps/ccm-baremetal-accepted"] = v1.ConfigMap{
		ObjectMeta: meta("kube-system", "ccm-baremetal-accepted"), Data: map[string]string{"config.yaml": sceneDocument},
	}
	a.objects["/api/v1/services"] = v1.ServiceList{Items: []v1.Service{
		served("shop", "web", "edge", "192.0.2.100", "announcing 192.0.2.100 from n3, eth0"),
		served("shop", hostile["Service"], "edge", "192.0.2.101", hostile["announced"]),
		served("media", "stream", "full", "192.0.2.200", "announcing 192.0.2.200 from n3, eth0"),
		served("media", "radio", "full", "192.0.2.201", "announcing 192.0.2.201 from n2, eth0"),
		served("legacy", "ftp", "old", "192.0.2.240", "announcing 192.0.2.240 from n3, eth0"),
		waiting("media", "podcast", "PoolExhausted", `no free address in pool "full"`),
		waiting("team", "odd", hostile["reason"], hostile["allocated"]),
	}}
	return a, scenePlan(t)
}

var sceneTime = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// served returns a Service that is announced.
func served(namespace, name, pool, address, message string) v1.Service {
	s := v1.Service{ObjectMeta: meta(namespace, name), Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
	s.Annotations = map[string]string{"ccm-baremetal.io/pool": pool}
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: address}}
	s.Status.Conditions = []metav1.Condition{
		{Type: config.ConditionAllocated, Status: metav1.ConditionTrue, Reason: "Allocated", Message: fmt.Sprintf("%s from pool %q", address, pool), LastTransitionTime: metav1.NewTime(sceneTime)},
		{Type: config.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: "Announced", Message: message, LastTransitionTime: metav1.NewTime(sceneTime.Add(time.Second))},
	}
	return s
}

// waiting returns a Service that wants an address of the full pool.
func waiting(namespace, name, reason, message string) v1.Service {
	s := served(namespace, name, "full", "", "")
	s.Status.LoadBalancer.Ingress = nil
	s.Status.Conditions = []metav1.Condition{
		{Type: config.ConditionAllocated, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(sceneTime)},
	}
	return s
}

// scenePlan is what the announcer on n2 shows: n1 carries kubeadm's label, n4 is
// leaving, and n5 is hostile.
func scenePlan(t *testing.T) status.Plan {
	t.Helper()
	c, err := config.Load([]byte(sceneDocument))
	if err != nil {
		t.Fatal(err)
	}
	s := plan.Snapshot{Node: "n2", Config: c}
	for i, name := range []string{"n1", "n2", "n3", "n4", hostile["Node"]} {
		link := plan.Link{Name: "eth0", Index: 2, MAC: fmt.Sprintf("02:00:00:00:00:%02d", i+1), Up: true, NodeIP: true, Default: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		node := plan.Node{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}, Ready: true}
		switch name {
		case "n1":
			node.Labels[config.LabelExclude] = ""
		case hostile["Node"]:
			node.Labels[config.LabelExclude] = hostile["label"]
			link.Name = hostile["link"]
		}
		s.Nodes = append(s.Nodes, node)
		s.Members = append(s.Members, plan.Member{Name: name, Rules: 2, Config: c.Hash, Draining: name == "n4", Links: []plan.Link{link}})
	}
	s.Links = s.Members[1].Links
	for service, address := range map[string]string{"shop/web": "192.0.2.100", "shop/" + hostile["Service"]: "192.0.2.101", "media/stream": "192.0.2.200", "media/radio": "192.0.2.201", "legacy/ftp": "192.0.2.240"} {
		namespace, name, _ := strings.Cut(service, "/")
		s.Services = append(s.Services, plan.Service{Namespace: namespace, Name: name, Allocated: true, Created: sceneTime, Addresses: []netip.Addr{netip.MustParseAddr(address)}, Endpoints: plan.Endpoints{Ready: []string{"n2"}}})
	}
	verdicts := plan.Decide(s)
	return status.Plan{
		Document: sceneDocument, Verdicts: verdicts, Answering: plan.Announcements(verdicts, s),
		World: status.World{Node: s.Node, Services: s.Services, Nodes: s.Nodes, Members: s.Members, Links: s.Links},
		BGP: []status.BGPSession{
			{Peer: "tor-a", Address: "192.0.2.1", Port: 179, ASN: 64501, State: "Established", Wanted: 0},
			{Peer: hostile["peer"], Address: "192.0.2.2", Port: 179, ASN: 64502, State: "Idle", Why: hostile["why"], Wanted: 3},
		},
		Moves: []status.Move{
			{Time: sceneTime, Address: netip.MustParseAddr("192.0.2.201"), From: "n4", To: "n2", Cause: plan.Draining, Services: []string{"media/radio"}},
			{Time: sceneTime.Add(-time.Minute), Address: netip.MustParseAddr("192.0.2.101"), From: hostile["from"], To: "n3", Cause: plan.ExcludeLabel, Services: []string{"shop/" + hostile["Service"]}},
			{Time: sceneTime.Add(-time.Hour), Address: netip.MustParseAddr("192.0.2.203"), From: "n3", Cause: plan.NoEndpoints, Services: []string{"media/tv"}},
		},
	}
}

// startUI runs the command until the test ends, and returns the URL that it prints.
func startUI(t *testing.T, a *api, p status.Plan) string {
	t.Helper()
	args := []string{"ui", "--listen", "127.0.0.1:0", "--kubeconfig", a.serve(t), "--announcer-url", announcer(t, func(int) status.Plan { return p })}
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, args, writer, io.Discard)
		_ = writer.CloseWithError(err) // never fails
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the command ended with %v", err)
		}
	})
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(line)[0]
}

// What a person sees in a browser is the page that was meant, whatever strings are
// in the cluster: its text is in the file, and nothing in it is of their making.
func TestChromiumShowsThePageAndTakesNoStringForMarkup(t *testing.T) {
	b := newBrowser(t)
	a, p := scene(t)
	document, picture := b.open(t, startUI(t, a, p))
	shown := outline(t, document)
	golden.Check(t, filepath.Join("testdata", "ui.txt"), regexp.MustCompile(`[\d-]{10} [\d:]{8} UTC`).ReplaceAllString(shown, "NOW UTC"))
	for where, text := range hostile {
		if !strings.Contains(shown, text) {
			t.Errorf("the page does not show as it is the hostile string in %s: %s", where, text)
		}
	}
	if asked := b.askedFor(elsewhere); len(asked) > 0 {
		t.Errorf("the browser asked for %q", asked)
	}
	checkPicture(t, picture)
}

// checkPicture looks for what catches the eye: the bars of the pools, and the red
// of the one that is full. A bar is 9rem long, which is 144 pixels.
func checkPicture(t *testing.T, picture image.Image) {
	t.Helper()
	if size := picture.Bounds().Size(); size != image.Pt(windowWidth, windowHeight) {
		t.Errorf("the picture has %s pixels", size)
	}
	if n := colours(picture); n < 50 { // letters have many shades
		t.Errorf("it has %d colours", n)
	}
	for name, c := range map[string]struct {
		colour color.RGBA
		want   []int // from top to bottom
	}{
		"blue": {color.RGBA{0x2f, 0x6f, 0xb4, 0xff}, []int{36, 36}}, // edge and old, a quarter of each is used
		"red":  {color.RGBA{0xb3, 0x26, 0x1e, 0xff}, []int{144}},    // full
	} {
		got := bars(picture, c.colour)
		if !slices.EqualFunc(got, c.want, func(a, b int) bool { return max(a-b, b-a) <= 3 }) {
			t.Errorf("bars in %s are %v pixels long, want about %v", name, got, c.want)
		}
	}
}

// Should a string become markup after all, the policy that goes with the page keeps
// it from running anything and from asking anybody. Without the policy the same
// browser does both, so that a test would notice.
func TestChromiumObeysThePolicy(t *testing.T) {
	const markup = `<!doctype html><title>quiet</title><script>document.title = "ran"</script><img src="http://elsewhere.test/image">
<script src="http://elsewhere.test/script"></script><style>@import "http://elsewhere.test/style";</style><iframe src="http://elsewhere.test/frame"></iframe>`
	for name, c := range map[string]struct {
		policy, title string
		asked         int
	}{
		"with the policy":    {policy, "quiet", 0},
		"without any policy": {"", "ran", 4},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				if c.policy != "" {
					w.Header().Set("Content-Security-Policy", c.policy)
				}
				_, _ = io.WriteString(w, markup) // the browser has gone
			}))
			t.Cleanup(server.Close)
			b := newBrowser(t)
			document, _ := b.open(t, server.URL+"/")
			if title := textOf(find(document, "title")); title != c.title {
				t.Errorf("the title is %q, want %q", title, c.title)
			}
			asked := b.askedFor(elsewhere)
			slices.Sort(asked)
			if asked = slices.Compact(asked); len(asked) != c.asked { // it may ask again
				t.Errorf("the browser asked for %q, want %d", asked, c.asked)
			}
		})
	}
}

// elements and attributes are all that the template of the page has, and none of
// them makes a browser ask for or run anything. (Its style is in the golden file of
// TestUIPage.)
var (
	elements   = strings.Fields("html head meta title style body h1 h2 p table tbody tr th td progress br")
	attributes = strings.Fields("lang charset name content class colspan max value")
)

// outline returns the text of a page, a line for each heading, paragraph and row
// of a table, with the class of what has one. It fails the test if the page has an
// element or an attribute that the template has not.
func outline(t *testing.T, page *html.Node) string {
	t.Helper()
	var out strings.Builder
	for n := range page.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(elements, n.Data) {
			t.Errorf("the page has an element %s", n.Data)
		}
		for _, a := range n.Attr {
			if !slices.Contains(attributes, a.Key) {
				t.Errorf("an element %s has an attribute %s=%q", n.Data, a.Key, a.Val)
			}
		}
		switch n.Data {
		case "title", "h1", "p":
			fmt.Fprintf(&out, "%s: %s\n", n.Data, shownIn(n))
		case "h2":
			fmt.Fprintf(&out, "\n%s\n", shownIn(n))
		case "tr":
			var cells []string
			for cell := range n.ChildNodes() {
				cells = append(cells, shownIn(cell))
			}
			fmt.Fprintln(&out, strings.TrimSpace(strings.Join(cells, " | ")))
		}
	}
	return out.String()
}

// shownIn returns the text in an element, marked if it is good or bad, and its bar.
func shownIn(n *html.Node) string {
	text := textOf(n)
	if bar := find(n, "progress"); bar != nil {
		text = fmt.Sprintf("[%s] %s", strings.TrimSpace(attribute(bar, "class")+" "+attribute(bar, "value")), text)
	}
	for _, class := range strings.Fields(attribute(n, "class")) {
		if class == "good" || class == "bad" || class == "alarm" {
			text = class + "(" + text + ")"
		}
	}
	return text
}

// textOf returns the text in an element, with a space for each end of a line, and
// without what stands for a bar where none can be drawn.
func textOf(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		switch {
		case d.Type == html.TextNode && d.Parent.Data != "progress":
			out.WriteString(d.Data)
		case d.Data == "br":
			out.WriteString(" ")
		}
	}
	return strings.TrimSpace(out.String())
}

// find returns the first element of a kind in another, nil if there is none.
func find(in *html.Node, kind string) *html.Node {
	for n := range in.Descendants() {
		if n.Type == html.ElementNode && n.Data == kind {
			return n
		}
	}
	return nil
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}
