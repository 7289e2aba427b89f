// Command controlplane is the Kubernetes control plane of the lab in one
// binary: which program it is follows from the name it is called by, as in
// busybox. One binary shares most of the compile and link work, and so much of
// the disk, that five separate ones would repeat.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	case "kube-apiserver":
		run(kubeapiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(kubecontrollermanager.NewControllerManagerCommand())
	case "kube-proxy":
		run(kubeproxy.NewProxyCommand())
	default:
		fmt.Fprintf(os.Stderr, "controlplane: called as %q; call it as etcd, kube-apiserver, kube-controller-manager, kube-proxy or kubectl\n", name)
		os.Exit(2)
	}
}

func run(cmd *cobra.Command) {
	os.Exit(cli.Run(cmd))
}
