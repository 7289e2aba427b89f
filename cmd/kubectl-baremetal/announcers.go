package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/ask"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

const (
	// announcerPods selects the pods of the DaemonSet.
	announcerPods = "app.kubernetes.io/name=announcer"

	debugPort   = 7958
	askWithin   = 15 * time.Second
	askTogether = 8       // announcers at a time
	pageAtMost  = 1 << 30 // bytes
)

// target is an announcer that can be asked.
type target struct{ node, address, pod string }

// transport reaches the debug page of an announcer. The caller of reach calls
// done when he needs the URL no more.
type transport interface {
	reach(ctx context.Context, t target) (url string, done func(), err error)
}

// announcers are all announcers of a cluster.
type announcers struct {
	targets []target // by node, those that are Ready first
	way     transport
	client  *http.Client
}

// announcers finds them by their Pods or, with --announcer-url, by the Nodes.
func (c *cluster) announcers(ctx context.Context) (*announcers, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	a := &announcers{client: &http.Client{Timeout: askWithin, Transport: &http.Transport{DisableKeepAlives: true}}} // no proxy knows the way
	if c.announcerURL != "" {
		a.way = direct(c.announcerURL)
		a.targets, err = byNodes(ctx, client, c.announcerURL)
		return a, err
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	a.way = &forward{config: config, client: client, namespace: c.installed}
	a.targets, err = byPods(ctx, client, c.installed)
	return a, err
}

func byPods(ctx context.Context, client kubernetes.Interface, namespace string) ([]target, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: announcerPods})
	if err != nil {
		return nil, fmt.Errorf("list the pods of the announcers: %w", err)
	}
	slices.SortFunc(pods.Items, func(a, b v1.Pod) int {
		return cmp.Or(readyFirst(a)-readyFirst(b), cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
	var targets []target
	for _, p := range pods.Items {
		if p.Status.Phase == v1.PodRunning {
			targets = append(targets, target{p.Spec.NodeName, p.Status.HostIP, p.Name})
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("no announcer runs in namespace %s: there is no running Pod with the label %s; "+
			"see --install-namespace and --announcer-url", namespace, announcerPods)
	}
	return targets, nil
}

func readyFirst(p v1.Pod) int {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return 0
		}
	}
	return 1
}

// byNodes returns a target for each Node. A URL that names none is that of one
// announcer, which says itself where it is.
func byNodes(ctx context.Context, client kubernetes.Interface, url string) ([]target, error) {
	if !strings.Contains(url, "{node}") && !strings.Contains(url, "{address}") {
		return []target{{}}, nil
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	var targets []target
	for _, n := range nodes.Items {
		t := target{node: n.Name}
		for _, a := range n.Status.Addresses {
			if a.Type == v1.NodeInternalIP && t.address == "" {
				t.address = a.Address
			}
		}
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.node, b.node) })
	return targets, nil
}

// direct reaches announcers by a URL of their own.
type direct string

func (d direct) reach(_ context.Context, t target) (string, func(), error) {
	address := t.address
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return strings.NewReplacer("{node}", t.node, "{address}", address).Replace(string(d)), func() {}, nil
}

// open returns the page of the announcer on a node, of any if that is empty.
func (a *announcers) open(ctx context.Context, node string) (io.ReadCloser, error) {
	var errs []error
	for _, t := range a.targets {
		if node != "" && t.node != node && t != (target{}) {
			continue
		}
		page, err := a.page(ctx, t)
		if err == nil {
			return io.NopCloser(bytes.NewReader(page)), nil
		}
		errs = append(errs, fmt.Errorf("the announcer on %s: %w", cmp.Or(t.node, "that node"), err))
		if len(errs) == 3 {
			break // whatever it is, it is the same for the others
		}
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("no announcer runs on a node %q", node)
	}
	return nil, errors.Join(errs...)
}

// plan reads the page of the announcer on a node, of any if that is empty.
func (a *announcers) plan(ctx context.Context, node string) (status.Plan, error) {
	page, err := a.open(ctx, node)
	if err != nil {
		return status.Plan{}, err
	}
	return ask.Read(page)
}

// page returns what one announcer shows.
func (a *announcers) page(ctx context.Context, t target) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	url, done, err := a.way.reach(ctx, t)
	if err != nil {
		return nil, err
	}
	defer done()
	page, err := ask.Get(ctx, a.client, url)
	if err != nil {
		return nil, err
	}
	defer page.Close()
	return io.ReadAll(io.LimitReader(page, pageAtMost))
}

// heard is what an announcer said, or why it said nothing.
type heard struct {
	node string
	page []byte
	plan status.Plan
	err  error
}

// all asks every announcer. The answers are sorted by node.
func (a *announcers) all(ctx context.Context) []heard {
	var mu sync.Mutex
	var out []heard
	var g errgroup.Group
	g.SetLimit(askTogether)
	for _, t := range a.targets {
		g.Go(func() error {
			h := heard{node: t.node}
			if h.page, h.err = a.page(ctx, t); h.err == nil {
				h.plan, h.err = ask.Read(bytes.NewReader(h.page))
				h.node = cmp.Or(h.plan.World.Node, t.node)
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, h)
			return nil
		})
	}
	_ = g.Wait() // each says itself what is wrong
	slices.SortFunc(out, func(a, b heard) int { return cmp.Compare(a.node, b.node) })
	return out
}

// loopback is where a forwarded port can be reached.
func loopback(port uint16) string {
	return "http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
}
