package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// progressInterval is how long a build may take before it says that it works.
const progressInterval = 10 * time.Second

// compile builds a target from a copy of the sources. cgo is off, so that the
// result does not depend on a C compiler, and so that all builds share one set
// of compiled packages.
func (t target) compile(ctx context.Context, source, binary string, out io.Writer) error {
	args := append([]string{"build", "-v", "-o", binary}, t.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.WaitDelay = time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := progress{name: t.name, begin: time.Now(), out: out}
	stop := p.report()
	words := p.follow(stderr)
	err = cmd.Wait()
	stop()
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, words)
	}
	fmt.Fprintf(out, "%s: built in %s\n", t.name, p.elapsed())
	return nil
}

// progress shows that a build is alive.
type progress struct {
	name     string
	begin    time.Time
	out      io.Writer
	compiled atomic.Int64 // packages
}

// follow reads what the go command says until its end: a line per package that
// it compiles, or a complaint. It returns the complaints.
func (p *progress) follow(stderr io.Reader) string {
	var complaints strings.Builder
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if line := lines.Text(); isPackage(line) {
			p.compiled.Add(1)
		} else {
			fmt.Fprintln(&complaints, line)
		}
	}
	return complaints.String()
}

// isPackage tells an import path from other words of the go command.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :\t") && !strings.HasPrefix(line, "#")
}

// report prints a line now and then until stop is called, which waits for its
// end.
func (p *progress) report() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				fmt.Fprintf(p.out, "%s: building from Go modules, %d packages compiled after %s (once, a quarter of an hour on two cores)\n",
					p.name, p.compiled.Load(), p.elapsed())
			}
		}
	}()
	return func() { close(quit); <-done }
}

func (p *progress) elapsed() time.Duration { return time.Since(p.begin).Round(time.Second) }
