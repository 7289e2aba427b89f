package ask

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Explanation is what is to say about one address. The names in it are those
// of the JSON output; changing one is an API change. Lists are never null.
type Explanation struct {
	Address        netip.Addr  `json:"address"`
	Services       []string    `json:"services"`
	Endpoints      []Endpoints `json:"endpoints"` // of each of them
	Owner          string      `json:"owner"`     // empty: nobody
	OwnerLinks     []string    `json:"ownerLinks"`
	Reason         plan.Reason `json:"reason"` // of the node that was asked
	Advertisements []string    `json:"advertisements"`
	Candidates     []Candidate `json:"candidates"` // best first
	Excluded       []Exclusion `json:"excluded"`
	Overruled      []Holder    `json:"overruled"` // Services on the address that have no say
	Links          []string    `json:"links"`     // of the node that was asked, that it would use
	Answering      []string    `json:"answering"` // of the node that was asked, on which it answers
	HandingOver    bool        `json:"handingOver"`
	ObserveOnly    bool        `json:"observeOnly"` // the node that was asked announces nothing of what it decides
	Routers        []Herald    `json:"routers"`     // by node; empty if no node may tell any
}

// Herald is a node, the routers that it tells of an address, and why it tells none.
type Herald struct {
	Node   string      `json:"node"`
	Peers  []string    `json:"peers"`
	Reason plan.Reason `json:"reason,omitempty"`
	Note   string      `json:"note,omitempty"` // what its Node object says about that
}

// Candidate is a node that could announce an address.
type Candidate struct {
	Node string      `json:"node"`
	Tier plan.Reason `json:"tier"`           // Normal, or why it stands behind others
	Note string      `json:"note,omitempty"` // what its Node object says about that
}

// Endpoints says on which nodes a Service has endpoints.
type Endpoints struct {
	Service     string   `json:"service"`
	Policy      string   `json:"policy"` // externalTrafficPolicy
	Ready       []string `json:"ready"`
	Terminating []string `json:"terminating"` // still serving
	Nodeless    bool     `json:"nodeless"`    // some name no node
}

// normal is the tier of a candidate that nothing is to be said against.
const normal plan.Reason = "Normal"

// Exclusion is a node that could not, with the first reason.
type Exclusion struct {
	Node   string      `json:"node"`
	Reason plan.Reason `json:"reason"`
	Note   string      `json:"note,omitempty"` // what its Node object says about that
}

// Holder is a Service on an address, and why it has no say.
type Holder struct {
	Service string      `json:"service"`
	Reason  plan.Reason `json:"reason"`
}

// Answer is the whole output of explain.
type Answer struct {
	Node      string        `json:"node"` // that was asked
	Addresses []Explanation `json:"addresses"`
}

func newExplainCommand(o Options) *cobra.Command {
	return o.command(&cobra.Command{
		Use:     "explain ADDRESS|NAMESPACE/SERVICE",
		Short:   "Explain who announces an address, and why",
		Long:    explainHelp,
		Example: explainExamples,
		Args:    cobra.ExactArgs(1),
	}, func(p status.Plan, args []string) (printer, error) { return Explain(p, args[0]) })
}

// Explain answers a question about a plan: what is an address or
// NAMESPACE/SERVICE. It decides again from the snapshot,
// which gives the whole ranking and not only its beginning.
func Explain(p status.Plan, what string) (Answer, error) {
	s, err := p.Snapshot()
	if err != nil {
		return Answer{}, err
	}
	addresses, err := asked(s, what)
	if err != nil {
		return Answer{}, err
	}
	out := Answer{Node: s.Node, Addresses: []Explanation{}}
	for _, address := range addresses {
		v, ok := plan.Explain(s, address)
		if !ok {
			return Answer{}, fmt.Errorf("no Service of ours holds %s", address)
		}
		e := newExplanation(s, v)
		e.Advertisements = advertisements(s, v)
		e.addAnswering(p.Answering)
		e.ObserveOnly = p.ObserveOnly
		out.Addresses = append(out.Addresses, e)
	}
	return out, nil
}

// asked returns the addresses that a question is about.
func asked(s plan.Snapshot, what string) ([]netip.Addr, error) {
	namespace, name, isService := strings.Cut(what, "/")
	if !isService {
		address, err := netip.ParseAddr(what)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor NAMESPACE/SERVICE", what)
		}
		return []netip.Addr{address.Unmap()}, nil
	}
	for _, svc := range s.Services {
		if svc.Namespace != namespace || svc.Name != name {
			continue
		}
		if len(svc.Addresses) == 0 {
			return nil, fmt.Errorf("the Service %s holds no address; its condition ccm-baremetal.io/Allocated says why", what)
		}
		return svc.Addresses, nil
	}
	return nil, fmt.Errorf("the Service %s is not ours: it does not exist, is not of type LoadBalancer, "+
		"names another loadBalancerClass than the configuration, or is ignored by annotation", what)
}

func newExplanation(s plan.Snapshot, v plan.Verdict) Explanation {
	e := Explanation{
		Address: v.Address, Services: v.Services, Endpoints: endpointsOf(s, v),
		Owner: v.Owner, OwnerLinks: append([]string{}, v.OwnerLinks...), Reason: v.Reason,
		Advertisements: []string{}, Candidates: []Candidate{},
		Excluded: []Exclusion{}, Overruled: []Holder{}, Links: names(v.Links), Answering: []string{}, Routers: []Herald{},
	}
	for _, h := range plan.Heralds(s, v.Address) {
		e.Routers = append(e.Routers, Herald{h.Node, append([]string{}, h.Peers...), h.Reason, note(s, h.Node, h.Reason)})
	}
	for _, name := range v.Candidates {
		e.Candidates = append(e.Candidates, Candidate{name, cmp.Or(v.Behind[name], normal), note(s, name, v.Behind[name])})
	}
	for _, x := range v.Excluded {
		e.Excluded = append(e.Excluded, Exclusion{x.Node, x.Reason, note(s, x.Node, x.Reason)})
	}
	for _, h := range v.Holders {
		if h.Reason != plan.Honoured && h.Reason != v.Reason {
			e.Overruled = append(e.Overruled, Holder(h))
		}
	}
	return e
}

// endpointsOf returns where the Services of an address have endpoints.
func endpointsOf(s plan.Snapshot, v plan.Verdict) []Endpoints {
	out := []Endpoints{}
	for _, svc := range s.Services {
		if !slices.Contains(v.Services, svc.Namespace+"/"+svc.Name) {
			continue
		}
		e := Endpoints{
			Service: svc.Namespace + "/" + svc.Name, Policy: "Cluster", Nodeless: svc.Endpoints.Nodeless,
			Ready: append([]string{}, svc.Endpoints.Ready...), Terminating: append([]string{}, svc.Endpoints.Terminating...),
		}
		if svc.Local {
			e.Policy = "Local"
		}
		out = append(out, e)
	}
	return out
}

// note says what a Node object says that led to a reason; empty if nothing.
func note(s plan.Snapshot, name string, reason plan.Reason) string {
	i := slices.IndexFunc(s.Nodes, func(n plan.Node) bool { return n.Name == name })
	if i < 0 || reason != plan.Draining && reason != plan.ExcludeLabel && reason != plan.Tainted {
		return ""
	}
	n := s.Nodes[i]
	var facts []string
	if n.Drain {
		facts = append(facts, "annotation ccm-baremetal.io/drain is true")
	}
	if value, present := n.Labels[config.LabelExclude]; present && s.Config.ExcludeLabel.Excludes(n.Labels) {
		text := "label " + config.LabelExclude + " is present and empty"
		if value != "" {
			text = "label " + config.LabelExclude + " is " + value
		}
		facts = append(facts, text)
	}
	for _, taint := range n.Taints {
		if plan.IsAway(taint) {
			facts = append(facts, "taint "+taint)
		}
	}
	return strings.Join(facts, ", ")
}

// addAnswering notes what the speakers really do about the address.
func (e *Explanation) addAnswering(all []plan.Announcement) {
	i := slices.IndexFunc(all, func(a plan.Announcement) bool { return a.Address == e.Address })
	if i >= 0 {
		e.Answering, e.HandingOver = names(all[i].Links), all[i].Yield
	}
}

// advertisements names those that are for the address and for a Service on it,
// in the order of the document. An address in no pool belongs to all.
func advertisements(s plan.Snapshot, v plan.Verdict) []string {
	pool := ""
	for _, p := range s.Config.Pools {
		for _, r := range p.Ranges {
			if r.Contains(v.Address) {
				pool = p.Name
			}
		}
	}
	matching := []string{}
	for _, ad := range s.Config.Advertisements {
		if pool != "" && len(ad.Pools) > 0 && !slices.Contains(ad.Pools, pool) {
			continue
		}
		if slices.ContainsFunc(s.Services, func(svc plan.Service) bool {
			return slices.Contains(v.Services, svc.Namespace+"/"+svc.Name) && ad.ServiceSelector.Matches(svc.Labels)
		}) {
			matching = append(matching, ad.Name)
		}
	}
	return matching
}

func names(links []plan.Link) []string {
	out := []string{}
	for _, l := range links {
		out = append(out, l.Name)
	}
	return out
}

// Print shows the answer to people.
func (a Answer) Print(w io.Writer) error {
	var b strings.Builder
	for i, e := range a.Addresses {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		e.print(&b, a.Node)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (e Explanation) print(w io.Writer, node string) {
	fmt.Fprintf(w, "%s, held by %s\n", e.Address, strings.Join(e.Services, ", "))
	switch {
	case e.Reason == plan.OnlyBGP:
		line(w, "announced by", "every node that can serve it: "+because(e.Reason))
	case e.Owner == "":
		line(w, "announced by", "nobody: "+because(e.Reason))
	default:
		line(w, "announced by", strings.Join(append([]string{e.Owner}, e.OwnerLinks...), ", "))
		line(w, "here, on "+node, e.here())
	}
	for i, p := range e.Endpoints {
		line(w, title(i, "endpoints"), p.String())
	}
	line(w, "selected by", orNone(e.Advertisements, "no advertisement"))
	for i, c := range e.Candidates {
		text := fmt.Sprintf("%d. %s", i+1, c.Node)
		if c.Tier != normal {
			text += ": " + becauseOf(c.Tier, c.Note)
		}
		line(w, title(i, "candidates"), text)
	}
	for i, x := range e.Excluded {
		line(w, title(i, "left out"), x.Node+": "+becauseOf(x.Reason, x.Note))
	}
	e.printRouters(w)
	for i, h := range e.Overruled {
		line(w, title(i, "no say"), h.Service+": "+because(h.Reason))
	}
}

// printRouters shows who tells which routers, and then who tells none.
func (e Explanation) printRouters(w io.Writer) {
	told, mute := 0, 0
	for _, h := range e.Routers {
		if h.Reason == "" {
			line(w, title(told, "told routers"), h.Node+": "+strings.Join(h.Peers, ", "))
			told++
		}
	}
	for _, h := range e.Routers {
		if h.Reason != "" {
			line(w, title(mute, "tell no router"), h.Node+": "+becauseOf(h.Reason, h.Note))
			mute++
		}
	}
}

// here says what the node that was asked decides, and what it really does.
func (e Explanation) here() string {
	text := because(e.Reason)
	switch {
	case e.HandingOver:
		text += "; still answering on " + strings.Join(e.Answering, ", ") + " until the new owner is heard"
	case len(e.Answering) > 0:
		text += "; answering on " + strings.Join(e.Answering, ", ")
	case e.ObserveOnly && e.Reason == plan.Owner:
		text += "; not answering, for it only observes"
	case e.Reason == plan.Owner:
		text += "; NOT answering, see the log and announcer_layer2_link_open"
	}
	return text
}

func line(w io.Writer, title, text string) { fmt.Fprintf(w, "  %-14s  %s\n", title, text) }

// title is shown on the first line of a list.
func title(i int, text string) string {
	if i == 0 {
		return text
	}
	return ""
}

func orNone(list []string, none string) string {
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ", ")
}

// because says a reason and what it means.
func because(r plan.Reason) string { return becauseOf(r, "") }

// becauseOf says a reason, what it means, and what led to it.
func becauseOf(r plan.Reason, note string) string {
	text := r.Meaning()
	if note != "" {
		text += ": " + note
	}
	if text == "" {
		return string(r)
	}
	return fmt.Sprintf("%s (%s)", r, text)
}

// String says where the endpoints are, for people.
func (e Endpoints) String() string {
	text := fmt.Sprintf("%s, policy %s: ready on %s", e.Service, e.Policy, orNone(e.Ready, "no node"))
	if len(e.Terminating) > 0 {
		text += ", terminating on " + strings.Join(e.Terminating, ", ")
	}
	if e.Nodeless {
		text += ", some on no node"
	}
	return text
}
