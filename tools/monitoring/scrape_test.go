package monitoring

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v2"
)

// A workload is what Prometheus finds out about the pods of a manifest.
type workload struct {
	Spec struct {
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct {
					Ports []struct {
						Name          string
						ContainerPort string `yaml:"containerPort"`
					}
				}
			}
		}
	}
}

// found returns the targets that Prometheus sees in a pod of a manifest: one for
// each port, with the labels of a pod's service discovery.
func found(t *testing.T, manifest string) []labels.Labels {
	t.Helper()
	var w workload
	decode(t, "../../manifests/base/"+manifest, read(t, "../../manifests/base/"+manifest), &w)
	var all []labels.Labels
	for _, c := range w.Spec.Template.Spec.Containers {
		for _, port := range c.Ports {
			all = append(all, labels.FromStrings(
				"__address__", "192.0.2.11:"+port.ContainerPort,
				"__meta_kubernetes_pod_label_app_kubernetes_io_name", w.Spec.Template.Metadata.Labels["app.kubernetes.io/name"],
				"__meta_kubernetes_pod_container_port_name", port.Name,
				"__meta_kubernetes_pod_node_name", "n1"))
		}
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, what, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// The example in docs/monitoring.md finds the port with metrics of each program,
// and nothing else, and names announcers after their node.
func TestScrapeConfigurationFindsBothPrograms(t *testing.T) {
	const page = "../../docs/monitoring.md"
	_, rest, _ := strings.Cut(read(t, page), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	var c struct {
		Jobs []struct {
			Name    string            `yaml:"job_name"`
			Relabel []*relabel.Config `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	decode(t, page, example, &c)
	targets := slices.Concat(found(t, "announcer-daemonset.yaml"), found(t, "ccm-deployment.yaml"))
	var got []string
	for _, job := range c.Jobs {
		for _, r := range job.Relabel {
			if err := r.Validate(model.UTF8Validation); err != nil {
				t.Fatal(err)
			}
		}
		for _, target := range targets {
			b := labels.NewBuilder(target)
			if relabel.ProcessBuilder(b, job.Relabel...) {
				got = append(got, strings.TrimSpace(job.Name+" "+b.Get("__address__")+" "+b.Get("instance")))
			}
		}
	}
	if want := []string{"announcer 192.0.2.11:7957 n1", "ccm-baremetal 192.0.2.11:10258"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
