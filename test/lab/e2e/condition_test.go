package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/observe"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/product"
)

// announcedCondition is the type of the announcers' condition.
const announcedCondition = "ccm-baremetal.io/Announced"

// saysAnnounced waits until the condition of a Service says what is wanted.
func saysAnnounced(t *testing.T, s *corev1.Service, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	eventually(t, fmt.Sprintf("condition Announced of %s is %s/%s", s.Name, status, reason), func(ctx context.Context) error {
		now, err := cluster.Client().CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			if c.Type != announcedCondition {
				continue
			}
			if c.Status == status && c.Reason == reason && strings.Contains(c.Message, message) {
				return nil
			}
			return fmt.Errorf("it is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		return fmt.Errorf("there is none, only %v", now.Status.Conditions)
	})
}

// The condition follows the announcing node, says why there is none, and the
// CCM's own condition stays beside it. At rest nothing is written.
func TestAnnouncedConditionTellsTheTruth(t *testing.T) {
	atRest(t)
	pods := serve(t, "condition", "web")
	svc := create(t, lab.LoadBalancer("condition", "web", "web"))
	vip := address(t, svc)
	owner := owner(t, watch(t, vip))
	saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, owner))

	began := calm(t, 2*time.Second)
	time.Sleep(5 * time.Second)
	log, err := cluster.Audit(began)
	must(t, err)
	if writes := log.User(product.Namespace + "/" + product.Announcer).Writes(); len(writes) > 0 {
		t.Errorf("at rest the announcers wrote\n%s", writes)
	}

	for _, pod := range pods {
		must(t, cluster.SetPodReady(bounded(t), pod, false))
	}
	saysAnnounced(t, svc, metav1.ConditionFalse, "NoEndpoints", "no Service on it has a usable endpoint")
	for _, pod := range pods {
		must(t, cluster.SetPodReady(bounded(t), pod, true))
	}
	saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, owner))

	var allocatedToo bool
	for _, c := range get(t, svc).Status.Conditions {
		allocatedToo = allocatedToo || c.Type == allocated && c.Status == metav1.ConditionTrue
	}
	if !allocatedToo {
		t.Errorf("the condition Allocated is gone: %v", get(t, svc).Status.Conditions)
	}
	for _, f := range get(t, svc).ManagedFields {
		if f.Manager == "ccm-baremetal-announcer" && strings.Contains(string(f.FieldsV1.Raw), "Allocated") {
			t.Errorf("the announcer owns the CCM's condition: %s", f.FieldsV1.Raw)
		}
	}
}

// With the announcers' account nothing of a Service can be changed but that
// one condition, whatever RBAC allows.
func TestAnnouncersAccountCanChangeOneConditionOnly(t *testing.T) {
	atRest(t)
	svc := create(t, lab.LoadBalancer("condition", "narrow", "web"))
	vip := address(t, svc)
	c := rest.CopyConfig(cluster.RESTConfig())
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + product.Namespace + ":" + product.Announcer,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + product.Namespace, "system:authenticated"},
	}
	client, err := kubernetes.NewForConfig(c)
	must(t, err)
	try := func(kind types.PatchType, patch string) error {
		_, err := client.CoreV1().Services(svc.Namespace).Patch(bounded(t), svc.Name, kind, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	}
	condition := func(name, status string) string {
		return fmt.Sprintf(`{"type":%q,"status":%q,"reason":"Test","message":"test","lastTransitionTime":"2030-01-01T00:00:00Z"}`, name, status)
	}
	must(t, try(types.StrategicMergePatchType, `{"status":{"conditions":[`+condition(announcedCondition, "Unknown")+`]}}`))

	before := get(t, svc)
	for name, patch := range map[string]string{
		"an address":        `{"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.1"}]}}}`,
		"no address":        `{"status":{"loadBalancer":{"ingress":null}}}`,
		"the CCM's word":    `{"status":{"conditions":[` + condition(allocated, "False") + `]}}`,
		"another condition": `{"status":{"conditions":[` + condition("example.org/Other", "True") + `]}}`,
		"no CCM's word":     `{"status":{"conditions":[{"$patch":"delete","type":"` + allocated + `"}]}}`,
		"all conditions":    `{"status":{"conditions":[{"$patch":"replace"}]}}`,
		"an annotation":     `{"metadata":{"annotations":{"example.org/a":"b"}}}`,
		"a label":           `{"metadata":{"labels":{"example.org/a":"b"}}}`,
		"a finalizer":       `{"metadata":{"finalizers":["example.org/a"]}}`,
		"an owner":          `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u"}]}}`,
	} {
		if err := try(types.StrategicMergePatchType, patch); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.CoreV1().Services(svc.Namespace).Patch(bounded(t), svc.Name, types.MergePatchType, []byte(`{"spec":{"type":"ClusterIP"}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the spec: %v", err)
	}
	after := get(t, svc)
	if len(after.Annotations) != len(before.Annotations) || len(after.Labels) != len(before.Labels) || len(after.Finalizers) != len(before.Finalizers) {
		t.Errorf("metadata is now %+v", after.ObjectMeta)
	}
	if ip := after.Status.LoadBalancer.Ingress; len(ip) != 1 || ip[0].IP != vip.String() {
		t.Errorf("the address is now %v, was %s", ip, vip)
	}
}

// A Node with the drain annotation gives its addresses away without a gap, and
// gets them back when the annotation goes.
func TestDrainAnnotationLosesNoAnswer(t *testing.T) {
	atRest(t)
	svc, vip, o := serving(t, "drain")
	was := owner(t, o)
	saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, was))
	t.Cleanup(func() { drainNode(t, was, false) })
	mark := time.Now()
	drainNode(t, was, true)
	reply, err := o.WaitOther(bounded(t), mark, macOf(was))
	must(t, err)
	next := single(t, o, reply.Time, worstBound)
	saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, next))
	drainNode(t, was, false)
	waitFor(t, o, was)
	if lost := unanswered(o, mark); len(lost) > 0 {
		t.Errorf("%d questions had no answer\n%s", len(lost), o)
	}
	saysAnnounced(t, svc, metav1.ConditionTrue, "Layer2", fmt.Sprintf("announcing %s from %s, eth0", vip, was))
}

// waitFor waits until a host answers alone again.
func waitFor(t *testing.T, o *observe.Observation, host string) {
	t.Helper()
	eventually(t, host+" to answer again", func(context.Context) error {
		if now := owner(t, o); now != host {
			return fmt.Errorf("%s answers", now)
		}
		return nil
	})
}
