// Command demo shows ccm-baremetal at work: a real control plane, hosts in
// network namespaces, an ordinary Service, a dead node, a planned stop. It ends
// non-zero when any step failed, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	begin := time.Now()
	l, err := lab.Up(ctx, lab.Options{Name: "demo", Nodes: 4, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("\n==> cleaning up: processes, namespaces, files")
		err = errors.Join(err, l.Down())
		if err == nil {
			fmt.Printf("==> done, everything worked (%.0f s, builds included)\n", time.Since(begin).Seconds())
		}
	}()
	if err := newStory(l).tell(ctx); err != nil {
		lastWords(l)
		return err
	}
	return nil
}

// lastWords prints the ends of the product's logs, which are gone with the lab.
func lastWords(l *lab.Lab) {
	for _, p := range l.Processes() {
		if p.Own {
			continue
		}
		lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
		fmt.Printf("\n--- %s on %s, the end of its log:\n%s\n", p.Name, p.Host, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
}
