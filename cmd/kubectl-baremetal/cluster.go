package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/ask"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
)

// cluster is how the commands reach a cluster: by the flags of kubectl.
type cluster struct {
	flags        *genericclioptions.ConfigFlags
	installed    string // namespace of our own objects
	announcerURL string // empty: through the API server
}

var _ inspect.Cluster = (*cluster)(nil)

func newCluster() *cluster { return &cluster{flags: genericclioptions.NewConfigFlags(true)} }

func (c *cluster) addFlags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&c.installed, "install-namespace", "kube-system", "namespace in which ccm-baremetal is installed")
	fs.StringVar(&c.announcerURL, "announcer-url", "", "reach the debug pages of announcers at this `URL` instead of by port-forward; {node} in it stands for the name of a Node, {address} for its address")
	c.flags.AddFlags(fs)
}

// AddFlags adds nothing: the flags are those of every command.
func (c *cluster) AddFlags(*pflag.FlagSet) {}

// Namespace is where our own objects are.
func (c *cluster) Namespace() string { return c.installed }

// Client returns a client that is as fast as a command may be.
func (c *cluster) Client() (kubernetes.Interface, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return client, nil
}

// allocations reads pools and who has their addresses.
func (c *cluster) allocations(ctx context.Context) (kubernetes.Interface, inspect.Allocations, error) {
	client, err := c.Client()
	if err != nil {
		return nil, inspect.Allocations{}, err
	}
	a, err := readAllocations(ctx, client, c.installed)
	return client, a, err
}

// readAllocations goes by the document in force. In a rehearsal, where none is
// written down as such, it goes by the one that is offered.
func readAllocations(ctx context.Context, client kubernetes.Interface, namespace string) (inspect.Allocations, error) {
	a, err := inspect.ReadAllocations(ctx, client, namespace, "")
	if !errors.Is(err, inspect.ErrNotInForce) {
		return a, err
	}
	offered, otherwise := inspect.ReadOffered(ctx, client, namespace)
	if otherwise != nil {
		return a, errors.Join(err, otherwise)
	}
	offered.Hash += " (offered, and no controller has accepted it)"
	return offered, nil
}

func (c *cluster) config() (*rest.Config, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	config.ContentType = runtime.ContentTypeJSON // what is asked for is little, and can be read in a trace
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.UserAgent = "kubectl-baremetal"
	return config, nil
}

// selected returns the namespace that -n names; empty: all.
func (c *cluster) selected() string {
	if c.flags.Namespace == nil {
		return ""
	}
	return *c.flags.Namespace
}

// pages are the pages of the announcers of a cluster, and saved ones.
type pages struct {
	cluster    *cluster
	node, file string
}

// AddFlags adds --node and --file.
func (p *pages) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.node, "node", "", "ask the announcer on this `node`; default: the first that answers")
	fs.StringVar(&p.file, "file", "", "look at a saved /debug/plan instead; - is the standard input")
}

// Open returns the page that the flags name.
func (p *pages) Open(ctx context.Context, stdin io.Reader) (io.ReadCloser, error) {
	if p.file != "" {
		return ask.OpenFile(p.file, stdin)
	}
	a, err := p.cluster.announcers(ctx)
	if err != nil {
		return nil, err
	}
	return a.open(ctx, p.node)
}
