package instances

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/instances/decide"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const hostText = `apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {namespace: hosts, name: host-1, uid: u-1}
spec: {consumerRef: {kind: Metal3Machine, namespace: hosts, name: m-1}}
status: {operationalStatus: OK, poweredOn: true, provisioning: {state: provisioned, ID: i-1}}
`

// A management is a management cluster that can be out of reach.
type management struct {
	client *dynamicfake.FakeDynamicClient
	down   atomic.Bool
	asked  atomic.Int64
}

func newManagement(t *testing.T) *management {
	m := &management{client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		hostResource: "BareMetalHostList", hardwareResource: "HardwareDataList",
	}, objectFrom(t, []byte(hostText)))}
	m.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		m.asked.Add(1)
		if m.down.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	m.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		if m.down.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	return m
}

func (m *management) connect(context.Context, config.Metal3) (dynamic.Interface, error) {
	return m.client, nil
}

// following runs a test against a metal3 that follows a management cluster, in
// a bubble.
func following(t *testing.T, test func(t *testing.T, m *management, followed *metal3, kicks *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		m := newManagement(t)
		var kicks atomic.Int64
		followed := newMetal3(m.connect, func() { kicks.Add(1) }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { followed.Run(ctx) })
		defer func() {
			cancel()
			running.Wait()
			time.Sleep(time.Minute) // what informers leave behind
			synctest.Wait()
		}()
		test(t, m, followed, &kicks)
	})
}

var inHosts = config.Nodes{Source: config.SourceMetal3, Metal3: config.Metal3{Namespace: "hosts"}}

func TestHostsAreBelievedOnlyWhileTheManagementClusterAnswers(t *testing.T) {
	following(t, func(t *testing.T, m *management, followed *metal3, kicks *atomic.Int64) {
		id := decide.ProviderID{Form: decide.FormMachine, Namespace: "hosts", Host: "host-1", Machine: "m-1"}
		time.Sleep(time.Minute)
		if m.asked.Load() != 0 {
			t.Error("asked without being told where")
		}
		m.down.Store(true)
		followed.configure(inHosts)
		time.Sleep(5 * time.Minute)
		if h, err := followed.known(inHosts.Metal3); err == nil || h.named(id) != nil {
			t.Errorf("out of reach from the start: %v, %v", h.named(id), err)
		}
		kicks.Store(0)
		m.down.Store(false)
		time.Sleep(retryLast + 5*time.Second)
		h, err := followed.known(inHosts.Metal3)
		if err != nil || h.named(id) == nil || kicks.Load() == 0 {
			t.Errorf("within reach: %v, %v, %d kicks", h.named(id), err, kicks.Load())
		}
		first := followed.epoch()
		if h, err := followed.look(t.Context(), inHosts.Metal3); err != nil || h.named(id) == nil {
			t.Errorf("a look: %v, %v", h.named(id), err)
		}

		time.Sleep(time.Hour)
		if _, err := followed.known(inHosts.Metal3); err != nil || followed.epoch() != first {
			t.Errorf("an hour in which nothing changes: %v, session %d, then %d", err, first, followed.epoch())
		}
		m.down.Store(true)
		if _, known := followed.known(inHosts.Metal3); known != nil {
			t.Error("noticed before anybody could")
		}
		if _, err := followed.look(t.Context(), inHosts.Metal3); err == nil {
			t.Error("a look at what is out of reach")
		}
		time.Sleep(beatEvery + beatWithin)
		h, err = followed.known(inHosts.Metal3)
		if err == nil || h.named(id) == nil {
			t.Errorf("lost: %v, and what was known is %v", err, h.named(id))
		}
		m.down.Store(false)
		time.Sleep(retryLast + 5*time.Second)
		if _, err := followed.known(inHosts.Metal3); err != nil || followed.epoch() <= first {
			t.Errorf("back again: %v, session %d, then %d", err, first, followed.epoch())
		}
	})
}

func TestChangesOfHostsAreSeenAndKick(t *testing.T) {
	following(t, func(t *testing.T, m *management, followed *metal3, kicks *atomic.Int64) {
		followed.configure(inHosts)
		time.Sleep(5 * time.Second)
		hosts := m.client.Resource(hostResource).Namespace("hosts")
		update := func(was, is string) {
			t.Helper()
			text := strings.Replace(hostText, was, is, 1)
			if _, err := hosts.Update(t.Context(), objectFrom(t, []byte(text)), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		kicks.Store(0)
		update("operationalStatus: OK", "operationalStatus: OK, errorCount: 3")
		if kicks.Load() != 0 {
			t.Error("a change that does not count kicks")
		}
		update("provisioned", "deprovisioning")
		h, err := followed.known(inHosts.Metal3)
		if found := h.ByUID("u-1"); err != nil || len(found) != 1 || found[0].State != "deprovisioning" || kicks.Load() != 1 {
			t.Errorf("%+v, %v, %d kicks", found, err, kicks.Load())
		}
		update("m-1", "m-2")
		h, _ = followed.known(inHosts.Metal3)
		if len(h.ByConsumer("m-1")) != 0 || len(h.ByConsumer("m-2")) != 1 {
			t.Error("found by its former consumer")
		}
		if err := hosts.Delete(t.Context(), "host-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if h, err := followed.known(inHosts.Metal3); err != nil || h.len() != 0 {
			t.Errorf("deleted: %d hosts, %v", h.len(), err)
		}
	})
}

func TestAnotherNamespaceIsAnotherSetOfHosts(t *testing.T) {
	following(t, func(t *testing.T, m *management, followed *metal3, _ *atomic.Int64) {
		followed.configure(inHosts)
		time.Sleep(5 * time.Second)
		other := inHosts
		other.Metal3.Namespace = "elsewhere"
		followed.configure(other)
		if h, err := followed.known(other.Metal3); err == nil || h.len() != 0 {
			t.Errorf("hosts of the former namespace are believed: %d, %v", h.len(), err)
		}
		time.Sleep(5 * time.Second)
		if h, err := followed.known(other.Metal3); err != nil || h.len() != 0 {
			t.Errorf("%d hosts, %v", h.len(), err)
		}
		followed.configure(config.Nodes{Source: config.SourceStatic})
		time.Sleep(time.Second)
		asked := m.asked.Load()
		time.Sleep(time.Hour)
		if m.asked.Load() != asked {
			t.Error("still asked, although nobody wants to know")
		}
	})
}

const kubeconfigText = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {USER}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func TestKubeconfigSecret(t *testing.T) {
	with := func(user string) []byte { return []byte(strings.Replace(kubeconfigText, "USER", user, 1)) }
	for name, test := range map[string]struct {
		data  map[string][]byte
		fault string
	}{
		"Cluster API's key": {map[string][]byte{"value": with("token: t")}, ""},
		"the plain key":     {map[string][]byte{"kubeconfig": with("token: t")}, ""},
		"no key":            {map[string][]byte{"admin.conf": with("token: t")}, "has no key value"},
		"nonsense":          {map[string][]byte{"value": []byte("{")}, "read the kubeconfig"},
		"a program":         {map[string][]byte{"value": with(`exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}`)}, "names a program or a file"},
		"a file":            {map[string][]byte{"value": with("tokenFile: /etc/shadow")}, "names a program or a file"},
	} {
		client := fake.NewClientset(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "mgmt"}, Data: test.data})
		c := &connector{client: client, namespace: "kube-system"}
		got, err := c.connect(t.Context(), config.Metal3{KubeconfigSecret: "mgmt"})
		switch {
		case test.fault == "" && (err != nil || got == nil):
			t.Errorf("%s: %v", name, err)
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%s: %v", name, err)
		}
	}
	c := &connector{client: fake.NewClientset(), namespace: "kube-system"}
	if _, err := c.connect(t.Context(), config.Metal3{KubeconfigSecret: "mgmt"}); err == nil {
		t.Error("a Secret that is not there is no error")
	}
}
