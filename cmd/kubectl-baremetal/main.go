// Command kubectl-baremetal is a plugin of kubectl: what people on call need to
// see what ccm-baremetal and its announcers do, and to take a node out of
// service. It uses the rights of whoever runs it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubectl baremetal:", err)
	}
	os.Exit(inspect.ExitCode(err))
}

// run executes the command line until it is done or ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.ExecuteContext(ctx)
}
