package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const connectionHelp = `The cluster is found as kubectl finds it: --kubeconfig and --context, else
$KUBECONFIG, else ~/.kube/config, else the Pod that this runs in.`

// A connection is how a command reaches a cluster: as whoever runs it, not as
// the controller.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	namespace string // of our own objects
}

// set adds the flags of kubectl, as far as their names are free here:
// --namespace is that of our own objects, as it is for the controller.
func (c *connection) set(fs *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	fs.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "the kubeconfig file to use")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.LongName = ""
	names.ContextOverrideFlags.ClusterName.LongName = ""
	clientcmd.BindOverrideFlags(&c.overrides, fs, names)
	fs.StringVarP(&c.namespace, "namespace", "n", metav1.NamespaceSystem, "namespace of the ConfigMap ccm-baremetal")
}

// client returns a client that is as fast as a command may be.
func (c *connection) client() (kubernetes.Interface, error) {
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

// inForce returns the document in force: that of a file, if one is named, else
// the accepted one; nil if there is none.
func inForce(ctx context.Context, client kubernetes.Interface, namespace, file string) (*config.Config, error) {
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
