package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// A Process is a program that the lab runs on one of its hosts. It may have
// been started by another program that holds the same lab.
type Process struct {
	Host string `json:"host"`
	Name string `json:"name"`
	processID

	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"` // beside the environment of the starter

	// Own marks what the lab itself runs: control plane, kube-proxy, pods.
	Own bool `json:"own,omitempty"`

	// LogPath is the file that gets what the process prints. A process that is
	// started again appends to it.
	LogPath string `json:"log"`

	child *child // nil when another program started it
}

// child is what only the parent of a process knows.
type child struct {
	exited chan struct{}
	err    error // of exec.Cmd.Wait; valid once exited is closed
}

// file is the name of the process' files, without ending; it also tells the
// processes of a lab apart.
func (p *Process) file() string { return p.Host + "." + p.Name }

// Running says whether the process has not ended yet. A paused one runs.
func (p *Process) Running() bool { return p.alive() }

// Signal sends sig. It returns os.ErrProcessDone when the process has ended,
// also when its number belongs to another one by now.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.signal(sig); err != nil {
		return fmt.Errorf("send %v to %s on %s: %w", sig, p.Name, p.Host, err)
	}
	return nil
}

// Pause stops the process in its tracks, as a machine that stalls would.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the process at once and waits until it is gone. To kill what has
// ended is no error.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return p.waitGone(ctx)
}

// Stop asks the process to end by SIGTERM and waits for its end, at most until
// ctx is done; then it is killed, and Stop says so. It returns the error with
// which the process ended, as far as the caller is its parent.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := p.Wait(ctx)
	if ctx.Err() != nil && p.Running() {
		return errors.Join(fmt.Errorf("%s on %s did not end by SIGTERM and was killed", p.Name, p.Host), p.Kill())
	}
	return err
}

// Wait waits for the end of the process. The error is that of exec.Cmd.Wait
// when the caller is the parent of the process, else nil.
func (p *Process) Wait(ctx context.Context) error {
	if err := p.waitGone(ctx); err != nil {
		return err
	}
	if p.child != nil && p.child.err != nil {
		return fmt.Errorf("%s on %s: %w", p.Name, p.Host, p.child.err)
	}
	return nil
}

func (p *Process) waitGone(ctx context.Context) error {
	if p.child != nil {
		select {
		case <-p.child.exited:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of %s on %s: %w", p.Name, p.Host, ctx.Err())
		}
	}
	return poll(ctx, "the end of "+p.Name+" on "+p.Host, func() (bool, error) { return !p.Running(), nil })
}

// Log returns everything that the process has printed so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.LogPath)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return string(b)
}

// WaitLog waits until the process has printed text. It gives up when the
// process ends.
func (p *Process) WaitLog(ctx context.Context, text string) error {
	return poll(ctx, fmt.Sprintf("%q in the log of %s on %s", text, p.Name, p.Host), func() (bool, error) {
		running := p.Running()
		if strings.Contains(p.Log(), text) {
			return true, nil
		}
		if !running {
			return false, fmt.Errorf("%s on %s has ended; its last words:\n%s", p.Name, p.Host, tail(p.Log(), 20))
		}
		return false, nil
	})
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// poll asks done until it says so, fails, or ctx ends; what is for the error.
func poll(ctx context.Context, what string, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// Usage is what a process has used.
type Usage struct {
	CPU    time.Duration // since its start
	Memory uint64        // resident bytes now
}

// Usage reads what the process has used of the machine until now.
func (p *Process) Usage() (Usage, error) {
	if !p.Running() {
		return Usage{}, fmt.Errorf("usage of %s on %s: %w", p.Name, p.Host, os.ErrProcessDone)
	}
	return p.usage()
}
