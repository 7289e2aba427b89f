package inspect

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ConnectionHelp says how the cluster is found.
const ConnectionHelp = `The cluster is found as kubectl finds it: --kubeconfig and --context, else
$KUBECONFIG, else ~/.kube/config, else the Pod that this runs in.`

// Options is what the commands of two programs differ in.
type Options struct {
	Program string // the command line without the command: ccm-baremetal

	// Cluster makes, for one command, what reaches the cluster.
	Cluster func() Cluster
}

// worded returns a text for a program.
func (o Options) worded(text string) string { return strings.ReplaceAll(text, "PROGRAM", o.Program) }

// A Cluster is how a command reaches a cluster.
type Cluster interface {
	// AddFlags adds the flags that say which cluster it is.
	AddFlags(fs *pflag.FlagSet)

	// Client returns a client. It does not connect.
	Client() (kubernetes.Interface, error)

	// Namespace is where our own objects are.
	Namespace() string
}

// A Connection is how a command reaches a cluster: as whoever runs it, not as
// the controller.
type Connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	namespace string // of our own objects
}

// AddFlags adds the flags of kubectl, as far as their names are free here:
// --namespace is that of our own objects, as it is for the controller.
func (c *Connection) AddFlags(fs *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	fs.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "the kubeconfig file to use")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.LongName = ""
	names.ContextOverrideFlags.ClusterName.LongName = ""
	clientcmd.BindOverrideFlags(&c.overrides, fs, names)
	fs.StringVarP(&c.namespace, "namespace", "n", metav1.NamespaceSystem, "namespace of the ConfigMap ccm-baremetal")
}

// Namespace is where our own objects are.
func (c *Connection) Namespace() string { return c.namespace }

// Client returns a client that is as fast as a command may be.
func (c *Connection) Client() (kubernetes.Interface, error) {
	rest, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	rest.QPS, rest.Burst = 50, 100
	rest.UserAgent = "ccm-baremetal-command"
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return client, nil
}

// InForce returns the document in force: that of a file, if one is named, else
// the accepted one; nil if there is none.
func InForce(ctx context.Context, client kubernetes.Interface, namespace, file string) (*config.Config, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read --cloud-config: %w", err)
		}
		return loaded(text, file)
	}
	name := document.AcceptedConfigMap
	m, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get configmap %s/%s: %w", namespace, name, err)
	}
	return loaded([]byte(m.Data[config.ConfigMapKey]), "configmap "+namespace+"/"+name)
}

func loaded(text []byte, where string) (*config.Config, error) {
	c, err := config.Load(text)
	if err != nil {
		return nil, fmt.Errorf("read the document in force out of %s: %w", where, err)
	}
	return &c, nil
}
