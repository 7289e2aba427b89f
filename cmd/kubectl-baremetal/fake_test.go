package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const documentText = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools:
- {name: lan, addresses: [192.0.2.100-192.0.2.103]}
`

// hidden is in every place where a secret could be.
const hidden = "hunter2-in-clear"

// api is an API server that holds objects by path, keeps what is written to
// Nodes, and allows all rights but those denied.
type api struct {
	mu      sync.Mutex
	objects map[string]any
	patches []string
	denied  string // a resource
	kubelet http.Handler
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}
}

// newAPI returns a cluster of three Nodes, of which the first carries kubeadm's
// label, with a Service that is announced and one that waits.
func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{objects: map[string]any{}}
	now := metav1.NowMicro()
	holder, lasts := "ccm-1", int32(15)
	lease := coordination.Lease{ObjectMeta: meta("kube-system", "ccm-baremetal"), Spec: coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, RenewTime: &now}}
	leases := coordination.LeaseList{}
	nodes := v1.NodeList{}
	for _, name := range []string{"n1", "n2", "n3"} {
		n := v1.Node{ObjectMeta: meta("", name)}
		n.Labels = map[string]string{"kubernetes.io/os": "linux"}
		if name == "n1" {
			n.Labels[config.LabelExclude] = ""
		}
		n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "127.0.0.1"}}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		nodes.Items = append(nodes.Items, n)
		leases.Items = append(leases.Items, coordination.Lease{ObjectMeta: meta("kube-node-lease", name), Spec: coordination.LeaseSpec{RenewTime: &now}})
		a.objects["/api/v1/nodes/"+name] = n
	}
	web := v1.Service{ObjectMeta: meta("shop", "web"), Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
	web.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"x":"` + hidden + `"}`, "example.com/api-token": hidden, "note": "password: " + hidden}
	web.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.101"}}
	at := metav1.NewTime(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	web.Status.Conditions = []metav1.Condition{
		{Type: config.ConditionAllocated, Status: metav1.ConditionTrue, Reason: "Allocated", Message: `192.0.2.101 from pool "lan"`, LastTransitionTime: at},
		{Type: config.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: "Announced", Message: "announcing 192.0.2.101 from n2, eth0", LastTransitionTime: at},
	}
	db := v1.Service{ObjectMeta: meta("shop", "db"), Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
	db.Status.Conditions = []metav1.Condition{{Type: config.ConditionAllocated, Status: metav1.ConditionFalse, Reason: "PoolExhausted", Message: "no free address", LastTransitionTime: at}}
	set := appsv1.DaemonSet{ObjectMeta: meta("kube-system", "announcer"), Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 3}}
	set.Spec.Template.Spec.Containers = []v1.Container{{Env: []v1.EnvVar{{Name: "SOME_PASSWORD", Value: hidden}}, Args: []string{"--auth-token=" + hidden}}}
	pods := v1.PodList{Items: []v1.Pod{
		announcerPod("n2"),
		{ObjectMeta: meta("metallb-system", "speaker-1"), Spec: v1.PodSpec{NodeName: "n3", HostNetwork: true, Containers: []v1.Container{{Image: "metallb/speaker", Ports: []v1.ContainerPort{{ContainerPort: 7957}}}}}},
	}}
	for path, object := range map[string]any{
		"/version": apiversion.Info{GitVersion: "v1.37.2", Major: "1", Minor: "37"},
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm-baremetal": lease,
		"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases":           leases,
		"/apis/apps/v1/namespaces/kube-system/daemonsets/announcer":                set,
		"/apis/discovery.k8s.io/v1/endpointslices":                                 discovery.EndpointSliceList{},
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices":              discovery.EndpointSliceList{},
		"/api/v1/namespaces/kube-system/configmaps/ccm-baremetal":                  v1.ConfigMap{ObjectMeta: meta("kube-system", "ccm-baremetal"), Data: map[string]string{"config.yaml": documentText + "# password: " + hidden + "\n"}},
		"/api/v1/namespaces/kube-system/configmaps/ccm-baremetal-accepted":         v1.ConfigMap{ObjectMeta: meta("kube-system", "ccm-baremetal-accepted"), Data: map[string]string{"config.yaml": documentText}},
		"/api/v1/namespaces/kube-system/configmaps/kube-proxy":                     v1.ConfigMap{ObjectMeta: meta("kube-system", "kube-proxy"), Data: map[string]string{"config.conf": "kind: KubeProxyConfiguration\nmode: ipvs\n"}},
		"/api/v1/nodes":                                nodes,
		"/api/v1/services":                             v1.ServiceList{Items: []v1.Service{web, db}},
		"/api/v1/namespaces/shop/services":             v1.ServiceList{Items: []v1.Service{web, db}},
		"/api/v1/namespaces/web/services":              v1.ServiceList{},
		"/api/v1/namespaces":                           v1.NamespaceList{},
		"/api/v1/pods":                                 pods,
		"/api/v1/namespaces/kube-system/pods":          v1.PodList{Items: pods.Items[:1]},
		"/api/v1/events":                               v1.EventList{},
		"/api/v1/namespaces/kube-system/events":        v1.EventList{Items: []v1.Event{{Message: "token=" + hidden}}},
		"/api/v1/namespaces/kube-system/secrets":       secretList(),
		"/api/v1/namespaces/kube-system/pods/a-n2/log": "level=info msg=started\npassword=" + hidden + "\n",
	} {
		a.objects[path] = object
	}
	return a
}

// secretList is what an API server answers who asks for metadata, and values
// which no correct one would add.
func secretList() any {
	return map[string]any{
		"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{},
		"items": []any{map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "data": map[string]string{"key": hidden},
			"metadata": map[string]any{"name": "ccm-baremetal-gossip", "annotations": map[string]string{"a": hidden}}}},
	}
}

func announcerPod(node string) v1.Pod {
	p := v1.Pod{ObjectMeta: meta("kube-system", "a-"+node), Spec: v1.PodSpec{NodeName: node, HostNetwork: true}}
	p.Labels = map[string]string{"app.kubernetes.io/name": "announcer"}
	p.Status.Phase = v1.PodRunning
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "frr"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "announcer"}}
	return p
}

// deploy installs the Deployment with these arguments of its container.
func (a *api) deploy(args ...string) {
	a.objects["/apis/apps/v1/namespaces/kube-system/deployments/ccm-baremetal"] = appsv1.Deployment{
		ObjectMeta: meta("kube-system", "ccm-baremetal"), Spec: appsv1.DeploymentSpec{Template: runs(args...)},
	}
}

func runs(args ...string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Args: args}}}}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/portforward") && a.kubelet != nil {
		a.kubelet.ServeHTTP(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	object, ok := a.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		var review authorization.SubjectAccessReview
		_ = json.Unmarshal(body, &review)
		review.Status.Allowed = review.Spec.ResourceAttributes.Resource != a.denied
		object = review
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPatch && ok:
		a.patches = append(a.patches, r.URL.Path+" "+string(body))
	case r.Method != http.MethodGet || !ok:
		w.WriteHeader(http.StatusNotFound)
		object = apierrors.NewNotFound(v1.Resource("any"), r.URL.Path).Status()
	}
	if text, is := object.(string); is {
		_, _ = io.WriteString(w, text)
		return
	}
	_ = json.NewEncoder(w).Encode(object)
}

func (a *api) writes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.patches...)
}

// serve returns the kubeconfig of the cluster.
func (a *api) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: %q}}]
users: [{name: me, user: {}}]
`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newPlan is what the announcer on n2 shows: n1 is left out, n2 announces all.
func newPlan(t *testing.T) status.Plan {
	t.Helper()
	c, err := config.Load([]byte(documentText))
	if err != nil {
		t.Fatal(err)
	}
	s := plan.Snapshot{Node: "n2", Config: c}
	for _, name := range []string{"n1", "n2", "n3"} {
		labels := map[string]string{"kubernetes.io/os": "linux"}
		if name == "n1" {
			labels[config.LabelExclude] = ""
		}
		link := plan.Link{Name: "eth0", Index: 2, MAC: "02:00:00:00:00:0" + name[1:], Up: true, NodeIP: true, Default: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		s.Nodes = append(s.Nodes, plan.Node{Name: name, Labels: labels, Ready: true})
		s.Members = append(s.Members, plan.Member{Name: name, Rules: 2, Config: c.Hash, Links: []plan.Link{link}})
	}
	s.Links = s.Members[1].Links
	for i := range 4 {
		s.Services = append(s.Services, plan.Service{Namespace: "shop", Name: fmt.Sprintf("s%d", i), Allocated: true, Created: time.Unix(int64(i), 0).UTC(),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})}, Endpoints: plan.Endpoints{Ready: []string{"n2"}}})
	}
	verdicts := plan.Decide(s)
	return status.Plan{
		Document: documentText, Verdicts: verdicts, Answering: plan.Announcements(verdicts, s),
		World: status.World{Node: s.Node, Services: s.Services, Nodes: s.Nodes, Members: s.Members, Links: s.Links},
	}
}

// announcer serves a plan that changes with each question.
func announcer(t *testing.T, page func(asked int) status.Plan) string {
	t.Helper()
	var mu sync.Mutex
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		_ = json.NewEncoder(w).Encode(page(asked))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// command runs a command line.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := run(ctx, args, &stdout, &stderr)
	if stderr.Len() > 0 {
		t.Errorf("on the standard error: %s", &stderr)
	}
	return stdout.String(), err
}
