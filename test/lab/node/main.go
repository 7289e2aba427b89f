// Command node stands in for what a real node runs beside kube-proxy. Called as
// `node pod` it is the program in a pod, and as `node heartbeat` the part of a
// kubelet that says that the node is alive. It has only the standard library,
// so that many can run at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("call it as `node pod` or `node heartbeat`")
	}
	switch args[0] {
	case "pod":
		return pod(ctx, args[1:])
	case "heartbeat":
		return heartbeat(ctx, args[1:])
	default:
		return fmt.Errorf("%q is neither pod nor heartbeat", args[0])
	}
}
