// Package fakeapi serves objects as an API server does, for tests of commands
// that look at a cluster.
package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Head is what every document begins with.
const Head = "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n"

// LAN is a document with one pool, lan, of eight addresses.
const LAN = Head + "pools:\n- name: lan\n  addresses: [192.0.2.0/29]\n"

// Ours is the metadata of an object that we have made.
func Ours(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: "u", Labels: map[string]string{document.ManagedByLabel: document.ManagedBy}}
}

// Accepted is the ConfigMap of the accepted document.
func Accepted(text string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: Ours(document.AcceptedConfigMap), Data: map[string]string{config.ConfigMapKey: text}}
}

// Held is a Service in the namespace shop that has an address from us.
func Held(name, address string) *v1.Service {
	svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	svc.Spec.Type = v1.ServiceTypeLoadBalancer
	svc.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: address}}
	svc.Status.Conditions = []metav1.Condition{{Type: config.ConditionAllocated, Status: metav1.ConditionTrue, Reason: "Allocated",
		Message: address + ` from pool "lan"`, LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))}}
	return svc
}

// slicesPath lists the EndpointSlices beside the API server's own.
const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

// Serve serves objects by path until the test ends: lists and single ones, to
// read. A metav1.Status is a refusal, what is not there is not found, but for
// the EndpointSlices of the API server, of which there are none then. It
// returns the path of a kubeconfig; in its context elsewhere nobody answers.
func Serve(t testing.TB, objects map[string]any) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		object, ok := objects[r.URL.Path]
		if r.URL.Path == slicesPath && !ok {
			object, ok = discovery.EndpointSliceList{}, true
		}
		if r.Method != http.MethodGet || !ok {
			w.WriteHeader(http.StatusNotFound)
			object = apierrors.NewNotFound(v1.Resource("any"), r.URL.Path).Status()
		} else if refusal, is := object.(metav1.Status); is {
			w.WriteHeader(int(refusal.Code))
		}
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return File(t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: here, user: me}}
- {name: elsewhere, context: {cluster: elsewhere, user: me}}
clusters:
- {name: here, cluster: {server: %q}}
- {name: elsewhere, cluster: {server: "http://127.0.0.1:1"}}
users: [{name: me, user: {}}]
`, server.URL))
}

// Many serves a cluster in which this many Services hold addresses of LAN, and
// returns the path of its kubeconfig.
func Many(t testing.TB, n int) (kubeconfig string) {
	t.Helper()
	list := v1.ServiceList{}
	for i := range n {
		list.Items = append(list.Items, *Held(fmt.Sprintf("s%d", i), fmt.Sprintf("192.0.2.%d", i)))
	}
	node := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	return Serve(t, map[string]any{
		"/api/v1/namespaces/kube-system/configmaps/ccm-baremetal-accepted": Accepted(LAN),
		"/api/v1/services":   list,
		"/api/v1/nodes":      v1.NodeList{Items: []v1.Node{node}},
		"/api/v1/namespaces": v1.NamespaceList{},
	})
}

// File writes a file that is gone after the test, and returns its path.
func File(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
