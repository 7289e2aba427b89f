package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/diagnose"
)

// gatherer collects the facts that a diagnosis needs. Whatever cannot be read
// becomes a fact that is not known, and says why.
type gatherer struct {
	client    kubernetes.Interface
	namespace string
}

func known[T any](value T, err error) diagnose.Known[T] {
	if err != nil {
		return diagnose.Known[T]{Why: err.Error()}
	}
	return diagnose.Known[T]{Value: value}
}

// facts asks the API server for everything, and takes what announcers said.
func (g gatherer) facts(ctx context.Context, now apiClock, all []heard) diagnose.Facts {
	return diagnose.Facts{
		Namespace: g.namespace, Deployment: g.deployment(ctx),
		Nodes: g.nodes(ctx, now), Controller: g.controller(ctx), Announcers: g.announcers(ctx),
		Config: g.configuration(ctx), Proxy: g.proxy(ctx), Pods: g.pods(ctx), Views: views(all),
		Denied: g.denied(ctx), Clock: now.skew, Others: g.others(ctx),
	}
}

func (g gatherer) controller(ctx context.Context) diagnose.Known[diagnose.Lease] {
	l, err := g.client.CoordinationV1().Leases(g.namespace).Get(ctx, "ccm-baremetal", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return diagnose.Known[diagnose.Lease]{}
	}
	if err != nil {
		return known(diagnose.Lease{}, fmt.Errorf("get lease %s/ccm-baremetal: %w", g.namespace, err))
	}
	out := diagnose.Lease{}
	if s := l.Spec; s.HolderIdentity != nil && s.RenewTime != nil && s.LeaseDurationSeconds != nil {
		out = diagnose.Lease{Holder: *s.HolderIdentity, Age: time.Since(s.RenewTime.Time), For: time.Duration(*s.LeaseDurationSeconds) * time.Second}
	}
	return known(out, nil)
}

func (g gatherer) announcers(ctx context.Context) diagnose.Known[diagnose.DaemonSet] {
	d, err := g.client.AppsV1().DaemonSets(g.namespace).Get(ctx, "announcer", metav1.GetOptions{})
	if err != nil {
		return known(diagnose.DaemonSet{}, fmt.Errorf("get daemonset %s/announcer: %w", g.namespace, err))
	}
	return known(diagnose.DaemonSet{Wanted: int(d.Status.DesiredNumberScheduled), Ready: int(d.Status.NumberReady), ObserveOnly: observes(d.Spec.Template)}, nil)
}

// text returns the document in a ConfigMap, empty if there is none.
func (g gatherer) text(ctx context.Context, name string) (string, error) {
	m, err := g.client.CoreV1().ConfigMaps(g.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get configmap %s/%s: %w", g.namespace, name, err)
	}
	return m.Data[config.ConfigMapKey], nil
}

func (g gatherer) configuration(ctx context.Context) diagnose.Known[diagnose.Configuration] {
	var out diagnose.Configuration
	user, err := g.text(ctx, document.UserConfigMap)
	if err != nil {
		return known(out, err)
	}
	accepted, err := g.accepted(ctx)
	if err != nil {
		return known(out, err)
	}
	if user != "" {
		c, err := config.Load([]byte(user))
		if out.User = c.Hash; err != nil {
			out.Faults = err.Error()
		}
		out.IgnoreExclude = c.ExcludeLabel == config.IgnoreLabel // unless another is in force
	}
	if accepted != nil {
		out.Accepted, out.IgnoreExclude = accepted.Hash, accepted.ExcludeLabel == config.IgnoreLabel
	}
	return known(out, nil)
}

// accepted returns the document in force, nil if there is none.
func (g gatherer) accepted(ctx context.Context) (*config.Config, error) {
	text, err := g.text(ctx, document.AcceptedConfigMap)
	if err != nil || text == "" {
		return nil, err
	}
	c, err := config.Load([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("read the document in force: %w", err)
	}
	return &c, nil
}

func (g gatherer) proxy(ctx context.Context) diagnose.Known[diagnose.Proxy] {
	m, err := g.client.CoreV1().ConfigMaps("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
	if err != nil {
		return known(diagnose.Proxy{}, fmt.Errorf("get configmap kube-system/kube-proxy: %w", err))
	}
	return known(proxyOf(m.Data["config.conf"]))
}

// proxyOf reads a KubeProxyConfiguration as kubeadm stores it.
func proxyOf(text string) (diagnose.Proxy, error) {
	var c struct {
		Kind string
		Mode string
		IPVS struct{ StrictARP bool }
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return diagnose.Proxy{}, fmt.Errorf("read config.conf of configmap kube-system/kube-proxy: %w", err)
	}
	if c.Kind != "KubeProxyConfiguration" {
		return diagnose.Proxy{}, fmt.Errorf("configmap kube-system/kube-proxy has no KubeProxyConfiguration under config.conf")
	}
	return diagnose.Proxy{Mode: c.Mode, StrictARP: c.IPVS.StrictARP}, nil
}

func (g gatherer) pods(ctx context.Context) diagnose.Known[[]diagnose.Pod] {
	all, err := g.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return known([]diagnose.Pod(nil), fmt.Errorf("list Pods: %w", err))
	}
	var out []diagnose.Pod
	for _, p := range all.Items {
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			out = append(out, g.pod(p))
		}
	}
	return known(out, nil)
}

// pod returns what of a Pod may be in our way: its ports on the host.
func (g gatherer) pod(p v1.Pod) diagnose.Pod {
	name := p.Labels["app.kubernetes.io/name"]
	out := diagnose.Pod{
		Name: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork,
		Ours: p.Namespace == g.namespace && (name == "announcer" || name == "ccm-baremetal"),
	}
	for _, c := range p.Spec.Containers {
		out.Images = append(out.Images, c.Image)
		for _, port := range c.Ports {
			switch {
			case p.Spec.HostNetwork:
				out.Ports = append(out.Ports, int(port.ContainerPort))
			case port.HostPort != 0:
				out.Ports = append(out.Ports, int(port.HostPort))
			}
		}
	}
	return out
}

// others looks for Cilium's announcements: its pods are there in any case.
func (g gatherer) others(ctx context.Context) diagnose.Known[[]string] {
	m, err := g.client.CoreV1().ConfigMaps("kube-system").Get(ctx, "cilium-config", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return diagnose.Known[[]string]{}
	}
	if err != nil {
		return known([]string(nil), fmt.Errorf("get configmap kube-system/cilium-config: %w", err))
	}
	var found []string
	for _, key := range []string{"enable-l2-announcements", "enable-lb-ipam", "enable-bgp-control-plane"} {
		if m.Data[key] == "true" {
			found = append(found, "Cilium ("+key+")")
		}
	}
	return known(found, nil)
}

func (g gatherer) nodes(ctx context.Context, now apiClock) diagnose.Known[[]diagnose.Node] {
	all, err := g.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return known([]diagnose.Node(nil), fmt.Errorf("list Nodes: %w", err))
	}
	leases, err := g.client.CoordinationV1().Leases(v1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		leases = &coordination.LeaseList{}
	}
	renewed := map[string]time.Time{}
	for _, l := range leases.Items {
		if l.Spec.RenewTime != nil {
			renewed[l.Name] = l.Spec.RenewTime.Time
		}
	}
	var out []diagnose.Node
	for _, n := range all.Items {
		d := diagnose.Node{Name: n.Name, Windows: n.Labels["kubernetes.io/os"] == "windows", Ready: isReady(n)}
		if value, present := n.Labels[config.LabelExclude]; present {
			d.Exclude = &value
		}
		switch at, ok := renewed[n.Name]; {
		case !ok:
			d.Heartbeat.Why = "there is no Lease"
		case now.skew.Why != "":
			d.Heartbeat.Why = now.skew.Why
		default:
			d.Heartbeat.Value = now.at.Sub(at)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b diagnose.Node) int { return cmp.Compare(a.Name, b.Name) })
	return known(out, nil)
}

func isReady(n v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
}

// apiClock is what the clock of the API server showed.
type apiClock struct {
	at   time.Time
	skew diagnose.Known[time.Duration] // ahead of ours
}

// watched takes the time from the answers of the API server. They have it by
// the second only.
type watched struct {
	mu    sync.Mutex
	clock apiClock
}

// wrap makes a client's answers known to w.
func (w *watched) wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil {
				w.note(response.Header.Get("Date"), time.Now())
			}
			return response, err
		})
	})
	return config
}

func (w *watched) note(date string, now time.Time) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = apiClock{at: at, skew: diagnose.Known[time.Duration]{Value: at.Sub(now)}}
}

// seen returns the last that was noted.
func (w *watched) seen() apiClock {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clock.at.IsZero() {
		return apiClock{skew: diagnose.Known[time.Duration]{Why: "the API server tells no time"}}
	}
	return w.clock
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// diagnosis is the output of doctor.
type diagnosis struct {
	Verdict diagnose.Verdict `json:"verdict"` // the gravest
	Checks  []diagnose.Check `json:"checks"`
}

// examine makes all checks of a cluster.
func examine(ctx context.Context, c *cluster) (diagnosis, []heard, error) {
	rest, err := c.config()
	if err != nil {
		return diagnosis{}, nil, err
	}
	var clock watched
	client, err := kubernetes.NewForConfig(clock.wrap(rest))
	if err != nil {
		return diagnosis{}, nil, fmt.Errorf("find the cluster: %w", err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		return diagnosis{}, nil, fmt.Errorf("reach the API server: %w", err)
	}
	var all []heard
	if a, err := c.announcers(ctx); err != nil {
		all = []heard{{node: "any node", err: err}}
	} else {
		all = a.all(ctx)
	}
	g := gatherer{client: client, namespace: c.installed}
	checks := diagnose.Run(g.facts(ctx, clock.seen(), all))
	return diagnosis{diagnose.Worst(checks), checks}, all, nil
}
