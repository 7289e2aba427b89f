package diagnose

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// sound is a cluster in which nothing is wrong.
func sound() Facts {
	f := Facts{
		Namespace:  "lb",
		Controller: Known[Lease]{Value: Lease{Holder: "ccm-1", Age: 2 * time.Second, For: 15 * time.Second}},
		Announcers: Known[DaemonSet]{Value: DaemonSet{Wanted: 2, Ready: 2}},
		Config:     Known[Configuration]{Value: Configuration{User: "aa", Accepted: "aa"}},
		Proxy:      Known[Proxy]{Value: Proxy{Mode: "nftables"}},
	}
	for _, name := range []string{"n1", "n2"} {
		f.Nodes.Value = append(f.Nodes.Value, Node{Name: name, Ready: true, Heartbeat: Known[time.Duration]{Value: 4 * time.Second}})
		f.Views = append(f.Views, View{Node: name, Members: []string{"n1", "n2"}, Config: map[string]string{"n1": "aa", "n2": "aa"}, MTU: 1500})
	}
	return f
}

func find(t *testing.T, checks []Check, name string) Check {
	t.Helper()
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %s", name)
	}
	return checks[i]
}

// rehearse makes both programs of f only observe, with a document that nobody
// has accepted.
func rehearse(f *Facts) {
	f.Controller.Value, f.Deployment.Value.ObserveOnly = Lease{}, true
	f.Announcers.Value.ObserveOnly = true
	f.Config.Value = Configuration{User: "bb"}
}

func value(s string) *string { return &s }

func TestASoundClusterHasNothing(t *testing.T) {
	for _, c := range Run(sound()) {
		if c.Verdict != OK {
			t.Errorf("%+v", c)
		}
	}
}

func TestChecks(t *testing.T) {
	const unseen = "no right"
	tests := []struct {
		check   string
		name    string
		change  func(*Facts)
		verdict Verdict
		seen    string
	}{
		{"controller", "nobody", func(f *Facts) { f.Controller.Value = Lease{} }, Fail, "no controller leads"},
		{"controller", "silent", func(f *Facts) { f.Controller.Value.Age = time.Minute }, Fail, "silent for 1m0s"},
		{"controller", "rehearsal", func(f *Facts) { rehearse(f) }, Warn, "the controller only observes: it leads nothing and gives no addresses"},
		{"controller", "rehearsal beside one that leads", func(f *Facts) { f.Deployment.Value.ObserveOnly = true }, OK, "ccm-1 leads"},
		{"controller", "no Deployment is seen", func(f *Facts) { rehearse(f); f.Deployment.Why = unseen }, Fail, "no controller leads"},
		{"controller", "unseen", func(f *Facts) { f.Controller.Why = unseen }, Unknown, unseen},
		{"announcers", "none", func(f *Facts) { f.Announcers.Value.Ready = 0 }, Fail, "0 of 2 ready"},
		{"announcers", "none that is ready", func(f *Facts) { f.Announcers.Value.Ready, f.Views[1].Announces = 0, true }, Warn, "0 of 2 ready; there are announcements all the same, by n2"},
		{"announcers", "some", func(f *Facts) { f.Announcers.Value.Ready = 1 }, Warn, "1 of 2 ready"},
		{"announcers", "unseen", func(f *Facts) { f.Announcers.Why = unseen }, Unknown, unseen},
		{"configuration", "none", func(f *Facts) { f.Config.Value = Configuration{} }, Fail, "no document"},
		{"configuration", "not accepted", func(f *Facts) { f.Config.Value.User = "bb" }, Fail, "hash aa is in force, not bb"},
		{"configuration", "faults", func(f *Facts) { f.Config.Value.Faults = "unknown key" }, Fail, "unknown key"},
		{"configuration", "a file", func(f *Facts) { f.Config.Value.User = "" }, Warn, "no ConfigMap"},
		{"configuration", "rehearsal", func(f *Facts) { rehearse(f) }, Warn, "hash bb is rehearsed, and no document is in force"},
		{"configuration", "rehearsal of another", func(f *Facts) { rehearse(f); f.Config.Value.Accepted = "aa" }, Warn, "hash bb is rehearsed, and hash aa is in force"},
		{"configuration", "rehearsal of nothing", func(f *Facts) { rehearse(f); f.Config.Value.User = "" }, Fail, "no document"},
		{"configuration", "rehearsal of faults", func(f *Facts) { rehearse(f); f.Config.Value.Faults = "unknown key" }, Fail, "unknown key"},
		{"configuration", "unseen", func(f *Facts) { f.Config.Why = unseen }, Unknown, unseen},
		{"exclude-label", "kubeadm's", func(f *Facts) { f.Nodes.Value[0].Exclude = value("") }, Warn, "n1 (present and empty, as kubeadm sets it)"},
		{"exclude-label", "everywhere", func(f *Facts) { f.Nodes.Value[0].Exclude, f.Nodes.Value[1].Exclude = value(""), value("true") }, Fail, "no Node is left"},
		{"exclude-label", "false", func(f *Facts) { f.Nodes.Value[0].Exclude = value("false") }, OK, "does not count"},
		{"exclude-label", "ignored", func(f *Facts) { f.Nodes.Value[0].Exclude, f.Config.Value.IgnoreExclude = value(""), true }, OK, "ignores it"},
		{"exclude-label", "Windows is no way out", func(f *Facts) { f.Nodes.Value[0].Exclude, f.Nodes.Value[1].Windows = value(""), true }, Fail, "no Node is left"},
		{"gossip", "one way", func(f *Facts) { f.Views[1].Members = []string{"n2"} }, Fail, "n2 does not see n1"},
		{"gossip", "one not asked", func(f *Facts) { f.Views[1].Why = unseen }, Unknown, "not asked: n2 (no right)"},
		{"gossip", "none asked", func(f *Facts) { f.Views = nil }, Unknown, "no announcer could be asked"},
		{"same-configuration", "another", func(f *Facts) { f.Views[0].Config["n2"] = "bb" }, Warn, "n2 (bb)"},
		{"same-configuration", "rehearsal", func(f *Facts) { rehearse(f) }, Warn, "n1 (aa), n2 (aa)"},
		{"same-configuration", "rehearsal of the same", func(f *Facts) { rehearse(f); f.Config.Value.User = "aa" }, OK, "act on aa"},
		{"same-configuration", "none asked", func(f *Facts) { f.Views = nil }, Unknown, "no announcer"},
		{"kube-proxy", "ipvs", func(f *Facts) { f.Proxy.Value.Mode = "ipvs" }, Fail, "without strictARP"},
		{"kube-proxy", "strict", func(f *Facts) { f.Proxy.Value = Proxy{"ipvs", true} }, OK, "with strictARP"},
		{"kube-proxy", "unseen", func(f *Facts) { f.Proxy.Why = unseen }, Unknown, unseen},
		{"ports", "clash", func(f *Facts) { f.Pods.Value = []Pod{{Name: "a/b", Node: "n1", Ports: []int{7957}}} }, Fail, "a/b on n1 has 7957 (health and metrics)"},
		{"ports", "ours", func(f *Facts) { f.Pods.Value = []Pod{{Name: "a/b", Node: "n1", Ports: []int{7957}, Ours: true}} }, OK, ""},
		{"ports", "unseen", func(f *Facts) { f.Pods.Why = unseen }, Unknown, unseen},
		{"rights", "missing", func(f *Facts) { f.Denied.Value = Rights(everything)[:1] }, Fail, "ccm-baremetal may not get services"},
		{"bgp", "some down", func(f *Facts) {
			f.Views[0].Sessions = []Session{{Peer: "tor-a", Down: true, Why: "connection refused"}, {Peer: "tor-b"}}
			f.Views[1].Sessions = []Session{{Peer: "tor-a", Down: true, Why: "connection refused"}}
		}, Warn, "tor-a: connection refused (n1, n2)"},
		{"bgp", "all down", func(f *Facts) { f.Views[0].Sessions = []Session{{Peer: "tor-a", Down: true, Why: "Idle"}} }, Fail, "no router can be told of addresses: tor-a: Idle (n1)"},
		{"bgp", "a family is left out", func(f *Facts) { f.Views[0].Sessions = []Session{{Peer: "tor-a", Why: "IPv6: no next hop"}} }, Warn, "tor-a: IPv6: no next hop (n1)"},
		{"bgp", "all up", func(f *Facts) { f.Views[0].Sessions = []Session{{Peer: "tor-a"}} }, OK, "all sessions are up: 1"},
		{"bgp", "not asked", func(f *Facts) { f.Views[0].Why = unseen }, Unknown, "not asked, or only observing: n1"},
		{"bgp", "all that are known are down", func(f *Facts) {
			f.Views[0].Why = unseen
			f.Views[1].Sessions = []Session{{Peer: "tor-a", Down: true, Why: "Idle"}}
		}, Warn, "tor-a: Idle (n2); not known of n1"},
		{"bgp", "a rehearsal", func(f *Facts) {
			for i := range f.Views {
				f.Views[i].ObserveOnly, f.Views[i].Sessions = true, []Session{{Peer: "tor-a", Down: true, Why: "only observing"}}
			}
		}, Unknown, "only observing: n1, n2"},
		{"rights", "unseen", func(f *Facts) { f.Denied.Why = unseen }, Unknown, unseen},
		{"other-products", "MetalLB", func(f *Facts) {
			f.Pods.Value = []Pod{{Name: "metallb-system/speaker-x", Images: []string{"quay.example/metallb/speaker:v1"}}}
		}, Warn, "MetalLB (Pod metallb-system/speaker-x)"},
		{"other-products", "servicelb", func(f *Facts) { f.Pods.Value = []Pod{{Name: "kube-system/svclb-traefik-1"}} }, Warn, "k3s servicelb"},
		{"other-products", "Cilium", func(f *Facts) { f.Others.Value = []string{"Cilium (enable-l2-announcements)"} }, Warn, "Cilium"},
		{"other-products", "unseen", func(f *Facts) { f.Others.Why = unseen }, Unknown, unseen},
		{"clocks", "ahead", func(f *Facts) { f.Nodes.Value[0].Heartbeat.Value = -time.Minute }, Warn, "n1 is 1m0s ahead"},
		{"clocks", "behind", func(f *Facts) { f.Nodes.Value[0].Heartbeat.Value = time.Minute }, Warn, "1m0s old"},
		{"clocks", "a dead node is not behind", func(f *Facts) { f.Nodes.Value[0] = Node{Name: "n1", Heartbeat: Known[time.Duration]{Value: time.Hour}} }, OK, ""},
		{"clocks", "ours", func(f *Facts) { f.Clock.Value = time.Minute }, Warn, "differs from the one here by 1m0s"},
		{"clocks", "no Lease", func(f *Facts) { f.Nodes.Value[0].Heartbeat.Why = unseen }, Unknown, "n1"},
		{"rp_filter", "aside", func(f *Facts) { f.Views[0].Aside = []string{"eth1"} }, Unknown, "n1 (eth1)"},
		{"rp_filter", "strict", func(f *Facts) { f.Views[0].Aside, f.Views[0].ReversePath = []string{"eth1"}, map[string]int{"eth1": 1} }, Warn, "by n1 (eth1)"},
		{"rp_filter", "rehearsal", func(f *Facts) { f.Views[0].ObserveOnly = true }, Unknown, "only observe"},
		{"rp_filter", "loose", func(f *Facts) { f.Views[0].Aside, f.Views[0].ReversePath = []string{"eth1"}, map[string]int{"eth1": 2} }, OK, "is not strict: n1 (eth1)"},
		{"mtu", "differs", func(f *Facts) { f.Views[1].MTU = 9000 }, Warn, "1500 on n1; 9000 on n2"},
		{"mtu", "the same", func(*Facts) {}, OK, "1500 on n1, n2"},
		{"mtu", "an old announcer", func(f *Facts) { f.Views[1].MTU = 0 }, Unknown, "not known of: n2"},
		{"mtu", "nobody asked", func(f *Facts) { f.Views = nil }, Unknown, "there is none"},
		{"announcers", "observers that nobody asks", func(f *Facts) { f.Views, f.Announcers.Value.ObserveOnly = nil, true }, Warn, "they only observe"},
		{"announcers", "observers", func(f *Facts) { f.Views[1].ObserveOnly = true }, Warn, "n2 only observe"},
		{"rp_filter", "not asked", func(f *Facts) { f.Views[0].Why = unseen }, Unknown, "only 1 of 2"},
	}
	for _, tt := range tests {
		t.Run(tt.check+"/"+tt.name, func(t *testing.T) {
			f := sound()
			tt.change(&f)
			c := find(t, Run(f), tt.check)
			if c.Verdict != tt.verdict || !strings.Contains(c.Seen, tt.seen) {
				t.Errorf("%+v, want %s and %q", c, tt.verdict, tt.seen)
			}
			if c.Verdict == Fail && c.Do == "" {
				t.Error("it does not say what to do")
			}
		})
	}
}

func TestHintsAreForTheNamespaceOfTheInstallation(t *testing.T) {
	f := sound()
	f.Controller.Value, f.Announcers.Value.Ready = Lease{}, 0
	for _, name := range []string{"controller", "announcers"} {
		if c := find(t, Run(f), name); !strings.Contains(c.Do, "kubectl -n lb ") {
			t.Errorf("%+v", c)
		}
	}
	if c := find(t, Run(f), "announcers"); strings.Contains(c.Seen, "nothing is announced") {
		t.Errorf("%+v: who is not ready may announce", c)
	}
}

func TestWorst(t *testing.T) {
	for want, verdicts := range map[Verdict][]Verdict{
		OK: {OK}, Unknown: {OK, Unknown}, Warn: {Warn, Unknown}, Fail: {Warn, Fail, Unknown},
	} {
		var checks []Check
		for _, v := range verdicts {
			checks = append(checks, Check{Verdict: v})
		}
		if got := Worst(checks); got != want {
			t.Errorf("%v: %s, want %s", verdicts, got, want)
		}
	}
}

// everything is installed; the manifests have Secrets called so.
var everything = Installation{Namespace: "kube-system", FRRK8s: "frr-k8s-system", Passwords: []string{"bgp-tor"}}

func TestRightsAreThoseThatTheInstallationNeeds(t *testing.T) {
	asked := func(i Installation) map[string]bool {
		out := map[string]bool{}
		for _, r := range Rights(i) {
			out[r.Manifests+" "+r.Namespace+" "+r.Verb+" "+r.Resource+" "+r.Name] = true
		}
		return out
	}
	const ours, theirs = "manifests/bgp kube-system get secrets bgp-tor", "manifests/bgp-frr-k8s frr-k8s-system get secrets bgp-tor"
	const beside = "manifests/bgp-frr over manifests/bgp kube-system get secrets bgp-tor"
	const objects = "manifests/bgp-frr-k8s frr-k8s-system patch frrconfigurations "
	for _, c := range []struct {
		installed Installation
		want      map[string]bool
	}{
		{Installation{Namespace: "kube-system"}, map[string]bool{ours: false, theirs: false, objects: false}},
		{Installation{Namespace: "kube-system", Passwords: []string{"bgp-tor"}}, map[string]bool{ours: true, theirs: false, objects: false}},
		{Installation{Namespace: "kube-system", Sidecar: true, Passwords: []string{"bgp-tor"}}, map[string]bool{beside: true, ours: false}},
		{everything, map[string]bool{ours: false, theirs: true, objects: true}},
	} {
		got := asked(c.installed)
		for right, want := range c.want {
			if got[right] != want {
				t.Errorf("%+v: asked for %s: %t", c.installed, right, got[right])
			}
		}
	}
}

// What the roles grant beyond Rights is for Nodes and for reviews of tokens.
func TestRightsAreThoseOfTheRoles(t *testing.T) {
	granted := map[Right]bool{}
	for _, file := range []struct{ account, manifests, name string }{
		{"ccm-baremetal", "manifests/base", "ccm-rbac.yaml"},
		{"announcer", "manifests/base", "announcer-rbac.yaml"},
		{"announcer", "manifests/bgp", "secrets.yaml"},
		{"announcer", "manifests/bgp-frr-k8s", "rbac.yaml"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", file.manifests, file.name))
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			for _, r := range ofRole(t, part) {
				r.Account, r.Manifests = file.account, file.manifests
				granted[r] = true
			}
		}
	}
	var missing []Right
	for _, r := range append(Rights(everything), Rights(Installation{Namespace: "kube-system", Passwords: []string{"bgp-tor"}})...) {
		if !granted[r] {
			missing = append(missing, r)
		}
	}
	if diff := gocmp.Diff([]Right(nil), missing); diff != "" {
		t.Errorf("asked for, and in no role:\n%s", diff)
	}
}

// ofRole returns what a role gives. One without a namespace gets that of the
// installation by kustomize.
func ofRole(t *testing.T, text string) []Right {
	t.Helper()
	var role struct {
		Kind     string
		Metadata struct{ Namespace string }
		Rules    []struct{ APIGroups, Resources, ResourceNames, Verbs []string }
	}
	if err := yaml.Unmarshal([]byte(text), &role); err != nil {
		t.Fatal(err)
	}
	namespace := ""
	if role.Kind == "Role" {
		namespace = cmp.Or(role.Metadata.Namespace, "kube-system")
	}
	var out []Right
	for _, rule := range role.Rules {
		if len(rule.ResourceNames) == 0 {
			rule.ResourceNames = []string{""} // any
		}
		for _, resource := range rule.Resources {
			for _, name := range rule.ResourceNames {
				for _, verb := range rule.Verbs {
					out = append(out, Right{Verb: verb, Group: rule.APIGroups[0], Resource: resource, Name: name, Namespace: namespace})
				}
			}
		}
	}
	return out
}
