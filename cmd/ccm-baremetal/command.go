package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloud "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	controllerapp "k8s.io/controller-manager/app"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/version"
)

// leaseName is not the framework's default: another cloud controller manager
// in the cluster must not take us for one of its own replicas.
const leaseName = "ccm-baremetal"

// flags are our own, besides the framework's.
type flags struct {
	namespace   string
	observeOnly bool
}

func (f *flags) set() *pflag.FlagSet {
	fs := pflag.NewFlagSet("baremetal", pflag.ContinueOnError)
	fs.StringVar(&f.namespace, "namespace", metav1.NamespaceSystem,
		"Namespace of the ConfigMaps ccm-baremetal and ccm-baremetal-accepted, of the Secret ccm-baremetal-gossip and, unless "+
			"--leader-elect-resource-namespace says otherwise, of the Lease ccm-baremetal.")
	fs.BoolVar(&f.observeOnly, "observe-only", false,
		"Decide, and say in the log and in ccm_baremetal_withheld_writes_total what would be written, but write nothing and take part in no election of a leader: "+
			"to rehearse a take-over beside the controller that is in charge.")
	return fs
}

// newCommand returns the whole command line. The controller manager ends with ctx.
func newCommand(ctx context.Context) (*cobra.Command, error) {
	o, err := newOptions()
	if err != nil {
		return nil, fmt.Errorf("set the defaults of the framework: %w", err)
	}
	f := &flags{}
	controllers := cloudprovider.Controllers()
	initialize := func(c *appconfig.CompletedConfig) cloud.Interface {
		// By now --controllers has been checked against all of them.
		maps.DeleteFunc(controllers, cloudprovider.Disabled(c))
		return cloudprovider.New(c, cloudprovider.Options{Namespace: f.namespace, ObserveOnly: f.observeOnly})
	}
	cmd := app.NewCloudControllerManagerCommand(o, initialize, controllers, cloudprovider.Aliases(),
		cliflag.NamedFlagSets{}, ctx.Done())
	own := f.set()
	cmd.Flags().AddFlagSet(own)
	manage := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("version") {
			fmt.Fprintln(cmd.OutOrStdout(), "ccm-baremetal", version.String())
			return nil
		}
		if err := prepare(cmd, o, f); err != nil {
			return err
		}
		return manage(cmd, args)
	}
	looking := inspect.Options{Program: "ccm-baremetal", Cluster: func() inspect.Cluster { return &inspect.Connection{} }}
	cmd.AddCommand(inspect.NewCheckConfigCommand(looking), inspect.NewAllocationsCommand(looking), inspect.NewImportCommand(looking), newCleanupCommand())
	describe(cmd, own)
	return cmd, nil
}

// newOptions returns the framework's options with our defaults, which the
// command line may change.
func newOptions() (*options.CloudControllerManagerOptions, error) {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	o.KubeCloudShared.CloudProvider.Name = cloudprovider.Name
	o.Generic.LeaderElection.ResourceName = leaseName
	// A burst of Services is written within two seconds.
	o.Generic.ClientConnection.QPS = 100
	o.Generic.ClientConnection.Burst = 200
	o.ServiceController.ConcurrentServiceSyncs = 8
	// A thousand Nodes that join at once are initialized within a minute.
	o.NodeController.ConcurrentNodeSyncs = 8
	// Who asks for /metrics presents a token, which the API server reviews.
	// Client certificates would need the right to read another ConfigMap.
	o.Authentication.SkipInClusterLookup = true
	return o, nil
}

// prepare checks the command line, and fills in what follows from it.
func prepare(cmd *cobra.Command, o *options.CloudControllerManagerOptions, f *flags) error {
	if err := checkProvider(o.KubeCloudShared.CloudProvider.Name); err != nil {
		return err
	}
	if err := checkControllers(o.Generic.Controllers); err != nil {
		return err
	}
	if file := o.KubeCloudShared.CloudProvider.CloudConfigFile; file != "" {
		if err := checkFile(file); err != nil {
			return err
		}
	}
	if !cmd.Flags().Changed("leader-elect-resource-namespace") {
		o.Generic.LeaderElection.ResourceNamespace = f.namespace
	}
	if f.observeOnly {
		o.Generic.LeaderElection.LeaderElect = false // who observes disputes the Lease with nobody
	}
	// Outside of a cluster the one kubeconfig serves for reviews too.
	for _, file := range []*string{&o.Authentication.RemoteKubeConfigFile, &o.Authorization.RemoteKubeConfigFile} {
		if *file == "" {
			*file = o.Generic.ClientConnection.Kubeconfig
		}
	}
	return nil
}

func checkProvider(name string) error {
	switch {
	case name == cloudprovider.Name:
		return nil
	case cloud.IsExternal(name):
		return errors.New("--cloud-provider=external is for the kubelet: it says that a cloud controller manager runs somewhere; " +
			"this is that cloud controller manager, so leave the flag out here")
	}
	return fmt.Errorf("--cloud-provider=%s: the only provider here is %s, which is the default", name, cloudprovider.Name)
}

// checkControllers refuses to run controllers without the one that reads the
// document: they would wait for it for ever.
func checkControllers(wanted []string) error {
	if controllerapp.IsControllerEnabled(document.ControllerName, app.ControllersDisabledByDefault, wanted) {
		return nil
	}
	return fmt.Errorf("--controllers=%s: without %s nobody reads the configuration, and all others wait for it: add it", strings.Join(wanted, ","), document.ControllerName)
}

// checkFile refuses to start with a document that cannot be used: unlike a
// running process, one that starts has no last good document.
func checkFile(path string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read --cloud-config: %w", err)
	}
	if _, err := config.Load(document); err != nil {
		return fmt.Errorf("--cloud-config %s:\n%w", path, err)
	}
	return nil
}
