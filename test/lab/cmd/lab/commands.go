package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
)

const about = `Lab runs a real Kubernetes cluster on this machine, without containers: etcd,
kube-apiserver, kube-controller-manager and one kube-proxy per node are
processes in network namespaces, which a bridge joins to a LAN.

  cp           control plane    198.51.100.5
  r1           router           198.51.100.1    everybody's default route
  c1           client           198.51.100.200
  n1, n2, ...  nodes            198.51.100.11, .12, ...   pods 10.244.1.0/24, ...

A first round:

  lab up --nodes 3
  lab kubectl get nodes -o wide
  lab exec c1 -- ping -c 3 198.51.100.11
  lab cut n1                  pull its plug out of the switch
  lab heal n1
  lab down

The first "up" builds the control plane from its Go modules, which takes a
quarter of an hour on two cores; every later one takes seconds. A lab needs
root and touches nothing of the machine but its own namespaces, called
NAME-HOST, and its files in ` + lab.StateDir + `/NAME.`

// command is what all subcommands share.
type command struct {
	name string // of the lab
}

func newCommand() *cobra.Command {
	c := &command{}
	root := &cobra.Command{
		Use: "lab", Short: "A Kubernetes cluster in network namespaces", Long: about,
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage: true, SilenceErrors: true,
		TraverseChildren:  true, // so that --name goes before kubectl, which has its own flags
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().StringVar(&c.name, "name", "lab", "which lab: several can be up at the same time")
	root.AddCommand(c.up(), c.down(), c.status(), c.exec(), c.kubectl(), c.logs(), c.cut(), c.heal(), build())
	return root
}

func (c *command) up() *cobra.Command {
	var o lab.Options
	cmd := &cobra.Command{
		Use: "up", Short: "Make a lab and leave it running", Args: cobra.NoArgs,
		Long: `Up makes a lab and leaves it running until "lab down". What a lab that has
crashed has left behind is removed first. Each step is told on standard error.`,
		Example: "  lab up --nodes 5\n  lab up --name second --nodes 2 --node-lifecycle",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Name, o.Out, o.Detach = c.name, cmd.ErrOrStderr(), true
			l, err := lab.Up(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "use it by `lab exec HOST -- COMMAND` and `lab kubectl ...`, end it by `lab down`; logs are in %s\n", l.LogDir())
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Nodes, "nodes", 3, fmt.Sprintf("how many nodes, 1 to %d", lab.MaxNodes))
	flags.BoolVar(&o.NodeLifecycle, "node-lifecycle", false, "let nodes send heartbeats, and become NotReady without them")
	flags.BoolVar(&o.Uninitialized, "uninitialized", false, "create Nodes as kubelets with an external cloud provider do: tainted until a cloud-controller-manager has initialised them")
	return cmd
}

func (c *command) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End a lab and remove everything of it", Args: cobra.NoArgs,
		Long: `Down ends what "lab up" has started, and all that runs in the lab's namespaces,
and removes the namespaces and the files. It also does so for a lab that has
crashed, and does nothing when there is none.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Attach(c.name)
			if errors.Is(err, os.ErrNotExist) {
				fmt.Fprintf(cmd.ErrOrStderr(), "there is no lab %s\n", c.name)
				return nil
			}
			if err != nil {
				return err
			}
			return l.Down()
		},
	}
}

func (c *command) exec() *cobra.Command {
	return &cobra.Command{
		Use: "exec HOST -- COMMAND...", Short: "Run a command on a host of the lab", Args: cobra.MinimumNArgs(2),
		Long: `Exec runs a command in the network namespace of a host: cp, r1, c1, n1, n2, ...
It finds kubectl on its PATH, and a kubeconfig with all rights.`,
		Example: "  lab exec c1 -- curl -s http://198.51.100.100/\n  lab exec n2 -- nft list table inet kube-proxy\n  lab exec r1 -- bash",
		RunE: func(_ *cobra.Command, args []string) error {
			return c.become(args[0], args[1:])
		},
	}
}

func (c *command) kubectl() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl ARGUMENTS...", Short: "Run kubectl as administrator of the lab",
		Long:               "Kubectl runs kubectl, of the lab's own version, on the control plane host.\nThe name of the lab goes before it: lab --name NAME kubectl ...",
		Example:            "  lab kubectl get services -A -o wide\n  lab --name second kubectl apply -f service.yaml",
		DisableFlagParsing: true, // the flags are those of kubectl
		RunE: func(_ *cobra.Command, args []string) error {
			return c.become(lab.ControlPlane, append([]string{"kubectl"}, args...))
		},
	}
}

// become turns this process into a command on a host, so that signals, the
// terminal and the exit code are those of the command.
func (c *command) become(host string, argv []string) error {
	l, err := lab.Attach(c.name)
	if err != nil {
		return err
	}
	if _, err := l.Host(host); err != nil {
		return err
	}
	cmd := l.Command(host, argv...)
	if cmd.Err != nil {
		return cmd.Err
	}
	return fmt.Errorf("exec %s: %w", cmd.Path, syscall.Exec(cmd.Path, cmd.Args, cmd.Environ()))
}

func (c *command) cut() *cobra.Command {
	return &cobra.Command{
		Use: "cut HOST...", Short: "Pull hosts' plugs out of the switch", Args: cobra.MinimumNArgs(1),
		Long: "Cut takes hosts off the LAN; they see that their link has no carrier.",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(c.name)
			if err != nil {
				return err
			}
			return l.Cut(cmd.Context(), args...)
		},
	}
}

func (c *command) heal() *cobra.Command {
	return &cobra.Command{
		Use: "heal HOST...", Short: "Undo every cut of hosts", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(c.name)
			if err != nil {
				return err
			}
			return l.Heal(cmd.Context(), args...)
		},
	}
}

func (c *command) logs() *cobra.Command {
	return &cobra.Command{
		Use: "logs HOST PROCESS", Short: "Print what a process has printed", Args: cobra.ExactArgs(2),
		Long: `Logs prints the log of a process; "lab status" lists them.`, Example: "  lab logs cp kube-apiserver\n  lab logs n1 kube-proxy",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Attach(c.name)
			if err != nil {
				return err
			}
			p, ok := l.Process(args[0], args[1])
			if !ok {
				return fmt.Errorf("no %s was started on %s", args[1], args[0])
			}
			_, err = io.WriteString(cmd.OutOrStdout(), p.Log())
			return err
		},
	}
}

func (c *command) status() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the labs of this machine, their hosts and processes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := lab.Names()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no lab is up")
			}
			for _, name := range names {
				if err := show(cmd.OutOrStdout(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func show(out io.Writer, name string) error {
	l, err := lab.Attach(name)
	if err != nil {
		return err
	}
	defer l.Release()
	if !l.Alive() {
		fmt.Fprintf(out, "lab %s has crashed; `lab down --name %s`, or the next `lab up`, removes what is left\n", name, name)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "lab %s\n  HOST\tIPV4\tIPV6\tMAC\tNAMESPACE\n", name)
	for _, h := range l.Hosts() {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", h.Name, h.IPv4, h.IPv6, h.MAC, h.Namespace)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "  HOST\tPROCESS\tID\tSTATE\tLOG\n")
	for _, p := range l.Processes() {
		state := "ended"
		if p.Running() {
			state = "running"
		}
		fmt.Fprintf(w, "  %s\t%s\t%d\t%s\t%s\n", p.Host, p.Name, p.PID, state, p.LogPath)
	}
	return w.Flush()
}

func build() *cobra.Command {
	return &cobra.Command{
		Use: "build", Short: "Build what a lab runs, without making one", Args: cobra.NoArgs,
		Long: `Build makes the programs that a lab runs, unless that was done before: the
control plane of Kubernetes ` + lab.Version + `, from its Go modules, which takes a quarter of an
hour on two cores. It is kept in the user's cache directory. A control plane of
the same minor version in KUBEBUILDER_ASSETS or on PATH is used instead. "lab up"
does the same when needed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			binaries, err := lab.Build(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			for _, name := range binaries.Names() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", binaries[name])
			}
			return nil
		},
	}
}
