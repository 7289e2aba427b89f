package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/test/fakeapi"
)

func TestCommandsRefuseWhatMakesNoSense(t *testing.T) {
	kubeconfig := fakeapi.Many(t, 1)
	for _, args := range [][]string{
		{"allocations", "-o", "yaml"}, {"allocations", "shop"}, {"allocations", "--bogus"},
		{"cleanup", "-o", "wide"}, {"cleanup", "--pace", "0"}, {"cleanup", "now"},
	} {
		if _, err := execute(t, append(args, "--kubeconfig", kubeconfig)...); inspect.ExitCode(err) != inspect.ExitUnreadable {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestCommandsFindTheClusterAsKubectlDoes(t *testing.T) {
	kubeconfig := fakeapi.Many(t, 2)
	t.Setenv("KUBECONFIG", kubeconfig)
	if out, err := execute(t, "allocations"); err != nil || !strings.Contains(out, "shop/s1") {
		t.Errorf("%v: %s", err, out)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if out, err := execute(t, "allocations", "--kubeconfig", kubeconfig, "--context", "here", "-o", "json"); err != nil || !strings.Contains(out, "shop/s1") {
		t.Errorf("%v: %s", err, out)
	}
}

// leftovers are what an uninstall leaves: two Services and three objects.
func leftovers(lease *coordination.Lease) *fake.Clientset {
	foreign := fakeapi.Held("foreign", "192.0.2.5")
	foreign.Status.Conditions[0].Type = "example.org/Ready"
	return fake.NewClientset(
		fakeapi.Accepted(fakeapi.LAN), &v1.Secret{ObjectMeta: fakeapi.Ours("ccm-baremetal-gossip")}, lease,
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ccm-baremetal"}},
		fakeapi.Held("a", "192.0.2.1"), fakeapi.Held("b", "192.0.2.2"), foreign,
	)
}

// leaseOf is a Lease that was renewed that long ago.
func leaseOf(age time.Duration) *coordination.Lease {
	who, seconds, at := "cp_1", int32(15), metav1.NewMicroTime(time.Now().Add(-age))
	return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ccm-baremetal", UID: "u"},
		Spec: coordination.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &seconds, RenewTime: &at}}
}

// clean runs cleanup without waiting long between its writes.
func clean(client *fake.Clientset, o cleanupOptions) (cleanup, error) {
	o.namespace = "kube-system"
	if o.pace == 0 {
		o.pace = 1000
	}
	c := &cleaner{client: client, cleanupOptions: o}
	return c.run(context.Background())
}

func writesTo(client *fake.Clientset) []string {
	var out []string
	for _, a := range client.Actions() {
		if verb := a.GetVerb(); verb != "get" && verb != "list" {
			out = append(out, verb+" "+a.GetResource().Resource)
		}
	}
	return out
}

func TestCleanupChangesNothingUnlessToldTo(t *testing.T) {
	client := leftovers(leaseOf(time.Hour))
	result, err := clean(client, cleanupOptions{release: true})
	if err != nil || result.Done || len(result.Services) != 2 || len(result.Objects) != 3 || len(writesTo(client)) != 0 {
		t.Errorf("%+v, %v, wrote %v", result, err, writesTo(client))
	}
	if diff := cmp.Diff([]string{"192.0.2.1"}, result.Services[0].Released); diff != "" {
		t.Error(diff)
	}
}

func TestCleanupLeavesNothingOfOurs(t *testing.T) {
	for _, release := range []bool{false, true} {
		t.Run(fmt.Sprintf("release %v", release), func(t *testing.T) {
			client := leftovers(leaseOf(time.Hour))
			result, err := clean(client, cleanupOptions{release: release, yes: true})
			if err != nil || !result.Done {
				t.Fatalf("%+v, %v", result, err)
			}
			want := []string{"patch services", "patch services", "delete configmaps", "delete secrets", "delete leases"}
			if diff := cmp.Diff(want, writesTo(client)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for name, addresses := range map[string]int{"a": 1, "b": 1, "foreign": 1} {
				svc, err := client.CoreV1().Services("shop").Get(context.Background(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				conditions := 0
				if name == "foreign" {
					conditions = 1
				} else if release {
					addresses = 0
				}
				if len(svc.Status.LoadBalancer.Ingress) != addresses || len(svc.Status.Conditions) != conditions {
					t.Errorf("%s: %+v", name, svc.Status)
				}
			}
			if result, err = clean(client, cleanupOptions{}); err != nil || len(result.Services)+len(result.Objects) != 0 {
				t.Errorf("left: %+v, %v", result, err)
			}
		})
	}
}

func TestCleanupWaitsForTheEndOfWhatRuns(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "announcer-x", Labels: map[string]string{"app.kubernetes.io/name": "announcer"}}}
	pod.Status.Phase = v1.PodRunning
	elsewhere := pod.DeepCopy()
	elsewhere.Namespace = "lb"
	for name, c := range map[string]struct {
		age  time.Duration
		pod  *v1.Pod
		want string
	}{
		"a controller":                    {time.Second, nil, "cp_1"},
		"an announcer":                    {time.Hour, pod, "announcer-x"},
		"one that is installed elsewhere": {time.Hour, elsewhere, "lb/announcer-x"},
	} {
		t.Run(name, func(t *testing.T) {
			client := leftovers(leaseOf(c.age))
			if c.pod != nil {
				if err := client.Tracker().Add(c.pod); err != nil {
					t.Fatal(err)
				}
			}
			result, err := clean(client, cleanupOptions{yes: true})
			if err == nil || result.Done || len(writesTo(client)) != 0 || len(result.Running) != 1 || !strings.Contains(result.Running[0], c.want) {
				t.Errorf("%+v, %v, wrote %v", result, err, writesTo(client))
			}
		})
	}
}

func TestCleanupGoesOnPastAFailureAndKeepsTheObjects(t *testing.T) {
	client := leftovers(leaseOf(time.Hour))
	client.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.PatchAction).GetName() == "a", nil, apierrors.NewForbidden(v1.Resource("services"), "a", errors.New("no right"))
	})
	result, err := clean(client, cleanupOptions{yes: true})
	if err == nil || !strings.Contains(err.Error(), "1 of 2") || !strings.Contains(result.Services[0].Error, "no right") || result.Services[1].Error != "" {
		t.Errorf("%+v, %v", result, err)
	}
	if diff := cmp.Diff([]string{"patch services", "patch services"}, writesTo(client)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestCleanupTriesAgainAfterAConflict(t *testing.T) {
	client := leftovers(leaseOf(time.Hour))
	conflicts := 2
	client.PrependReactor("patch", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts == 0 {
			return false, nil, nil
		}
		conflicts--
		return true, nil, apierrors.NewConflict(v1.Resource("services"), "a", errors.New("changed"))
	})
	if result, err := clean(client, cleanupOptions{yes: true}); err != nil || result.Services[0].Error != "" {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestCleanupKeepsItsPaceAndStopsWhenTold(t *testing.T) {
	client := leftovers(leaseOf(time.Hour))
	begin := time.Now()
	if _, err := clean(client, cleanupOptions{yes: true, pace: 20}); err != nil || time.Since(begin) < 200*time.Millisecond {
		t.Errorf("five writes took %s, %v", time.Since(begin), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	client = leftovers(leaseOf(time.Hour))
	c := &cleaner{client: client, cleanupOptions: cleanupOptions{namespace: "kube-system", yes: true, pace: 1}}
	if _, err := c.run(ctx); err == nil || len(writesTo(client)) != 0 {
		t.Errorf("%v, wrote %v", err, writesTo(client))
	}
}

func TestCleanupLeavesASecretOfTheUser(t *testing.T) {
	client := leftovers(leaseOf(time.Hour))
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ccm-baremetal-gossip"}}
	if _, err := client.CoreV1().Secrets("kube-system").Update(context.Background(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	result, err := clean(client, cleanupOptions{})
	if err != nil || len(result.Objects) != 2 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestCleanupIsPrinted(t *testing.T) {
	for _, c := range []struct {
		result cleanup
		want   string
	}{
		{cleanup{}, "Nothing of ours is left.\n"},
		{cleanup{Services: []cleanedService{{Service: "shop/web", Conditions: []string{"c"}, Finalizer: true, Kept: []string{"192.0.2.1"}}}},
			"SERVICE   REMOVED           KEPT\nshop/web  c, the finalizer  192.0.2.1\n" +
				"Nothing has been changed. With --yes all of this is removed; the addresses stay in the status, and nobody answers for them.\n"},
		{cleanup{Done: true, Services: []cleanedService{{Service: "shop/web", Conditions: []string{"c"}, Released: []string{"192.0.2.1"}, Error: "no right"}},
			Objects: []cleanedObject{{Kind: "Lease", Name: "kube-system/x"}}},
			"SERVICE   REMOVED       KEPT  RESULT\nshop/web  c, 192.0.2.1  -     FAILED: no right\nLease kube-system/x: done\nGone through: 1 Services, 1 objects.\n"},
		{cleanup{Running: []string{"pod x"}, Objects: []cleanedObject{{Kind: "Lease", Name: "kube-system/x"}}},
			"Lease kube-system/x\nstill runs: pod x\nNothing has been changed. End what still runs (kubectl delete -k manifests/base); it would put back what is removed.\n"},
	} {
		var b bytes.Buffer
		if err := printCleanup(&b, c.result); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}
