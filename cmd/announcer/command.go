package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/ask"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/version"
)

// options are the flags. Changing the name of one is an API change.
type options struct {
	node               string
	kubeconfig         string
	configFile         string
	namespace          string
	frrK8sNamespace    string
	insecureMembership bool
	record             string
	observeOnly        bool
	frrDir             string
	bindAddress        string
	metricsPort        uint16
	debugAddress       string
	logLevel           slog.Level
	logFormat          string
}

func (o *options) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "name of the Node that this announcer runs on; default: the environment variable NODE_NAME")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; default: as a pod")
	fs.StringVar(&o.configFile, "cloud-config", "", "read the configuration from this `file`, and again when it changes; default: from the ConfigMap ccm-baremetal-accepted")
	fs.StringVar(&o.namespace, "namespace", "kube-system", "namespace of that ConfigMap and of the Secret ccm-baremetal-gossip")
	fs.StringVar(&o.frrK8sNamespace, "frr-k8s-namespace", "frr-k8s-system", "namespace of frr-k8s, for the configuration's bgp.backend: frr-k8s")
	fs.BoolVar(&o.insecureMembership, "insecure-membership", false, "gossip in clear text, so that whoever reaches the gossip port can take addresses away")
	fs.StringVar(&o.record, "record", "", "`file` on the host in which the node remembers its starts, stops and deaths, so that one that comes and goes does not take addresses with it each time; default: it remembers nothing over a restart")
	fs.BoolVar(&o.observeOnly, "observe-only", false, "decide among the announcers that observe as well, and say in the log, on /debug/plan and by explain what would be announced, but announce nothing, write nothing and remember nothing")
	fs.StringVar(&o.frrDir, "frr-dir", "/run/ccm-baremetal/frr", "`directory` that is shared with FRR, for bgp.backend: frr; it need not be there with other backends")
	fs.StringVar(&o.bindAddress, "bind-address", "", "`address` for health and metrics; default: all")
	fs.Uint16Var(&o.metricsPort, "metrics-port", 7957, "port for /healthz, /readyz and /metrics")
	fs.StringVar(&o.debugAddress, "debug-address", "127.0.0.1:7958", "`address` and port for /debug/plan and /debug/pprof, which tell much about the cluster")
	fs.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	fs.StringVar(&o.logFormat, "log-format", "text", "text or json")
}

// check reports all that is wrong with the flags.
func (o *options) check() error {
	var errs []error
	if o.node == "" {
		errs = append(errs, errors.New("the name of the Node is missing: set NODE_NAME from spec.nodeName, or --node-name"))
	}
	if _, _, err := net.SplitHostPort(o.debugAddress); err != nil {
		errs = append(errs, fmt.Errorf("--debug-address: %w", err))
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		errs = append(errs, fmt.Errorf("--log-format is text or json, not %q", o.logFormat))
	}
	return errors.Join(errs...)
}

func (o *options) publicAddress() string {
	return net.JoinHostPort(o.bindAddress, strconv.Itoa(int(o.metricsPort)))
}

// recordFile is where the node remembers its past. An observer has none of its
// own, and leaves the node's alone.
func (o *options) recordFile() string {
	if o.observeOnly {
		return ""
	}
	return o.record
}

// gossipLabel keeps observers apart from those that announce.
func (o *options) gossipLabel() string {
	if o.observeOnly {
		return observersLabel
	}
	return ""
}

func (o *options) logger(w io.Writer) *slog.Logger {
	handle := &slog.HandlerOptions{Level: o.logLevel}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, handle))
	}
	return slog.New(slog.NewTextHandler(w, handle))
}

// newCommand returns the whole command line.
func newCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "announcer",
		Short:         "Announce the addresses of Services from this node",
		Long:          help,
		Example:       examples,
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true, // it would hide the error
		SilenceErrors: true, // main prints it
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return serve(cmd.Context(), *o, o.logger(cmd.ErrOrStderr()))
		},
	}
	o.add(cmd.Flags())
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	})
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(ask.Commands(ask.Options{
		Program: "announcer",
		Asked:   "the announcer on this node, or the one at --server, or a saved page (--file)",
		Pages:   func() ask.Pages { return &ask.Server{} },
	})...)
	return cmd
}
