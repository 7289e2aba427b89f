package inspect

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/document"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/service"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// impact is what a document would do to the Services of a cluster.
type impact struct {
	InForce  string   `json:"inForce"` // hash; empty: no document is in force
	InUse    int      `json:"inUse"`
	Affected int      `json:"affected"`
	Refused  string   `json:"refused"` // why the controller would refuse it; empty: it would not
	Effects  []effect `json:"effects"`
	Silent   []effect `json:"silent"`
}

type effect struct {
	Service string `json:"service"`
	Address string `json:"address"`
	Fate    string `json:"fate"`
	To      string `json:"to"`
	Message string `json:"message"`
}

// A judge tells what documents would do to a cluster, as it was when the
// judge was made.
type judge struct {
	survey  service.Survey
	inForce *config.Config // nil: none
}

func newJudge(ctx context.Context, reach Cluster, file string) (judge, error) {
	client, err := reach.Client()
	if err != nil {
		return judge{}, err
	}
	c, err := InForce(ctx, client, reach.Namespace(), file)
	if err != nil {
		return judge{}, err
	}
	survey, err := service.NewSurvey(ctx, client)
	return judge{survey, c}, err
}

// judge fills in the impact of a document without faults.
func (j judge) judge(f *checkedFile) {
	found := j.survey.Impact(j.inForce, f.config, time.Now())
	affected := found.Addresses()
	i := &impact{InUse: found.InUse, Affected: len(affected), Effects: effects(found.Effects), Silent: effects(found.Silent)}
	if j.inForce != nil {
		i.InForce = j.inForce.Hash
	}
	if err := document.MassChange(affected, found.InUse, f.config.Services.AllowMassChange); err != nil {
		i.Refused = err.Error()
	}
	f.Impact = i
}

func effects(from []service.Effect) []effect {
	out := []effect{}
	for _, e := range from {
		to := ""
		if e.To.IsValid() {
			to = e.To.String()
		}
		out = append(out, effect{string(e.Service), e.Address.String(), string(e.Fate), to, e.Message})
	}
	return out
}

// write prints the impact for people.
func (i impact) write(w io.Writer, file string) {
	if len(i.Effects) > 0 {
		Table(w, "  SERVICE\tADDRESS\tBECOMES", i.Effects, func(e effect) string {
			return fmt.Sprintf("  %s\t%s\t%s", e.Service, e.Address, e.becomes())
		})
	}
	for _, e := range i.Effects {
		fmt.Fprintf(w, "%s: %s\n", file, e.Message)
	}
	for _, e := range i.Silent {
		if !i.affects(e) {
			fmt.Fprintf(w, "%s: warning: %s; that is so already\n", file, e.Message)
		}
	}
	compared := "the document in force"
	if i.InForce == "" {
		compared = "what Services say that they were given"
	}
	fmt.Fprintf(w, "%s: compared with %s: of %d addresses in use %d would change\n", file, compared, i.InUse, i.Affected)
	if i.Refused != "" {
		fmt.Fprintf(w, "%s: the controller would refuse it: more than 20 %%, and more than 5, of the addresses in use; if that is meant, set services.allowMassChange: true\n", file)
	}
}

// becomes says in a word or two what becomes of the address.
func (e effect) becomes() string {
	switch service.Fate(e.Fate) {
	case service.Moved:
		return e.To
	case service.Unannounced:
		return "unannounced"
	}
	return "lost"
}

func (i impact) affects(e effect) bool {
	for _, other := range i.Effects {
		if other.Service == e.Service && other.Address == e.Address {
			return true
		}
	}
	return false
}
