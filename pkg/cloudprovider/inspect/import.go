package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/migrate"
)

// exitLosses is the exit code of import when something of the sources is not
// in the document. Changing it is an API change.
const exitLosses = 3

const importHelp = `Turn the configuration of another load balancer into a document of ours.

Understood are MetalLB (custom resources, the ConfigMap of the time before them,
values of its Helm chart), kube-vip's ConfigMap kubevip, Cilium (IP pools, layer 2
announcement policies, BGP policies and BGP resources) and PureLB (ServiceGroups and
LBNodeAgents), mixed as they come: each FILE has one or several YAML documents or
Lists, - is the standard input. With --cluster the cluster is read instead, or as
well; it is only read, and no Secret is looked at.

The document goes to the standard output, and what there is to know about it to the
standard error output, or to the file that --report names:

  loss   the sources say it, and the document does not: where, and what to do
  note   it is the same, and yet worth knowing
  fault  it cannot be understood: there is no document

An unknown key is a loss, never silence. The document always passes check-config.
BFD, sessions in VRFs and unnumbered ones take more than the announcer's own BGP:
then the document has bgp.backend, and a note says why that one and what it takes.
Passwords are neither printed nor written: the document names a Secret, and a loss
says which one to make.

With --cluster it is also said which Services would lose the address that they
have, or get another one, when the document is in force.

  PROGRAM check-config FILE says more about the document.
  docs/migrate.md has the steps of a take-over for each product, and the way back.

Exit code: 0 if everything is carried over, 1 if there is no document, 2 if a file
or the cluster cannot be read or the command line makes no sense, 3 if there are
losses (unless --allow-loss) or a Service would not keep its address.

With -o json the result is one object; lists are never null:

  {"document": "apiVersion: ...",
   "losses": [{"source": "config.yaml", "path": "...", "message": "..."}],
   "notes": [...], "faults": [...],
   "services": [{"service": "shop/web", "address": "192.0.2.9", "fate": "Lost",
                 "to": "", "message": "..."}],
   "inUse": 12}`

const importExamples = `  # MetalLB, from the running cluster
  PROGRAM import --cluster > config.yaml

  # from what is in a repository, with the report in a file
  PROGRAM import metallb/*.yaml --report losses.txt > config.yaml

  # values of an old chart
  helm get values metallb | PROGRAM import -

  # into the ConfigMap, once the document has been read by somebody
  kubectl -n kube-system create configmap ccm-baremetal --from-file=config.yaml`

// importFlags are the flags of import.
type importFlags struct {
	output, report     string
	cluster, allowLoss bool
}

// NewImportCommand returns the command import, for any program. Its error
// carries the exit code.
func NewImportCommand(o Options) *cobra.Command {
	var f importFlags
	reach := o.Cluster()
	cmd := &cobra.Command{
		Use:     "import [FILE...]",
		Short:   "Turn the configuration of MetalLB, kube-vip, Cilium or PureLB into ours",
		Long:    o.worded(importHelp + "\n\n" + ConnectionHelp),
		Example: o.worded(importExamples),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !f.cluster {
				return ExitError{ExitUnreadable, errors.New("which FILE? - is the standard input, --cluster reads the cluster; see --help")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output != "yaml" && f.output != "json" {
				return ExitError{ExitUnreadable, fmt.Errorf("unknown output %q: yaml or json", f.output)}
			}
			found, err := importAll(cmd, args, f.cluster, reach)
			if err != nil {
				return ExitError{ExitUnreadable, err}
			}
			if err := found.show(cmd, f); err != nil {
				return ExitError{ExitUnreadable, fmt.Errorf("print the result: %w", err)}
			}
			return found.verdict(f.allowLoss)
		},
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "yaml", "yaml or json")
	cmd.Flags().StringVar(&f.report, "report", "", "write losses and notes to this `file`")
	cmd.Flags().BoolVar(&f.cluster, "cluster", false, "read the configuration, and the Services, of a cluster")
	cmd.Flags().BoolVar(&f.allowLoss, "allow-loss", false, "losses are no reason for exit code 3")
	reach.AddFlags(cmd.Flags())
	return Quiet(cmd)
}

// imported is what an import came to.
type imported struct {
	Document string           `json:"document"`
	Losses   []migrate.Remark `json:"losses"`
	Notes    []migrate.Remark `json:"notes"`
	Faults   []migrate.Remark `json:"faults"`
	Services []effect         `json:"services"` // that would not keep their address
	InUse    int              `json:"inUse"`    // addresses that Services show

	surveyed bool
}

// importAll reads files and, if asked for, the cluster, and imports them.
func importAll(cmd *cobra.Command, files []string, cluster bool, reach Cluster) (imported, error) {
	var sources []migrate.Source
	for _, name := range files {
		text, err := readFile(name, cmd.InOrStdin())
		if err != nil {
			return imported{}, err
		}
		sources = append(sources, migrate.Source{Name: name, Text: text})
	}
	var survey service.Survey
	var live reading
	if cluster {
		client, err := reach.Client()
		if err != nil {
			return imported{}, err
		}
		if survey, err = service.NewSurvey(cmd.Context(), client); err != nil {
			return imported{}, err
		}
		if live, err = readForeign(cmd.Context(), client.Discovery().RESTClient()); err != nil {
			return imported{}, err
		}
		sources = append(append(sources, live.sources...), balancers(survey)...)
	}
	result, err := migrate.Import(sources)
	found := imported{
		Document: string(result.Document), Services: []effect{}, surveyed: cluster,
		Losses: append(live.unread, result.Losses...), Notes: append([]migrate.Remark{}, append(live.absent, result.Notes...)...), Faults: []migrate.Remark{},
	}
	found.Losses = append([]migrate.Remark{}, found.Losses...)
	var faults migrate.Faults
	if errors.As(err, &faults) {
		found.Faults = faults
		return found, nil
	}
	if cluster {
		impact := survey.TakeOver(result.Config, time.Now())
		found.Services, found.InUse = effects(append(impact.Effects, impact.Silent...)), impact.InUse
	}
	return found, nil
}

// balancers returns the Services of type LoadBalancer as a source.
func balancers(s service.Survey) []migrate.Source {
	var b strings.Builder
	for _, svc := range s.Services {
		if svc.Spec.Type != "LoadBalancer" {
			continue
		}
		one := svc.DeepCopy()
		one.APIVersion, one.Kind = "v1", "Service"
		one.ManagedFields = nil
		text, err := json.Marshal(one)
		if err == nil { // a Service that was read can be written
			b.WriteString("---\n" + string(text) + "\n")
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return []migrate.Source{{Name: "cluster", Text: []byte(b.String())}}
}

// show prints the document, and the report beside it.
func (i imported) show(cmd *cobra.Command, f importFlags) error {
	if f.report != "" {
		if err := os.WriteFile(f.report, []byte(i.text()), 0o644); err != nil {
			return err
		}
	}
	if f.output == "json" {
		return Encode(cmd.OutOrStdout(), i)
	}
	if f.report == "" {
		fmt.Fprint(cmd.ErrOrStderr(), i.text())
	}
	_, err := io.WriteString(cmd.OutOrStdout(), i.Document)
	return err
}

// text is the report.
func (i imported) text() string {
	var b strings.Builder
	for _, part := range []struct {
		kind string
		list []migrate.Remark
	}{{"fault", i.Faults}, {"loss", i.Losses}, {"note", i.Notes}} {
		for _, r := range part.list {
			fmt.Fprintf(&b, "%s: %s\n", part.kind, r)
		}
	}
	for _, e := range i.Services {
		fmt.Fprintf(&b, "service: %s\n", e.Message)
	}
	if i.surveyed && len(i.Faults) == 0 {
		fmt.Fprintf(&b, "of %d addresses that Services have, %d would not stay as they are\n", i.InUse, len(i.Services))
	}
	return b.String()
}

// verdict is the summary and the exit code.
func (i imported) verdict(allowLoss bool) error {
	switch {
	case len(i.Faults) > 0:
		return ExitError{exitFaults, fmt.Errorf("no document: %d faults", len(i.Faults))}
	case len(i.Services) > 0:
		return ExitError{exitLosses, fmt.Errorf("%d Services would not keep their address, or nobody would announce it", len(i.Services))}
	case len(i.Losses) > 0 && !allowLoss:
		return ExitError{exitLosses, fmt.Errorf("the document lacks %d things that the sources say; if that is meant, --allow-loss", len(i.Losses))}
	}
	return nil
}
