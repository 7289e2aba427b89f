package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// logMark is how far the logs of the announcers had come.
type logMark map[string]int

func markLogs() logMark {
	m := logMark{}
	for _, n := range names() {
		m[n] = len(installed.Announcer(n).Log())
	}
	return m
}

// since returns what an announcer has logged since then. One that was started
// anew has a log of its own.
func (m logMark) since(node string) string {
	text := installed.Announcer(node).Log()
	return text[min(m[node], len(text)):]
}

// several is Services with an address each, observed from the client.
func several(t *testing.T, namespace string, n int) map[netip.Addr]*observe.Observation {
	t.Helper()
	serve(t, namespace, "web")
	var addresses []netip.Addr
	for i := range n {
		addresses = append(addresses, address(t, create(t, lab.LoadBalancer(namespace, fmt.Sprint("web-", i), "web"))))
	}
	w, err := cluster.Watch(lab.Client, askEvery, addresses...)
	must(t, err)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	all := map[netip.Addr]*observe.Observation{}
	for _, a := range addresses {
		all[a] = w.Of(a)
		_, err := all[a].WaitReply(bounded(t), time.Time{})
		must(t, err)
	}
	return all
}

// Two nodes are cut from the other two, and from nothing else. When that is
// over there is one owner again in time, without help.
func TestPartitionHealsToOneOwner(t *testing.T) {
	atRest(t)
	all := several(t, "partition", 4)
	for range times(1, 10) {
		must(t, cluster.Split(t.Context(), "n1", "n2"))
		time.Sleep(5 * time.Second)
		healed := time.Now()
		must(t, cluster.Heal(context.Background(), "n1", "n2"))
		whole(t)
		for _, o := range all {
			single(t, o, healed, healBound)
		}
	}
}

// The gossip port alone is dropped between all nodes at once. Each announcer
// then hears nobody, but the owners still answer: no address changes hands,
// neither while it lasts nor when it is over.
func TestGossipAloneMakesNoTwoOwners(t *testing.T) {
	atRest(t)
	all := several(t, "gossip", 12)
	owners := map[netip.Addr]string{}
	for a, o := range all {
		owners[a] = owner(t, o)
	}
	logs := markLogs()
	t.Cleanup(func() {
		for _, n := range names() {
			if t.Failed() {
				t.Logf("%s:\n%s", n, logs.since(n))
			}
		}
	})
	for range times(1, 10) {
		cut := time.Now()
		must(t, cluster.CutPort(t.Context(), product.GossipPort, names()...))
		eventually(t, "every announcer to lose all others", aloneEach)
		time.Sleep(3 * time.Second)
		healed := time.Now()
		heal(t, names()...)
		for a, o := range all {
			if macs := o.MACs(cut, healed); !slices.Equal(macs, []string{macOf(owners[a])}) {
				t.Errorf("%v answered for %s, which %s owns, while the gossip was cut\n%s", macs, a, owners[a], o)
			}
			if who := single(t, o, healed, healBound); who != owners[a] {
				t.Errorf("%s has gone from %s to %s\n%s", a, owners[a], who, o)
			}
			if macs := o.MACs(healed, time.Now()); !slices.Equal(macs, []string{macOf(owners[a])}) {
				t.Errorf("%v answered for %s, which %s owns, when the gossip was back at %s\n%s", macs, a, owners[a], healed.Format("15:04:05.000"), o)
			}
		}
	}
}

// aloneEach reports an announcer that sees others.
func aloneEach(ctx context.Context) error {
	for _, n := range names() {
		page, err := debug(ctx, n)
		if err != nil {
			return err
		}
		if err := page.sees(n); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	return nil
}

// The gossip key is replaced by editing the Secret: no announcer restarts, none
// is lost, and no address moves.
func TestB109KeyIsReplacedWithoutRestart(t *testing.T) {
	atRest(t)
	_, _, o := serving(t, "b109")
	who, mark, logs := owner(t, o), time.Now(), markLogs()
	secrets := cluster.Client().CoreV1().Secrets(product.Namespace)
	before, err := secrets.Get(bounded(t), product.Secret, metav1.GetOptions{})
	must(t, err)
	edit := func(format string, args ...any) {
		t.Helper()
		_, err := secrets.Patch(bounded(t), product.Secret, types.JSONPatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
		must(t, err)
	}
	said := func(what string, times int) {
		t.Helper()
		eventually(t, "every announcer to say: "+what, func(context.Context) error {
			for _, n := range names() {
				if got := strings.Count(logs.since(n), what); got < times {
					return fmt.Errorf("%s has said it %d times of %d", n, got, times)
				}
			}
			return nil
		})
	}
	encoded := func(b []byte) []byte {
		text, err := json.Marshal(b)
		must(t, err)
		return text
	}
	edit(`[{"op":"add","path":"/data/old","value":%s},{"op":"replace","path":"/data/key","value":%s}]`,
		encoded(before.Data["key"]), encoded([]byte("another secret, of any length")))
	said("another gossip key signs now", 1)
	edit(`[{"op":"remove","path":"/data/old"}]`)
	said("gossip keys changed", 2)
	whole(t)
	for _, n := range names() {
		if text := logs.since(n); strings.Contains(text, "member lost") || strings.Contains(text, "refused a gossip packet") {
			t.Errorf("%s says:\n%s", n, text)
		}
		if strings.Contains(installed.Announcer(n).Log(), "another secret") {
			t.Errorf("the secret is in the log of %s", n)
		}
	}
	if macs := o.MACs(mark, time.Now()); !slices.Equal(macs, []string{macOf(who)}) {
		t.Errorf("%v answered, %s owns\n%s", macs, who, o)
	}
}

// An announcer that starts while the API server is away says so and answers
// nothing; the others go on.
func TestRestartWithoutAPIServerStaysPassive(t *testing.T) {
	atRest(t)
	_, _, o := serving(t, "passive")
	who := owner(t, o)
	other := names()[0]
	if other == who {
		other = names()[1]
	}
	must(t, cluster.StopAPI())
	t.Cleanup(func() {
		if _, ok := cluster.Process(lab.ControlPlane, "kube-apiserver"); ok {
			_ = cluster.StartAPI(context.Background()) // it may run already
		}
	})
	mark := time.Now()
	must(t, installed.Announcer(other).Kill())
	_, err := installed.StartAnnouncer(other)
	must(t, err)
	eventually(t, "the new announcer to say what it waits for", func(ctx context.Context) error {
		_, err := cluster.Get(ctx, other, fmt.Sprintf("http://127.0.0.1:%d/readyz", product.HTTPPort))
		if err == nil {
			return errors.New("it is ready")
		}
		if !strings.Contains(err.Error(), "NotSynced") {
			return err
		}
		return nil
	})
	time.Sleep(5 * time.Second)
	if macs := o.MACs(mark, time.Now()); !slices.Equal(macs, []string{macOf(who)}) {
		t.Errorf("%v answered without an API server, %s owns\n%s", macs, who, o)
	}
	must(t, cluster.StartAPI(bounded(t)))
	keepCCMs(t)
	whole(t)
}
