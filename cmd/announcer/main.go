// Command announcer makes the network send the traffic for addresses of
// Services to this node: of all nodes, exactly one answers ARP or NDP for each address.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "announcer:", err)
		os.Exit(1)
	}
}

// run executes the command line until it is done or ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.ExecuteContext(ctx)
}
