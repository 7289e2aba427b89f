// Package migrate turns the configuration of other load balancers for bare
// metal into a document of ours, and says what of it is lost. It is pure: texts
// in, a text and remarks out.
//
// Understood are MetalLB (custom resources, the ConfigMap that was before them,
// values of its Helm chart; of its speakers and of frr-k8s, which FRR it uses),
// kube-vip's ConfigMap, Cilium (pools, layer 2
// policies, both generations of BGP resources) and PureLB.
//
// Nothing is dropped in silence. What a source says and the document does not
// is a loss; what is the same and yet worth knowing is a note; what cannot be
// understood at all is a fault, and then there is no document. Values of
// passwords are never part of a remark.
package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Source is a text to read: YAML or JSON, of one or several documents.
type Source struct {
	Name string // of the file, for remarks
	Text []byte
}

// Remark is something to know about one place in a source.
type Remark struct {
	Source  string `json:"source"`  // as in Source.Name
	Path    string `json:"path"`    // the object and the way to the value inside of it; empty: the source as a whole
	Message string `json:"message"` // what is so, and what to do about it
}

// String returns source, path and message, leaving out what is not known.
func (r Remark) String() string {
	out := r.Message
	for _, before := range []string{r.Path, r.Source} {
		if before != "" {
			out = before + ": " + out
		}
	}
	return out
}

// Faults are all reasons why there is no document, sorted.
type Faults []Remark

// Error returns one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, r := range f {
		lines[i] = r.String()
	}
	return strings.Join(lines, "\n")
}

// Result is what an import found.
type Result struct {
	Document []byte        // YAML, as config.Load reads it
	Config   config.Config // what Load made of it
	Losses   []Remark      // what the document does not say, sorted
	Notes    []Remark      // what is worth knowing, sorted
}

// Import reads sources and returns the document that means the same. The order
// of sources, and of objects in them, does not matter; equal sources give equal
// results. The error is a Faults.
func Import(sources []Source) (Result, error) {
	im := &importer{}
	im.read(sources)
	im.objects = sortedObjects(im.objects)
	im.metallb()
	im.kubevip()
	im.cilium()
	im.purelb()
	im.services()
	im.strangers()
	im.echoes()
	im.chooseBackend()
	if len(im.faults) == 0 && len(im.pools) == 0 {
		im.fault(Remark{Message: "no pool of addresses was found that can be carried over: there is nothing to make a document of"})
	}
	if len(im.faults) > 0 {
		return im.refused(im.faults)
	}
	text, err := im.document()
	if err != nil {
		return Result{}, Faults{{Message: "write the document: " + err.Error()}}
	}
	im.wishes()
	if len(im.faults) > 0 {
		return im.refused(im.faults)
	}
	c, err := config.Load(text)
	if err != nil {
		return im.refused(im.rejected(err))
	}
	for _, w := range config.Warnings(c) {
		im.note(Remark{Path: "the new document: " + w.Path, Message: w.Message})
	}
	im.mute(c)
	return Result{Document: text, Config: c, Losses: arranged(im.losses), Notes: arranged(im.notes)}, nil
}

// refused is the outcome without a document.
func (im *importer) refused(faults Faults) (Result, error) {
	return Result{Losses: arranged(im.losses), Notes: arranged(im.notes)}, Faults(arranged(faults))
}

// mute tells of families of pools that no session carries.
func (im *importer) mute(c config.Config) {
	for _, a := range c.Advertisements {
		if a.BGP == nil {
			continue
		}
		carried := map[config.Family]bool{}
		for _, p := range c.BGP.Peers {
			if len(a.BGP.Peers) == 0 || slices.Contains(a.BGP.Peers, p.Name) {
				for _, f := range p.Families {
					carried[f] = true
				}
			}
		}
		for _, p := range c.Pools {
			for _, f := range []config.Family{config.IPv4, config.IPv6} {
				if (len(a.Pools) == 0 || slices.Contains(a.Pools, p.Name)) && p.Size(f) > 0 && !carried[f] {
					im.note(Remark{Path: "the new document: pool " + p.Name, Message: fmt.Sprintf(
						"no session of the advertisement %s carries %s, so its %s addresses are not advertised by it: add families: [IPv4, IPv6] to a peer whose router takes both", a.Name, f, f)})
				}
			}
		}
	}
}

// rejected are the faults of the new document, which stem from the sources.
func (im *importer) rejected(err error) Faults {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return Faults{{Path: "the new document", Message: err.Error()}}
	}
	var out Faults
	for _, e := range errs {
		out = append(out, Remark{Path: "the new document: " + e.Path, Message: e.Message})
	}
	return out
}

// importer is an import on its way.
type importer struct {
	objects []*object

	pools       []pool
	adverts     []advertisement
	peers       []peer
	profiles    []bfdProfile
	communities map[string]string // what names for them stand for
	class       string

	mode    mode           // what speaks BGP for MetalLB
	frrK8s  bool           // the cluster runs frr-k8s, for MetalLB or for somebody else
	backend config.Backend // of the document; empty: the default one

	losses, notes, faults []Remark
}

func (im *importer) lose(r Remark)  { im.losses = append(im.losses, r) }
func (im *importer) note(r Remark)  { im.notes = append(im.notes, r) }
func (im *importer) fault(r Remark) { im.faults = append(im.faults, r) }

// arranged returns remarks sorted, each once.
func arranged(remarks []Remark) []Remark {
	out := slices.Clone(remarks)
	slices.SortFunc(out, func(a, b Remark) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(out)
}

// quoted returns texts for a message.
func quoted(texts []string) string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = fmt.Sprintf("%q", t)
	}
	return strings.Join(out, ", ")
}
