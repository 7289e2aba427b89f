package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

func TestB148StaleIsToldAndEnds(t *testing.T) {
	atRest(t)
	_, a, o := serving(t, "b148")
	mark := time.Now()
	temporarily(t, document) // again, when all is over
	must(t, installed.Configure(bounded(t), document+"bogus: 1\n"))
	waitEvent(t, product.Namespace, product.ConfigMap, "Warning", "bogus")
	stale(t, "1")
	must(t, installed.Configure(bounded(t), document))
	stale(t, "0")
	maps := cluster.Client().CoreV1().ConfigMaps(product.Namespace)
	must(t, maps.Delete(bounded(t), product.ConfigMap, metav1.DeleteOptions{}))
	time.Sleep(2 * time.Second)
	inForce(t, document)
	address(t, create(t, lab.LoadBalancer("b148", "meanwhile", "web"))) // by the last configuration
	must(t, installed.Configure(bounded(t), document))
	stale(t, "0")
	answered(t, o, mark)
	if n := serviceWrites(t, mark); n != 1 {
		t.Errorf("%d writes to Services, want only that for the new one (%s has its address all the time)", n, a)
	}
}

// stale waits for a value of the leader's metric.
func stale(t *testing.T, value string) {
	t.Helper()
	eventually(t, "ccm_baremetal_config_stale to be "+value, func(ctx context.Context) error {
		var pages []string
		for i := range 2 {
			page, err := ccmMetrics(ctx, i, cluster.RESTConfig().BearerToken)
			if err != nil {
				return err
			}
			if strings.Contains(page, "\nccm_baremetal_config_info{") { // only a leader has a document
				pages = append(pages, page)
			}
		}
		if len(pages) != 1 || !strings.Contains(pages[0], "\nccm_baremetal_config_stale "+value+"\n") {
			return fmt.Errorf("it is not, at %d leaders", len(pages))
		}
		return nil
	})
}

// Noise that changes nothing: no event, no write.
func TestB165NoiseCausesNeitherEventsNorWrites(t *testing.T) {
	atRest(t)
	s, a, _ := serving(t, "b165")
	saysAnnounced(t, s, metav1.ConditionTrue, "Layer2", a.String())
	calm(t, 3*time.Second)
	slices, err := cluster.Client().DiscoveryV1().EndpointSlices("b165").List(bounded(t), metav1.ListOptions{})
	must(t, err)
	mark := time.Now()
	for i := range times(10, 300) {
		for _, slice := range slices.Items {
			_, err := cluster.Client().DiscoveryV1().EndpointSlices("b165").Patch(bounded(t), slice.Name, types.MergePatchType,
				[]byte(fmt.Sprintf(`{"metadata":{"annotations":{"example.org/noise":"%d"}}}`, i)), metav1.PatchOptions{})
			must(t, err)
		}
		must(t, cluster.EditNode(bounded(t), names()[0], func(n *corev1.Node) {
			n.Annotations = map[string]string{"example.org/noise": fmt.Sprint(i)}
		}))
		time.Sleep(time.Second)
	}
	must(t, written(mark))
}

// Two controllers that both want the status: ours puts it right, more and more
// slowly, and says so.
func TestFightOverAStatusIsPacedAndTold(t *testing.T) {
	atRest(t)
	s := create(t, lab.LoadBalancer("fight", "s", "web"))
	a := address(t, s)
	for _, wrong := range []string{"203.0.113.7", ""} { // edited by hand, cleared by hand
		var addrs []netip.Addr
		if wrong != "" {
			addrs = append(addrs, netip.MustParseAddr(wrong))
		}
		must(t, cluster.SetIngress(bounded(t), get(t, s), addrs...))
		has(t, s, a.String())
	}
	mark := time.Now()
	for time.Since(mark) < 12*time.Second {
		now := get(t, s)
		if len(now.Status.LoadBalancer.Ingress) > 0 && now.Status.LoadBalancer.Ingress[0].IP == a.String() {
			if err := cluster.SetIngress(bounded(t), now, netip.MustParseAddr("203.0.113.7")); err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := serviceWrites(t, mark); n < 1 || n > 8 {
		t.Errorf("%d writes in 12 s", n)
	}
	waitEvent(t, "fight", "s", "Warning", "StatusOverwritten")
	has(t, s, a.String())
}

// An address that another product had given is kept as it is.
func TestAddressOfAFormerProductIsAdopted(t *testing.T) {
	atRest(t)
	withoutCCMs(t)
	adopted := netip.MustParseAddr("198.51.100.150")
	s := create(t, lab.LoadBalancer("adopt", "s", "web"))
	must(t, cluster.SetIngress(bounded(t), s, adopted))
	keepCCMs(t)
	waitReason(t, s, "Allocated")
	has(t, s, adopted.String())
}
