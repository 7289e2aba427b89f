package lab

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/apiproxy"
)

func testProxy(t *testing.T, l *Lab) {
	proxy, err := l.APIProxy()
	if err != nil {
		t.Fatal(err)
	}
	createServiceAccount(t, l, "proxied")
	allow(t, l, "shop", "proxied", "view")
	path, err := proxy.Kubeconfig(t.Context(), "shop", "proxied")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = l.RESTConfig().Dial
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	services := client.CoreV1().Services("shop")
	list := func() error {
		_, err := services.List(t.Context(), metav1.ListOptions{})
		return err
	}

	wait(t, "the right to list", func() bool { return list() == nil })

	proxy.Set(apiproxy.Delay(apiproxy.Match{Verb: "list", Resource: "services"}, 700*time.Millisecond))
	begin := time.Now()
	if err := list(); err != nil || time.Since(begin) < 700*time.Millisecond {
		t.Errorf("delayed list: %v after %v", err, time.Since(begin))
	}

	proxy.Set(apiproxy.Refuse(apiproxy.Match{Resource: "services"}, http.StatusForbidden))
	if err := list(); !apierrors.IsForbidden(err) {
		t.Errorf("refused list: %v", err)
	}

	proxy.Set(apiproxy.Drop(apiproxy.Match{}))
	if err := list(); err == nil {
		t.Error("a dropped list was answered")
	}

	proxy.Set(apiproxy.GoneOnce("services"), apiproxy.CutWatches("services", 300*time.Millisecond))
	if _, err := services.Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("first watch: %v, want that its history is gone", err)
	}
	watch, err := services.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(patience)
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-deadline:
			t.Fatal("the watch was not cut")
		}
	}
	proxy.Set()
	if err := list(); err != nil {
		t.Errorf("without faults: %v", err)
	}
	if err := proxy.Close(); err != nil {
		t.Error(err)
	}
}

// allow gives a service account the rights of a ClusterRole in its namespace.
func allow(t *testing.T, l *Lab, namespace, account, role string) {
	t.Helper()
	out, err := l.Kubectl(t.Context(), "create", "rolebinding", account, "-n", namespace,
		"--clusterrole", role, "--serviceaccount", namespace+":"+account)
	if err != nil {
		t.Fatal(err, out)
	}
}
