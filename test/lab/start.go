package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
)

// Start runs argv on a host, under a name that is unique there, with env added
// to the caller's own environment. What it prints goes to a log file. It is
// ended by Down, and it does not survive the caller either, unless the lab is
// detached.
func (l *Lab) Start(host, name string, argv, env []string) (*Process, error) {
	return l.start(&Process{Host: host, Name: name, Argv: argv, Env: env})
}

// startOwn is Start for what belongs to the lab itself.
func (l *Lab) startOwn(host, name string, argv ...string) (*Process, error) {
	return l.start(&Process{Host: host, Name: name, Argv: argv, Own: true})
}

// Restart starts a process that has ended again, as it was started before.
func (l *Lab) Restart(p *Process) (*Process, error) {
	return l.start(&Process{Host: p.Host, Name: p.Name, Argv: p.Argv, Env: p.Env, Own: p.Own})
}

func (l *Lab) start(p *Process) (*Process, error) {
	h, err := l.Host(p.Host)
	if err != nil {
		return nil, err
	}
	p.LogPath = filepath.Join(l.LogDir(), p.file()+".log")
	// The spawner does one after the other, so a name is given once.
	err = l.spawner.do(func() error {
		if old, ok := l.Process(p.Host, p.Name); ok && old.Running() {
			return fmt.Errorf("it runs already, as process %d", old.PID)
		}
		if err := p.spawn(h.Namespace, l.state.Detached); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.processes[p.file()] = p
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", p.Name, p.Host, err)
	}
	if err := writeJSON(l.recordOf(p), p); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// Process returns the process that was last started on host under name.
func (l *Lab) Process(host, name string) (*Process, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.processes[(&Process{Host: host, Name: name}).file()]
	return p, ok
}

// Processes returns what was started, ended ones included, sorted by host and
// name.
func (l *Lab) Processes() []*Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.processes), func(a, b *Process) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Name, b.Name))
	})
}

// killOwn ends a process of the lab itself, which may be started again.
func (l *Lab) killOwn(host, name string) error {
	p, ok := l.Process(host, name)
	if !ok {
		return fmt.Errorf("%s was never started on %s", name, host)
	}
	return p.Kill()
}

// endOwn ends a process of the lab itself for good.
func (l *Lab) endOwn(host, name string) error {
	p, ok := l.Process(host, name)
	if !ok {
		return nil
	}
	if err := p.Kill(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.processes, p.file())
	return os.Remove(l.recordOf(p))
}

// recordOf is the file from which other programs know of a process.
func (l *Lab) recordOf(p *Process) string {
	return filepath.Join(l.dir, processesDir, p.file()+".json")
}

// spawn must run on the thread of a spawner: the kernel ends the process with
// the thread that started it.
func (p *Process) spawn(namespace string, detached bool) error {
	log, err := os.OpenFile(p.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd := inNamespace(context.Background(), namespace, p.Argv)
	cmd.Env = append(environment(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !detached {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	// `ip` enters the namespace by itself, but only some time after Start. Who
	// ends everything in the namespace must find the process before that.
	if err := netns.Do(namespace, cmd.Start); err != nil {
		return err
	}
	c := &child{exited: make(chan struct{})}
	p.child = c
	p.processID, err = identify(cmd.Process.Pid)
	go func() {
		c.err = cmd.Wait()
		close(c.exited)
	}()
	return err
}

// inNamespace gives programs their own /sys as well, which shows the links of
// the namespace; the process keeps its id when `ip` turns into it.
func inNamespace(ctx context.Context, namespace string, argv []string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", namespace}, argv...)...)
}

// Command prepares a program to be run on a host by the caller, who starts it
// and waits for it.
func (l *Lab) Command(host string, argv ...string) *exec.Cmd {
	return l.command(context.Background(), host, argv)
}

func (l *Lab) command(ctx context.Context, host string, argv []string) *exec.Cmd {
	cmd := inNamespace(ctx, l.namespace(host), argv)
	cmd.Env = l.environment()
	return cmd
}

// Run runs a program on a host to its end and returns what it printed, its
// standard error included.
func (l *Lab) Run(ctx context.Context, host string, argv ...string) (string, error) {
	out, err := l.command(ctx, host, argv).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s on %s: %w: %s", strings.Join(argv, " "), host, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// environment is the caller's own, without the proxy it may use on its way to
// the Internet, which nobody in a lab reaches.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}, strings.ToUpper(name))
	})
}

// environment has the control plane's programs, kubectl among them, before
// others on its path, and gives them all rights.
func (l *Lab) environment() []string {
	return append(environment(), "KUBECONFIG="+l.AdminKubeconfig(), "PATH="+l.state.Binaries.dir()+":"+os.Getenv("PATH"))
}
