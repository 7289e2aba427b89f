// Command ccm-baremetal is a cloud controller manager for clusters on bare
// metal: it gives Services of type LoadBalancer addresses out of pools.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the API client
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the build

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ccm-baremetal:", err)
	}
	os.Exit(inspect.ExitCode(err))
}

// run executes the command line until it is done or ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd, err := newCommand(ctx)
	if err != nil {
		return err
	}
	cmd.SetContext(ctx)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cli.RunNoErrOutput(cmd)
}
