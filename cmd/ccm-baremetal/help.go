package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const intro = `ccm-baremetal makes bare metal behave like a cloud provider: it gives every
Service of type LoadBalancer an address out of a pool, writes it into the
Service's status, and says in the condition ccm-baremetal.io/Allocated why, or
why not. The announcer, a DaemonSet, then answers for the addresses.

Nodes whose kubelet runs with --cloud-provider=external get their providerID,
addresses and labels; the others are left alone. For load balancers only:
--controllers=configuration-controller,gossip-key-controller,service-lb-controller
and for Nodes only: --controllers=*,-service-lb-controller,-gossip-key-controller

Configuration is one document. It is read from the key config.yaml of the
ConfigMap ccm-baremetal, and again whenever that changes. A document that is
wrong, or that would take away, move or silence more than a fifth of the addresses
in use, and more than five, is refused: an event on the ConfigMap says why, and
the last good one stays in force. The smallest useful document:

%s
With --cloud-config FILE the document is read from a file instead.

Of several replicas one works; the Lease ccm-baremetal says which. Health,
metrics and profiles are served by HTTPS on port 10258 (--secure-port), all but
health to authorized users only. /healthz fails while there is no
configuration, which is right for readiness but no reason for a restart, so a
liveness probe asks for /healthz?exclude=configuration-controller.

Examples:
  # in a cluster, configured by the ConfigMap
  ccm-baremetal

  # outside of a cluster, configured by a file
  ccm-baremetal --kubeconfig admin.conf --cloud-config config.yaml

  # what is wrong with a document, without a cluster
  ccm-baremetal check-config config.yaml
`

// describe makes the help show what is ours first, and the framework's many
// flags after that.
func describe(cmd *cobra.Command, own *pflag.FlagSet) {
	cmd.Use = "ccm-baremetal"
	cmd.Short = "Cloud controller manager for bare metal"
	cmd.SilenceUsage = true // two hundred lines would hide the error
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	})
	plain := (&cobra.Command{}).HelpFunc()
	plainUsage := (&cobra.Command{}).UsageFunc()
	for _, sub := range cmd.Commands() {
		sub.SetHelpFunc(plain)
		sub.SetUsageFunc(plainUsage)
	}
	var text strings.Builder
	fmt.Fprintf(&text, intro, indent(config.Smallest))
	text.WriteString("\nCommands:\n")
	for _, sub := range cmd.Commands() {
		fmt.Fprintf(&text, "  %-14s %s\n", sub.Name(), sub.Short)
	}
	fmt.Fprintf(&text, "  %-14s %s\n", "help COMMAND", "Help about a command")
	fmt.Fprintf(&text, "\nBaremetal flags:\n\n%s\nAll other flags, at the end, are those of every cloud controller manager.", own.FlagUsagesWrapped(100))
	cmd.Long = text.String()
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}
