package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// killTimeout bounds the wait for processes that were sent SIGKILL.
const killTimeout = 30 * time.Second

// Options say which lab Up makes.
type Options struct {
	Name  string    // of the lab, unique on the machine; default "lab"
	Nodes int       // 1 to MaxNodes; default 3
	Out   io.Writer // gets a line per step; nil means nobody does

	// Detach lets the lab live on when the caller ends. Otherwise its
	// processes are killed with the caller, however that ends.
	Detach bool

	// NodeLifecycle has every node renew its Lease once a second, and the
	// controller-manager declare a node NotReady that has not done so for
	// NodeGracePeriod. Otherwise Nodes stay Ready until somebody edits them.
	NodeLifecycle bool

	// Uninitialized creates Nodes as a kubelet with --cloud-provider=external
	// does: tainted, and with the provided-node-ip annotation.
	Uninitialized bool
}

// A Lab is a running cluster with its network. Its methods may be called from
// several goroutines.
type Lab struct {
	state state
	dir   string
	hosts []Host
	out   io.Writer

	spawner *spawner
	rest    *rest.Config
	client  *kubernetes.Clientset

	mu        sync.Mutex
	processes map[string]*Process
	closers   []io.Closer // what holds sockets in the namespaces
	choosing  sync.Mutex  // held while the addresses of a pod are chosen
	audited   lengths     // of the audit log
}

// Up makes a lab and returns when its API server, controller-manager and
// kube-proxies work and its Nodes exist. It first builds what is missing, which
// takes minutes the first time. What dead labs have left is removed; when a lab
// of the same name is alive, Up fails. When Up fails it leaves nothing.
func Up(ctx context.Context, o Options) (*Lab, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	binaries, err := Build(ctx, o.Out)
	if err != nil {
		return nil, err
	}
	l, err := replace(o, binaries)
	if err != nil {
		return nil, err
	}
	if err := l.up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", o.Name, err), l.Down())
	}
	return l, nil
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "lab"
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

func (o Options) check() error {
	if o.Nodes < 1 || o.Nodes > MaxNodes {
		return fmt.Errorf("a lab has 1 to %d nodes, not %d", MaxNodes, o.Nodes)
	}
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root: it makes network namespaces")
	}
	return checkName(o.Name)
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("lab name %q: want up to 32 lower-case letters, digits and dashes", name)
	}
	return nil
}

// replace makes the files of a new lab in place of those of a dead one.
func replace(o Options, binaries Binaries) (*Lab, error) {
	unlock, err := lockLabs()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweep(o.Name, o.Out); err != nil {
		return nil, err
	}
	return create(o, binaries)
}

// lockLabs lets one program at a time sweep and create, so that of two that
// want the same name one gets it.
func lockLabs() (unlock func(), err error) {
	if err := os.MkdirAll(StateDir, 0o755); err != nil {
		return nil, err
	}
	return lockFile(filepath.Join(StateDir, ".lock"))
}

// sweep removes what dead labs have left, whatever they were called. It fails
// only for the lab called name: when that is alive, or cannot be removed.
func sweep(name string, out io.Writer) error {
	names, err := Names()
	if err != nil {
		return err
	}
	for _, found := range names {
		err := removeDead(found)
		if err != nil && found == name {
			return err
		}
		if err != nil && !errors.Is(err, errAlive) {
			fmt.Fprintf(out, "lab %s has crashed, and what it left cannot be removed: %v\n", found, err)
		}
	}
	return nil
}

var errAlive = errors.New("it is alive")

func removeDead(name string) error {
	old, err := Attach(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its Up got no further than to make the directory
	}
	if err != nil {
		return err
	}
	if old.Alive() {
		return errors.Join(fmt.Errorf("lab %s is up already, and %w; `lab down --name %s` ends it", name, errAlive, name), old.Release())
	}
	return old.Down()
}

// Alive says whether somebody still uses the lab: the program that made it, or,
// when it was left to itself, its own processes. What is left of another one is
// removed by the next Up, whatever its name.
func (l *Lab) Alive() bool {
	if !l.state.Detached || !l.state.Up {
		return l.state.Owner.alive()
	}
	for _, p := range l.Processes() {
		if p.Own && p.Running() {
			return true
		}
	}
	return false
}

// create writes the state of a new lab.
func create(o Options, binaries Binaries) (*Lab, error) {
	owner, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	l := newLab(state{
		Name: o.Name, Nodes: o.Nodes, Detached: o.Detach, Owner: owner, Binaries: binaries,
		NodeLifecycle: o.NodeLifecycle, Uninitialized: o.Uninitialized,
	}, o.Out)
	if err := l.checkNamespaces(); err != nil {
		return nil, err
	}
	for _, dir := range []string{processesDir, logsDir, pkiDir} {
		if err := os.MkdirAll(filepath.Join(l.dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	return l, l.saveState()
}

func newLab(s state, out io.Writer) *Lab {
	return &Lab{
		state: s, dir: filepath.Join(StateDir, s.Name), hosts: planHosts(s.Name, s.Nodes), out: out,
		spawner: newSpawner(), processes: map[string]*Process{},
	}
}

// Attach takes a lab in hand that another program has made, with the processes
// that it has by now. The error is os.ErrNotExist when there is none called
// name. The caller ends it by Release or Down.
func Attach(name string) (*Lab, error) {
	s, err := readState(name)
	if err != nil {
		return nil, fmt.Errorf("attach to lab %s: %w", name, err)
	}
	l := newLab(s, io.Discard)
	if err := l.readProcesses(); err != nil {
		return nil, fmt.Errorf("attach to lab %s: %w", name, err)
	}
	if !s.Up {
		return l, nil
	}
	return l, l.connect()
}

// up brings a new lab up, step by step.
func (l *Lab) up(ctx context.Context) error {
	begin := time.Now()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{fmt.Sprintf("network: a switch, %d nodes, client, router", l.state.Nodes), l.buildNetwork},
		{"certificates and accounts", l.issueAccounts},
		{"etcd and kube-apiserver", l.startAPI},
		{"kube-controller-manager", l.startControllers},
		{"nodes", l.createNodes},
		{"kube-proxy on every node", l.startProxies},
	} {
		t := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(l.out, "lab %s: %s (%.1f s)\n", l.state.Name, step.name, time.Since(t).Seconds())
	}
	fmt.Fprintf(l.out, "lab %s: up after %.1f s\n", l.state.Name, time.Since(begin).Seconds())
	l.state.Up = true
	return l.saveState()
}

// Name returns the name of the lab.
func (l *Lab) Name() string { return l.state.Name }

// Dir returns a directory for files of the caller, which Down removes.
func (l *Lab) Dir() string { return l.dir }

// LogDir returns where the logs are: HOST.PROCESS.log and the audit log.
func (l *Lab) LogDir() string { return filepath.Join(l.dir, logsDir) }

// Down ends every process of the lab and removes its namespaces and files. It
// goes on past an error, and it may be called again.
func (l *Lab) Down() error {
	errs := []error{l.closeSockets()}
	for _, p := range l.Processes() {
		errs = append(errs, p.Kill())
	}
	for _, ns := range l.namespaces() {
		errs = append(errs, l.killAll(ns))
	}
	l.spawner.close()
	errs = append(errs, l.removeNetwork())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take lab %s down: %w", l.state.Name, err)
	}
	return os.RemoveAll(l.dir)
}

// Release lets go of a lab without ending it. What the caller has started in it
// ends, unless the lab is detached.
func (l *Lab) Release() error {
	l.spawner.close()
	return l.closeSockets()
}

func (l *Lab) closeSockets() error {
	l.mu.Lock()
	closers := l.closers
	l.closers = nil
	l.mu.Unlock()
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// onDown has c closed before the namespaces are removed.
func (l *Lab) onDown(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, c)
}
