package product

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

// Namespace is where the manifests put everything, and the chart if it is not
// told otherwise.
const Namespace = "kube-system"

// The names that are fixed in the API.
const (
	ConfigMap  = "ccm-baremetal"
	Accepted   = "ccm-baremetal-accepted"
	ConfigKey  = "config.yaml"
	Secret     = "ccm-baremetal-gossip"
	Lease      = "ccm-baremetal"
	HTTPPort   = 7957 // of the announcer: health and metrics
	DebugPort  = 7958 // of the announcer, on loopback
	GossipPort = 7956
	CCMPort    = 10258 // of the first CCM; the next one has the next
)

// Options say what of the product to run. The zero value runs one CCM and an
// announcer on every node, without any configuration.
type Options struct {
	Manifests string // the directory in manifests to apply; empty: base
	Rendered  string // a file of objects to apply instead, as the chart makes them
	Namespace string // in which these are; default: Namespace
	Config    string // the user's document; empty: none
	CCMs      int    // default 1; less than 0: none
	Nodes     []string
	Out       io.Writer
}

// Product is an installation in a lab.
type Product struct {
	Lab *lab.Lab

	dir         string
	namespace   string
	out         io.Writer
	kubeconfigs map[string]string   // by program
	arguments   map[string][]string // by program: those of the manifests
	pods        string              // selects those of the announcers' DaemonSet
}

// Install builds the product, applies its manifests and starts what Options
// say. It does not wait for anything to be ready. Until ctx ends, the pods of the
// announcers' DaemonSet are as ready as the announcers are.
func Install(ctx context.Context, l *lab.Lab, o Options) (*Product, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	p, err := prepare(ctx, l, o)
	if err != nil {
		return nil, fmt.Errorf("install the product: %w", err)
	}
	if o.Config != "" {
		if err := p.Configure(ctx, o.Config); err != nil {
			return nil, err
		}
	}
	if o.CCMs == 0 {
		o.CCMs = 1
	}
	for i := range max(0, o.CCMs) {
		if _, err := p.StartCCM(i); err != nil {
			return nil, err
		}
	}
	if o.Nodes == nil {
		for _, n := range l.Nodes() {
			o.Nodes = append(o.Nodes, n.Name)
		}
	}
	for _, n := range o.Nodes {
		if _, err := p.StartAnnouncer(n); err != nil {
			return nil, err
		}
	}
	go p.probe(ctx)
	return p, nil
}

// prepare builds the programs and applies the manifests.
func prepare(ctx context.Context, l *lab.Lab, o Options) (*Product, error) {
	root, err := Root(ctx)
	if err != nil {
		return nil, err
	}
	p := &Product{Lab: l, dir: filepath.Join(l.Dir(), "product"), namespace: cmp.Or(o.Namespace, Namespace), out: o.Out}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if err := Build(ctx, root, p.dir, p.out); err != nil {
		return nil, err
	}
	objects := []string{"-k", filepath.Join(root, "manifests", cmp.Or(o.Manifests, "base"))}
	if o.Rendered != "" {
		objects = []string{"-f", o.Rendered}
	}
	fmt.Fprintln(p.out, "applying", objects[1])
	if _, err := l.Kubectl(ctx, append([]string{"apply"}, objects...)...); err != nil {
		return nil, err
	}
	if err := p.readManifests(ctx); err != nil {
		return nil, err
	}
	return p, p.issueKubeconfigs(ctx)
}

// readManifests takes the arguments of the programs from the objects that the
// API server has made of the manifests.
func (p *Product) readManifests(ctx context.Context) error {
	deployment, err := p.Lab.Client().AppsV1().Deployments(p.namespace).Get(ctx, CCM, metav1.GetOptions{})
	if err != nil {
		return err
	}
	daemonSet, err := p.Lab.Client().AppsV1().DaemonSets(p.namespace).Get(ctx, Announcer, metav1.GetOptions{})
	if err != nil {
		return err
	}
	p.arguments = map[string][]string{
		CCM:       deployment.Spec.Template.Spec.Containers[0].Args,
		Announcer: daemonSet.Spec.Template.Spec.Containers[0].Args,
	}
	p.pods = metav1.FormatLabelSelector(daemonSet.Spec.Selector)
	return nil
}

func (p *Product) issueKubeconfigs(ctx context.Context) error {
	p.kubeconfigs = map[string]string{}
	for _, program := range []string{CCM, Announcer} {
		path, err := p.Lab.Kubeconfig(ctx, p.namespace, program)
		if err != nil {
			return err
		}
		p.kubeconfigs[program] = path
	}
	return nil
}

// StartCCM starts the CCM number i on the control plane host, without
// capabilities, as its manifest says, and with more flags.
func (p *Product) StartCCM(i int, flags ...string) (*lab.Process, error) {
	return p.StartCCMBy(p.kubeconfigs[CCM], i, flags...)
}

// StartCCMBy starts a CCM that reaches the API server by another kubeconfig.
func (p *Product) StartCCMBy(kubeconfig string, i int, flags ...string) (*lab.Process, error) {
	argv := append(confined("-all"), filepath.Join(p.dir, CCM),
		"--kubeconfig", kubeconfig,
		"--authentication-kubeconfig", kubeconfig,
		"--authorization-kubeconfig", kubeconfig,
		"--secure-port", fmt.Sprint(CCMPort+i))
	return p.Lab.Start(lab.ControlPlane, ccmName(i), slices.Concat(argv, p.arguments[CCM], flags), nil)
}

// StartAnnouncer starts the announcer of a node, with NET_RAW as its only
// capability, and with more flags.
func (p *Product) StartAnnouncer(node string, flags ...string) (*lab.Process, error) {
	return p.StartAnnouncerBy(p.kubeconfigs[Announcer], node, flags...)
}

// StartFormerAnnouncer starts the announcer of a node that BuildFormer has made.
func (p *Product) StartFormerAnnouncer(program, node string) (*lab.Process, error) {
	return p.startAnnouncer(program, p.kubeconfigs[Announcer], node)
}

// StartAnnouncerBy starts an announcer that reaches the API server by another
// kubeconfig.
func (p *Product) StartAnnouncerBy(kubeconfig, node string, flags ...string) (*lab.Process, error) {
	return p.startAnnouncer(filepath.Join(p.dir, Announcer), kubeconfig, node, flags...)
}

func (p *Product) startAnnouncer(program, kubeconfig, node string, flags ...string) (*lab.Process, error) {
	argv := append(confined("-all,+net_raw"), program, "--kubeconfig", kubeconfig)
	argv = append(argv, p.arguments[Announcer]...)
	argv = append(argv, "--record", p.Record(node), "--frr-dir", p.FRR(node)) // the nodes of a lab share one file system
	return p.Lab.Start(node, Announcer, append(argv, flags...), []string{"NODE_NAME=" + node})
}

// Record returns the file in which a node's announcer remembers its past.
func (p *Product) Record(node string) string { return filepath.Join(p.dir, "record-"+node) }

// FRR returns the directory that a node's announcer shares with an FRR beside
// it. It is there if a test has made it.
func (p *Product) FRR(node string) string { return filepath.Join(p.dir, "frr-"+node) }

// confined is a command line that runs what follows with certain capabilities
// only, as a container runtime would.
func confined(capabilities string) []string {
	return []string{"setpriv", "--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=" + capabilities}
}

func ccmName(i int) string { return fmt.Sprintf("%s-%d", CCM, i) }

// CCM returns the process of the CCM number i.
func (p *Product) CCM(i int) *lab.Process {
	process, _ := p.Lab.Process(lab.ControlPlane, ccmName(i))
	return process
}

// Announcer returns the process of a node's announcer.
func (p *Product) Announcer(node string) *lab.Process {
	process, _ := p.Lab.Process(node, Announcer)
	return process
}

// Stop ends every process of the product by SIGTERM, all at once, and waits
// for their ends; one that takes too long is killed and named in the error.
func (p *Product) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // the grace that the manifests have the kubelet give
	defer cancel()
	var mine []*lab.Process
	for _, process := range p.Lab.Processes() {
		if !process.Own && process.Running() {
			mine = append(mine, process)
			if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
		}
	}
	var errs []error
	for _, process := range mine {
		if err := process.Wait(ctx); err != nil && process.Running() {
			errs = append(errs, err, process.Kill())
		}
	}
	return errors.Join(errs...)
}

// Configure writes the user's document, as `kubectl edit` would.
func (p *Product) Configure(ctx context.Context, document string) error {
	maps := p.Lab.Client().CoreV1().ConfigMaps(p.namespace)
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: ConfigMap},
		Data:       map[string]string{ConfigKey: document},
	}
	_, err := maps.Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// Debug fetches a page of a node's announcer from its loopback address.
func (p *Product) Debug(ctx context.Context, node, path string) (string, error) {
	return p.Lab.Get(ctx, node, fmt.Sprintf("http://127.0.0.1:%d%s", DebugPort, path))
}

// Ready waits until every running announcer says that it is ready.
func (p *Product) Ready(ctx context.Context) error {
	for _, n := range p.Lab.Nodes() {
		process := p.Announcer(n.Name)
		if process == nil || !process.Running() {
			continue
		}
		if err := p.waitReady(ctx, n.Name); err != nil {
			return err
		}
	}
	return nil
}

func (p *Product) waitReady(ctx context.Context, node string) error {
	for {
		_, err := p.Lab.Get(ctx, node, readyURL())
		if err == nil {
			return nil
		}
		if process := p.Announcer(node); !process.Running() {
			return fmt.Errorf("the announcer on %s has ended: %s", node, process.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the announcer on %s to be ready: %w; it says: %w", node, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Explain runs `announcer explain` on a node.
func (p *Product) Explain(ctx context.Context, node, subject string) (string, error) {
	return p.Ask(ctx, node, "explain", subject)
}

// Ask runs a command of announcer on a node.
func (p *Product) Ask(ctx context.Context, node string, args ...string) (string, error) {
	return p.Lab.Run(ctx, node, append([]string{filepath.Join(p.dir, Announcer)}, args...)...)
}

// Command runs a command of ccm-baremetal, such as check-config, on the control
// plane host with all rights, and returns all that it printed.
func (p *Product) Command(ctx context.Context, args ...string) (string, error) {
	return p.Lab.Run(ctx, lab.ControlPlane, append([]string{filepath.Join(p.dir, CCM)}, args...)...)
}
