package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// command runs a command of ccm-baremetal as the administrator, and returns
// what it printed and its exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	out, err := installed.Command(bounded(t), args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0
	case errors.As(err, &exit):
		return out, exit.ExitCode()
	}
	t.Fatal(err)
	return "", 0
}

// listing is what `ccm-baremetal allocations -o json` prints.
type listing struct {
	Pools []struct {
		Name, Family  string
		Size, Free    uint64
		Used, Waiting int
	}
	Holders []struct{ Address, Pool, Service string }
	Waiting []struct {
		Service, Reason, Message string
		Pools                    []string
	}
}

func allocations(t *testing.T) listing {
	t.Helper()
	out, code := command(t, "allocations", "-o", "json")
	var l listing
	if err := json.Unmarshal([]byte(out), &l); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	return l
}

// guarded is a document with a pool for n Services of a namespace, and those
// Services, served and answered.
func guarded(t *testing.T, namespace string, n int) (text string, services []*corev1.Service) {
	t.Helper()
	text = document + "- name: guard\n  autoAssign: false\n  addresses: [198.51.100.170-198.51.100.189]\n"
	temporarily(t, text)
	serve(t, namespace, "web")
	for i := range n {
		s := lab.LoadBalancer(namespace, fmt.Sprintf("s%d", i), "web")
		s.Annotations = map[string]string{"ccm-baremetal.io/pool": "guard"}
		services = append(services, create(t, s))
	}
	for _, s := range services {
		address(t, s)
	}
	return text, services
}

// A document that would silence everything is refused, and the accepted one
// stays in force, whoever leads and however often.
func TestRefusedMassChangeStaysRefusedOverRestartsAndLeaders(t *testing.T) {
	atRest(t)
	good, services := guarded(t, "guard", 8)
	a := address(t, services[0])
	o := watch(t, a)
	mark := time.Now()
	bad := good + "advertisements:\n- {name: nowhere, nodeSelector: no=where, layer2: {}}\n"

	t.Run("CheckConfigTellsBefore", func(t *testing.T) {
		out, code := check(t, bad)
		if code != 3 || !strings.Contains(out, "would refuse it") || strings.Count(out, "unannounced") != 8 {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		if n := serviceWrites(t, mark); n != 0 {
			t.Errorf("%d writes to Services", n)
		}
	})
	must(t, installed.Configure(bounded(t), bad))
	waitEvent(t, product.Namespace, product.ConfigMap, "Warning", "ConfigurationRefused", "guard/s0", "services.allowMassChange")
	eventually(t, "the refusal to be kept for the next leader", func(ctx context.Context) error {
		accepted, err := cluster.Client().CoreV1().ConfigMaps(product.Namespace).Get(ctx, product.Accepted, metav1.GetOptions{})
		if err == nil && accepted.Annotations["ccm-baremetal.io/refused"] == "" {
			err = fmt.Errorf("its annotations are %v", accepted.Annotations)
		}
		return err
	})

	// The leader changes, and then both start anew.
	must(t, leading(t).Kill())
	probe := lab.LoadBalancer("guard", "probe", "web")
	address(t, create(t, probe)) // by the other
	for i := range 2 {
		must(t, installed.CCM(i).Kill())
	}
	keepCCMs(t)
	second := lab.LoadBalancer("guard", "probe2", "web")
	address(t, create(t, second))
	accepted, err := cluster.Client().CoreV1().ConfigMaps(product.Namespace).Get(bounded(t), product.Accepted, metav1.GetOptions{})
	must(t, err)
	if accepted.Data[product.ConfigKey] != good {
		t.Errorf("in force is\n%s", accepted.Data[product.ConfigKey])
	}
	answered(t, o, mark)
	refusals := slices.DeleteFunc(events(t, product.Namespace, product.ConfigMap), func(text string) bool { return !strings.Contains(text, "guard/s0") })
	if len(refusals) != 1 {
		t.Errorf("told %d times: %q", len(refusals), refusals)
	}

	allowed := strings.Replace(bad, "pools:\n", "services: {allowMassChange: true}\npools:\n", 1)
	if out, code := check(t, allowed); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	must(t, installed.Configure(bounded(t), allowed))
	inForce(t, allowed)
	quiet := time.Now().Add(5 * time.Second)
	time.Sleep(time.Until(quiet.Add(time.Second)))
	silent(t, o, quiet)
}

// check runs check-config --cluster on a document.
func check(t *testing.T, text string) (string, int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return command(t, "check-config", "--cluster", path)
}

// The commands tell the same without a CCM as with one.
func TestAllocationsAndCheckConfigWorkWithoutACCM(t *testing.T) {
	atRest(t)
	good, services := guarded(t, "listing", 3)
	enforce(t, strings.Replace(good, "189", "172", 1))
	waits := lab.LoadBalancer("listing", "waits", "web")
	waits.Annotations = map[string]string{"ccm-baremetal.io/pool": "guard"}
	waitReason(t, create(t, waits), "PoolExhausted")
	with := allocations(t)
	withoutCCMs(t)
	without := allocations(t)
	if fmt.Sprint(with) != fmt.Sprint(without) {
		t.Errorf("with a CCM:\n%+v\nwithout:\n%+v", with, without)
	}
	var found []string
	for _, h := range without.Holders {
		found = append(found, h.Service+" "+h.Pool)
	}
	for _, s := range services {
		if !slices.Contains(found, "listing/"+s.Name+" guard") {
			t.Errorf("%s is not among %q", s.Name, found)
		}
	}
	if len(without.Waiting) != 1 || without.Waiting[0].Reason != "PoolExhausted" || fmt.Sprint(without.Waiting[0].Pools) != "[guard]" {
		t.Errorf("waiting: %+v", without.Waiting)
	}
	created := create(t, lab.LoadBalancer("listing", "unseen", "web"))
	a := allocations(t)
	reasons := map[string]string{}
	for _, w := range a.Waiting {
		reasons[w.Service] = string(w.Reason)
	}
	if want := map[string]string{"listing/waits": "PoolExhausted", "listing/" + created.Name: "Pending"}; !maps.Equal(reasons, want) {
		t.Errorf("waiting: %v, want %v", reasons, want)
	}
	out, code := check(t, strings.Replace(good, "pools:\n", "services: {handleUnclassed: false}\npools:\n", 1))
	if code != 0 || strings.Count(out, "it would not be ours any more") != 3 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// B-042, the third part: nothing of ours blocks anything after an uninstall,
// and the way back gives everybody the same address.
func TestB042CleanupAfterAnUninstall(t *testing.T) {
	atRest(t)
	text, services := guarded(t, "cleanup", 5)
	class := "example.org/other"
	foreign := lab.LoadBalancer("cleanup", "foreign", "web")
	foreign.Spec.LoadBalancerClass = &class
	others := create(t, foreign)
	must(t, cluster.SetIngress(bounded(t), others, netip.MustParseAddr("192.0.2.77")))
	patch(t, services[0], `{"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"]}}`)
	eventually(t, "the finalizer to be removed", func(context.Context) error {
		if f := get(t, services[0]).Finalizers; len(f) > 0 {
			return fmt.Errorf("it has %v", f)
		}
		return nil
	})
	before := held(t, "cleanup")

	if out, code := command(t, "cleanup", "--yes"); code != 1 || !strings.Contains(out, "still runs") {
		t.Errorf("while the CCM runs: exit code %d: %s", code, out)
	}
	uninstall(t)
	t.Cleanup(func() { startAll(t) })
	patch(t, services[0], `{"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"]}}`)
	mark := time.Now()
	out, code := command(t, "cleanup")
	if code != 0 || strings.Count(out, allocated) != 5 || !strings.Contains(out, "the finalizer") || strings.Contains(out, "foreign") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	log, err := cluster.Audit(mark)
	must(t, err)
	if w := log.Agent("ccm-baremetal-command").Writes(); len(w) != 0 {
		t.Errorf("a dry run has written:\n%s", w)
	}

	// The Lease of a CCM that has ended runs out.
	eventually(t, "cleanup to be done", func(context.Context) error {
		if out, code = command(t, "cleanup", "--yes"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	sameHoldings(t, before, held(t, "cleanup"))
	clean(t, services, 1)
	mine := cluster.Client().CoreV1().ConfigMaps(product.Namespace)
	if _, err := mine.Get(bounded(t), product.Accepted, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%s: %v", product.Accepted, err)
	}
	if _, err := mine.Get(bounded(t), product.ConfigMap, metav1.GetOptions{}); err != nil {
		t.Errorf("the user's document: %v", err)
	}

	t.Run("TheWayBack", func(t *testing.T) {
		startAll(t)
		whole(t)
		inForce(t, text)
		for _, s := range services {
			waitReason(t, s, "Allocated")
		}
		sameHoldings(t, before, held(t, "cleanup"))
	})
	t.Run("ReleaseAddresses", func(t *testing.T) {
		must(t, installed.Stop(t.Context()))
		eventually(t, "cleanup to be done", func(context.Context) error {
			if out, code := command(t, "cleanup", "--yes", "--release-addresses"); code != 0 {
				return errors.New(out)
			}
			return nil
		})
		clean(t, services, 0)
		startAll(t)
		whole(t)
		if now := get(t, others); len(now.Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("a foreign Service was touched: %+v", now.Status)
		}
	})
}

// clean fails the test if anything of ours is on a Service, or not as many
// addresses as there should be.
func clean(t *testing.T, services []*corev1.Service, addresses int) {
	t.Helper()
	for _, s := range services {
		now := get(t, s)
		if len(now.Status.Conditions) != 0 || len(now.Finalizers) != 0 || len(now.Status.LoadBalancer.Ingress) != addresses {
			t.Errorf("%s: %+v, finalizers %v", s.Name, now.Status, now.Finalizers)
		}
	}
}

// uninstall ends all processes and deletes the announcers' DaemonSet, which
// takes its pods with it, until the test is over.
func uninstall(t *testing.T) {
	t.Helper()
	must(t, installed.Stop(t.Context()))
	sets := cluster.Client().AppsV1().DaemonSets(product.Namespace)
	set, err := sets.Get(bounded(t), product.Announcer, metav1.GetOptions{})
	must(t, err)
	must(t, sets.Delete(bounded(t), product.Announcer, metav1.DeleteOptions{}))
	t.Cleanup(func() {
		set.ResourceVersion, set.UID = "", ""
		if _, err := sets.Create(context.Background(), set, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// startAll starts what does not run.
func startAll(t *testing.T) {
	t.Helper()
	keepCCMs(t)
	startMissing(t)
}
