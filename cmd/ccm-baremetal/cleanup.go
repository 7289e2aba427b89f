package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/inspect"
)

const cleanupHelp = `Remove what ccm-baremetal has left in a cluster, after it was uninstalled.

Without --yes nothing is changed: it is only said what would be.

  Services   our conditions (ccm-baremetal.io/...) and, on Services that are ours,
             the finalizer service.kubernetes.io/load-balancer-cleanup, which an
             earlier cloud controller manager may have left and which blocks their
             deletion. With --release-addresses also the addresses in the status
             that our condition confirms; those that others wrote stay.
  objects    the ConfigMap ccm-baremetal-accepted and the Secret
             ccm-baremetal-gossip, if we made them, and the Lease ccm-baremetal.
             Your own ConfigMap ccm-baremetal stays.

A Service is ours if it carries a condition of ours or names our class. No other
Service is touched.

Controller and announcers must be gone: they would put back what is removed, and
an announcer falls silent for a Service without the condition. So --yes is
refused while one runs. Writes are made one after the other, --pace of them in a
second. What fails is named, and the rest goes on; the command may be repeated.

The way back: install again. A Service that still shows its address gets the same
one; one whose address was released gets any.

` + inspect.ConnectionHelp + `
It takes the rights to list and get Services, to patch services/status, to list
Pods, to get ConfigMaps, Secrets and Leases, and to delete the three by name.

With -o json the result is one object; error is "" for what was done or, without
--yes, would be:

  {"done": true, "running": [],
   "services": [{"service": "shop/web", "conditions": ["ccm-baremetal.io/Allocated"],
                 "finalizer": false, "released": ["192.0.2.100"], "kept": [], "error": ""}],
   "objects":  [{"kind": "Lease", "name": "kube-system/ccm-baremetal", "error": ""}]}

Exit code: 0 if nothing is left or, without --yes, nothing has been tried; 1 if
something could not be read or removed, or something of ours still runs; 2 if the
command line makes no sense.`

const cleanupExamples = `  # 1. end controller and announcers
  kubectl delete -k manifests/base

  # 2. what would be removed?
  ccm-baremetal cleanup

  # 3. remove it; Services keep their addresses, for another product to adopt
  ccm-baremetal cleanup --yes

  # or: leave no address behind either
  ccm-baremetal cleanup --release-addresses --yes`

// newCleanupCommand returns the command cleanup.
func newCleanupCommand() *cobra.Command {
	var reach inspect.Connection
	o := cleanupOptions{}
	var output string
	cmd := &cobra.Command{
		Use:     "cleanup",
		Short:   "Remove what is left in a cluster after an uninstall",
		Long:    cleanupHelp,
		Example: cleanupExamples,
		Args:    inspect.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, known := map[string]func(io.Writer, cleanup) error{"text": printCleanup, "json": printCleanupJSON}[output]
			switch {
			case !known:
				return inspect.ExitError{Code: inspect.ExitUnreadable, Err: fmt.Errorf("unknown output %q: text or json", output)}
			case o.pace < 1:
				return inspect.ExitError{Code: inspect.ExitUnreadable, Err: fmt.Errorf("--pace %d: at least one write in a second", o.pace)}
			}
			client, err := reach.Client()
			if err != nil {
				return err
			}
			o.namespace = reach.Namespace()
			c := &cleaner{client: client, cleanupOptions: o}
			result, err := c.run(cmd.Context())
			return errors.Join(show(cmd.OutOrStdout(), result), err)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&o.release, "release-addresses", false, "also remove the addresses that we gave from the status of Services")
	cmd.Flags().IntVar(&o.pace, "pace", 10, "writes in a second, at most")
	reach.AddFlags(cmd.Flags())
	return inspect.Quiet(cmd)
}

type cleanupOptions struct {
	namespace    string
	yes, release bool
	pace         int
}

// cleanup is what was removed or, if not Done, would be.
type cleanup struct {
	Done     bool             `json:"done"`
	Running  []string         `json:"running"` // what must be gone first
	Services []cleanedService `json:"services"`
	Objects  []cleanedObject  `json:"objects"`

	releases bool
}

type cleanedService struct {
	Service    string   `json:"service"`
	Conditions []string `json:"conditions"`
	Finalizer  bool     `json:"finalizer"`
	Released   []string `json:"released"`
	Kept       []string `json:"kept"`
	Error      string   `json:"error"`
}

type cleanedObject struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Error string `json:"error"`
}

// run finds out what there is to remove and, if that is wanted and nothing of
// ours runs, removes it. The result says how far it came, also with an error.
func (c *cleaner) run(ctx context.Context) (cleanup, error) {
	result := cleanup{Services: []cleanedService{}, Objects: []cleanedObject{}, releases: c.release}
	var err error
	if result.Running, err = c.running(ctx, time.Now()); err != nil {
		return result, err
	}
	traces, err := c.traces(ctx)
	if err != nil {
		return result, err
	}
	objects, err := c.objects(ctx)
	if err != nil {
		return result, err
	}
	for _, t := range traces {
		result.Services = append(result.Services, c.described(t))
	}
	for _, o := range objects {
		result.Objects = append(result.Objects, cleanedObject{Kind: o.kind, Name: c.namespace + "/" + o.name})
	}
	switch {
	case !c.yes:
		return result, nil
	case len(result.Running) > 0:
		return result, errors.New("something of ours still runs, and nothing was changed; end it first")
	}
	result.Done = true
	return result, c.remove(ctx, &result, traces, objects)
}
