package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// drainNode sets or clears the annotation that asks a Node's announcer to give
// its addresses away.
func drainNode(t *testing.T, node string, drain bool) {
	t.Helper()
	must(t, cluster.EditNode(context.Background(), node, func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations["ccm-baremetal.io/drain"] = fmt.Sprint(drain)
	}))
}

// What simulate says beforehand is what the network does afterwards.
func TestSimulatedDrainIsWhatThenHappens(t *testing.T) {
	atRest(t)
	serve(t, "simulate", "web")
	services := map[string]*corev1.Service{} // by address
	for i := range 6 {
		svc := create(t, lab.LoadBalancer("simulate", fmt.Sprint("web-", i), "web"))
		services[address(t, svc).String()] = svc
	}
	from := map[string]string{} // the owner of each address
	for vip, svc := range services {
		saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", "announcing "+vip+" from ")
		explained, err := installed.Ask(bounded(t), "n1", "explain", vip, "-o", "json")
		must(t, err)
		var page struct {
			Addresses []struct{ Owner string }
		}
		must(t, json.Unmarshal([]byte(explained), &page))
		from[vip] = page.Addresses[0].Owner
		saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, from[vip]))
	}
	drained := ""
	for _, owner := range from {
		drained = max(drained, owner)
	}
	out, err := installed.Ask(bounded(t), "n1", "simulate", "--drain", drained, "-o", "json")
	must(t, err)
	var predicted struct {
		Moves []struct{ Address, From, To, Cause string }
	}
	must(t, json.Unmarshal([]byte(out), &predicted))
	want := map[string]string{}
	for vip, owner := range from {
		want[vip] = owner
	}
	for _, m := range predicted.Moves {
		if _, ours := services[m.Address]; !ours {
			continue // of another test, not deleted yet
		}
		if m.From != drained || m.To == drained || m.Cause != "Draining" {
			t.Errorf("predicted: %+v", m)
		}
		want[m.Address] = m.To
	}

	t.Cleanup(func() { drainNode(t, drained, false) })
	drainNode(t, drained, true)
	for vip, svc := range services {
		saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, want[vip]))
		if now := owner(t, watch(t, address(t, svc))); now != want[vip] {
			t.Errorf("%s is answered by %s, predicted %s", vip, now, want[vip])
		}
	}
	text, err := installed.Explain(bounded(t), "n1", "simulate/web-0")
	must(t, err)
	if !strings.Contains(text, drained+": Draining (it is leaving: annotation ccm-baremetal.io/drain is true)") {
		t.Errorf("explain does not say why %s is left out:\n%s", drained, text)
	}
	drainNode(t, drained, false)
	for vip, svc := range services {
		saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, from[vip]))
	}
}
