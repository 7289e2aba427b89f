package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const allocationsHelp = `Show the pools of a cluster, who has their addresses, and who waits for one.

It is worked out from the Services themselves and the document in force, by the
same code as in the controller. So it also works while no controller runs; and
it only reads.

  SIZE     addresses that can be given out, of that family
  USED     those that Services have
  WAITING  Services that would get one if the pool had room for them

Who waits is listed with the reason of its condition ccm-baremetal.io/Allocated.
Pending means that no controller has looked at the Service yet: does one run?
-o wide adds since when and why.

` + ConnectionHelp + `
It takes the right to list Services, Nodes and Namespaces, to get the
EndpointSlice default/kubernetes and to get the ConfigMap ccm-baremetal-accepted.

With -o json the result is one object:

  {"hash": "5d0b...",
   "pools":   [{"name": "lan", "state": "active", "family": "IPv4",
                "size": 51, "used": 2, "free": 49, "waiting": 0}],
   "holders": [{"address": "192.0.2.100", "pool": "lan", "service": "shop/web",
                "since": "2026-01-31T12:00:00Z", "reason": "Allocated"}],
   "waiting": [{"service": "shop/db", "since": "2026-01-31T12:00:00Z",
                "reason": "PoolExhausted", "message": "...", "pools": ["lan"]}]}

Lists are never null. An address in no pool has "" for its pool; since is when it
was given, for those who wait when the Service was created; sizes stop at
9223372036854775807.

Exit code: 0, or 1 if the cluster or the document in force cannot be read, 2 if
the command line makes no sense.`

const allocationsExamples = `  # what is left
  PROGRAM allocations

  # who waits, and why
  PROGRAM allocations -o wide

  # pools that are nearly full, for a tool
  PROGRAM allocations -o json | jq '.pools[] | select(.free < 5)'

  # where the controller reads a file: the pools are those of that file
  PROGRAM allocations --cloud-config /etc/ccm-baremetal/config.yaml`

// NewAllocationsCommand returns the command allocations.
func NewAllocationsCommand(o Options) *cobra.Command {
	reach := o.Cluster()
	var output, file string
	cmd := &cobra.Command{
		Use:     "allocations",
		Short:   "Show pools, who has their addresses and who waits for one",
		Long:    o.worded(allocationsHelp),
		Example: o.worded(allocationsExamples),
		Args:    NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, known := map[string]func(io.Writer, Allocations) error{
				"": printAllocations, "wide": printAllocationsWide, "json": printAllocationsJSON,
			}[output]
			if !known {
				return ExitError{ExitUnreadable, fmt.Errorf("unknown output %q: json or wide", output)}
			}
			client, err := reach.Client()
			if err != nil {
				return err
			}
			a, err := ReadAllocations(cmd.Context(), client, reach.Namespace(), file)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), a)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or wide")
	cmd.Flags().StringVar(&file, "cloud-config", "", "the document in force is this file, as for a controller with that flag")
	reach.AddFlags(cmd.Flags())
	return Quiet(cmd)
}

// Quiet leaves it to main to print errors, without the usage, and gives those
// of flags an exit code of their own.
func Quiet(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return ExitError{ExitUnreadable, err} })
	return cmd
}

// NoArguments refuses arguments, by an exit code of its own.
func NoArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return ExitError{ExitUnreadable, fmt.Errorf("unexpected argument %q; see --help", args[0])}
	}
	return nil
}

// allocations is what is printed.
type Allocations struct {
	Hash    string    `json:"hash"`
	Pools   []Pool    `json:"pools"`
	Holders []Holder  `json:"holders"`
	Waiting []Waiting `json:"waiting"`
}

// Pool is the use of one family of a pool.
type Pool struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Family  string `json:"family"`
	Size    uint64 `json:"size"`
	Used    int    `json:"used"`
	Free    uint64 `json:"free"`
	Waiting int    `json:"waiting"`
}

// Holder is a Service that has an address.
type Holder struct {
	Address string    `json:"address"`
	Pool    string    `json:"pool"`
	Service string    `json:"service"`
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason"`
}

// Waiting is a Service that does not have all that it asks for.
type Waiting struct {
	Service string    `json:"service"`
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Pools   []string  `json:"pools"`
}

// ErrNotInForce says that a cluster has no document in force.
var ErrNotInForce = errors.New("no document is in force")

// ReadAllocations reads a cluster. The error is ErrNotInForce if no document
// is in force.
func ReadAllocations(ctx context.Context, client kubernetes.Interface, namespace, file string) (Allocations, error) {
	c, err := InForce(ctx, client, namespace, file)
	if err != nil {
		return Allocations{}, err
	}
	if c == nil {
		return Allocations{}, fmt.Errorf("%w: there is no configmap %s/%s. Either no controller has run yet, "+
			"or it has another --namespace, or it reads a file: then name that by --cloud-config", ErrNotInForce, namespace, document.AcceptedConfigMap)
	}
	return readAllocations(ctx, client, *c)
}

// ReadOffered is ReadAllocations by the document that is offered to a
// controller, whether one has accepted it or not.
func ReadOffered(ctx context.Context, client kubernetes.Interface, namespace string) (Allocations, error) {
	m, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, document.UserConfigMap, metav1.GetOptions{})
	if err != nil {
		return Allocations{}, fmt.Errorf("get configmap %s/%s: %w", namespace, document.UserConfigMap, err)
	}
	c, err := config.Load([]byte(m.Data[config.ConfigMapKey]))
	if err != nil {
		return Allocations{}, fmt.Errorf("read the document in configmap %s/%s: %w", namespace, document.UserConfigMap, err)
	}
	return readAllocations(ctx, client, c)
}

func readAllocations(ctx context.Context, client kubernetes.Interface, c config.Config) (Allocations, error) {
	survey, err := service.NewSurvey(ctx, client)
	if err != nil {
		return Allocations{}, err
	}
	return shown(c.Hash, survey.Allocations(c, time.Now())), nil
}

func shown(hash string, from service.Allocations) Allocations {
	a := Allocations{Hash: hash, Pools: []Pool{}, Holders: []Holder{}, Waiting: []Waiting{}}
	for _, p := range from.Pools {
		a.Pools = append(a.Pools, Pool{p.Pool, string(p.State), string(p.Family), p.Size, p.Held, p.Free, p.Waiting})
	}
	for _, h := range from.Holders {
		a.Holders = append(a.Holders, Holder{h.Address.String(), h.Pool, string(h.Service), h.Since, string(h.Reason)})
	}
	for _, w := range from.Waiting {
		a.Waiting = append(a.Waiting, Waiting{string(w.Service), w.Created, string(w.Reason), w.Message, append([]string{}, w.Pools...)})
	}
	return a
}
