package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// pods returns the templates of both programs' pods in an overlay.
func pods(t *testing.T, overlay string) map[string]corev1.PodTemplateSpec {
	t.Helper()
	out := map[string]corev1.PodTemplateSpec{}
	for key, object := range kustomized(t, overlay) {
		if object["kind"] != "Deployment" && object["kind"] != "DaemonSet" {
			continue
		}
		var workload appsv1.Deployment // the template is at the same place in both
		if err := yaml.Unmarshal(must[[]byte](t)(yaml.Marshal(object)), &workload); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		out[workload.Name] = workload.Spec.Template
	}
	return out
}

// broken returns which checks of a Pod Security level a pod does not pass.
func broken(t *testing.T, level api.Level, pod corev1.PodTemplateSpec) []string {
	t.Helper()
	ids := map[string]bool{}
	for _, check := range policy.DefaultChecks() {
		if check.Level != level {
			continue
		}
		newest := check.Versions[len(check.Versions)-1]
		if !newest.CheckPod(&pod.ObjectMeta, &pod.Spec).Allowed {
			ids[string(check.ID)] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// What docs/security.md says of the Pod Security Standards: each exception is
// one that the program's work needs.
func TestPodsAreAsRestrictedAsTheirWorkAllows(t *testing.T) {
	for _, c := range []struct {
		overlay, program     string
		baseline, restricted []string
	}{
		{"base", "ccm-baremetal", []string{"hostNamespaces", "hostPorts"}, nil},
		{"lb-only", "ccm-baremetal", nil, nil},
		// Raw sockets need NET_RAW, which Kubernetes gives to root only.
		{"base", "announcer", []string{"capabilities_baseline", "hostNamespaces", "hostPathVolumes", "hostPorts"},
			[]string{"capabilities_restricted", "restrictedVolumes", "runAsNonRoot", "runAsUser"}},
		// FRR beside it breaks no other rule.
		{"bgp-frr", "announcer", []string{"capabilities_baseline", "hostNamespaces", "hostPathVolumes", "hostPorts"},
			[]string{"capabilities_restricted", "restrictedVolumes", "runAsNonRoot", "runAsUser"}},
	} {
		pod := pods(t, c.overlay)[c.program]
		if c.program == "ccm-baremetal" && c.overlay == "base" { // as the API server defaults it
			pod.Spec.Containers[0].Ports[0].HostPort = pod.Spec.Containers[0].Ports[0].ContainerPort
		}
		if c.program == "announcer" {
			for i := range pod.Spec.Containers[0].Ports {
				pod.Spec.Containers[0].Ports[i].HostPort = pod.Spec.Containers[0].Ports[i].ContainerPort
			}
		}
		if got := broken(t, api.LevelBaseline, pod); !slices.Equal(got, c.baseline) {
			t.Errorf("%s in %s breaks of baseline %v, want %v", c.program, c.overlay, got, c.baseline)
		}
		if got := broken(t, api.LevelRestricted, pod); !slices.Equal(got, c.restricted) {
			t.Errorf("%s in %s breaks of restricted %v, want %v", c.program, c.overlay, got, c.restricted)
		}
	}
}

func TestContainersCannotWriteAndAreNotEvictedFirst(t *testing.T) {
	for program, class := range map[string]string{"ccm-baremetal": "system-cluster-critical", "announcer": "system-node-critical"} {
		pod := pods(t, "bgp-frr")[program].Spec
		if pod.PriorityClassName != class {
			t.Errorf("%s has the priority class %q", program, pod.PriorityClassName)
		}
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s of %s can write to its root", c.Name, program)
			}
		}
	}
}

// Only the port of health and metrics takes connections. Egress stays open: where
// the API server is, and a management cluster's, no manifest can know.
func TestOnlyHealthAndMetricsOfTheCCMAreReachable(t *testing.T) {
	for _, overlay := range []string{"base", "lb-only"} {
		var policies []networkingv1.NetworkPolicy
		for key, object := range kustomized(t, overlay) {
			if object["kind"] != "NetworkPolicy" {
				continue
			}
			var policy networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict(must[[]byte](t)(yaml.Marshal(object)), &policy); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			policies = append(policies, policy)
		}
		if len(policies) != 1 {
			t.Fatalf("%s has %d NetworkPolicies", overlay, len(policies))
		}
		spec, pod := policies[0].Spec, pods(t, overlay)["ccm-baremetal"]
		if !must[labels.Selector](t)(metav1.LabelSelectorAsSelector(&spec.PodSelector)).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s: %v does not select the pods, which have %v", overlay, spec.PodSelector, pod.Labels)
		}
		if !slices.Equal(spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) || len(spec.Ingress) != 1 || len(spec.Ingress[0].From) != 0 {
			t.Fatalf("%s: %+v", overlay, spec)
		}
		port := intstr.FromInt32(pod.Spec.Containers[0].Ports[0].ContainerPort)
		tcp := corev1.ProtocolTCP
		if want := []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}; !reflect.DeepEqual(spec.Ingress[0].Ports, want) {
			t.Errorf("%s lets in to %+v, want %s alone", overlay, spec.Ingress[0].Ports, port.String())
		}
	}
}

// Two pods of the CCM want the same port of a host, so one has to go before another
// can come where every host has one: else a roll-out on one or two nodes never ends.
func TestRollOutOfTheCCMNeedsNoFurtherNode(t *testing.T) {
	for what, all := range map[string]map[string]map[string]any{
		"manifests/base": kustomized(t, "base"),
		"the chart":      charted(t, "kube-system", "ccm: {replicas: 1}"),
	} {
		spec := all["Deployment kube-system/ccm-baremetal"]["spec"].(map[string]any)
		strategy := must[[]byte](t)(json.Marshal(spec["strategy"]))
		if want := `{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}`; string(strategy) != want {
			t.Errorf("%s: the strategy is %s, want %s", what, strategy, want)
		}
	}
}
