package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ConditionAnnounced is the type of the condition that says what becomes of a
// Service's addresses.
const ConditionAnnounced = config.ConditionAnnounced

// Reasons of the condition, besides the plan's reasons for an address that
// nobody announces. Changing one is an API change.
const (
	AnnouncedByLayer2 = "Layer2"          // True: all addresses are announced by layer 2
	AnnouncedByBGP    = "BGP"             // True: all are told to routers
	AnnouncedByBoth   = "Layer2AndBGP"    // True: all are announced, some of them to routers
	PartlyAnnounced   = "PartlyAnnounced" // False: some are
	AddressConflict   = "AddressConflict" // False: a foreign station claims one
	NotAnswered       = "NotAnswered"     // False: the owner of one does not answer for it
)

// Condition is a condition without its time.
type Condition struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// facts are what conditions are made of besides the plan: what the speakers of
// this node really do.
type facts struct {
	plan      Pass
	answering []plan.Announcement // sorted by address
	conflicts map[netip.Addr]Conflict
}

func newFacts(p Pass, answering []plan.Announcement, conflicts []Conflict) facts {
	f := facts{plan: p, answering: answering, conflicts: map[netip.Addr]Conflict{}}
	for _, c := range conflicts {
		if address, err := netip.ParseAddr(c.Address); err == nil {
			f.conflicts[address] = c
		}
	}
	return f
}

// verdict returns that about an address which a Service holds.
func (f facts) verdict(address netip.Addr) *plan.Verdict {
	i, _ := slices.BinarySearchFunc(f.plan.Verdicts, address, func(v plan.Verdict, a netip.Addr) int { return v.Address.Compare(a) })
	return &f.plan.Verdicts[i]
}

// answers tells whether this node answers for an address as its owner.
func (f facts) answers(address netip.Addr) bool {
	i, found := slices.BinarySearchFunc(f.answering, address, func(an plan.Announcement, a netip.Addr) int { return an.Address.Compare(a) })
	return found && !f.answering[i].Yield
}

// fate is what becomes of one address.
type fate struct {
	announced bool // in at least one of both ways
	layer2    bool
	routers   bool   // are told
	reason    string // if it is not
	text      string
	sure      time.Duration // how long it has to stay like this to be said
}

// toRouters adds that some nodes tell routers of an address.
func (f fate) toRouters(address netip.Addr, nodes int) fate {
	told := fmt.Sprintf("%d nodes advertise %s to routers", nodes, address)
	if nodes == 1 {
		told = fmt.Sprintf("1 node advertises %s to routers", address)
	}
	f.layer2, f.announced, f.routers = f.announced, true, true
	if f.layer2 {
		told = f.text + "; " + told
	}
	f.text = told
	return f
}

// An opinion is what to say about a Service, and how long one has to have been
// of it before.
type opinion struct {
	Condition
	sure time.Duration
}

// condition returns what to say about a Service that has another condition,
// and whether this node is the one to say it and knows. There is one writer per
// Service: the owner of its first address, or without one the node that
// plan.Reporter names. In a minority only what is answered is known: the others
// may announce the rest.
func (f facts) condition(svc *plan.Service, observed Condition) (opinion, bool) {
	if svc.Deleting {
		return opinion{}, false
	}
	if len(svc.Addresses) == 0 {
		return f.withoutAddress(observed)
	}
	if !f.speaks(*f.verdict(svc.Addresses[0])) {
		return opinion{}, false
	}
	var fates []fate
	for i, address := range svc.Addresses {
		if slices.Contains(svc.Addresses[:i], address) {
			continue
		}
		fate, known := f.fate(f.verdict(address), svc)
		if !known {
			return opinion{}, false
		}
		fates = append(fates, fate)
	}
	c := summary(fates)
	return c, c.Status == metav1.ConditionTrue || !f.plan.Snapshot.Minority()
}

// speaks tells whether this node speaks for the Services of an address.
func (f facts) speaks(v plan.Verdict) bool {
	return plan.Reporter(v, f.plan.Snapshot.Members) == f.plan.Snapshot.Node
}

// withoutAddress takes back what a condition says of an address that a Service
// once had. Of one that never had any, ccm-baremetal says enough.
func (f facts) withoutAddress(observed Condition) (opinion, bool) {
	nobodys := plan.Verdict{Address: netip.IPv4Unspecified()}
	if observed == (Condition{}) || !f.speaks(nobodys) {
		return opinion{}, false
	}
	return opinion{Condition{metav1.ConditionFalse, string(plan.NotAllocated), "it has no address"}, sureAfter}, true
}

// summary makes one condition of what becomes of each address.
func summary(fates []fate) opinion {
	c := opinion{Condition: Condition{Status: metav1.ConditionTrue, Reason: way(fates)}}
	var texts []string
	announced := 0
	for _, fate := range fates {
		texts = append(texts, fate.text)
		if fate.announced {
			announced++
			continue
		}
		c.sure = max(c.sure, fate.sure)
		if c.Status == metav1.ConditionTrue {
			c.Status, c.Reason = metav1.ConditionFalse, fate.reason
		}
	}
	if announced > 0 && announced < len(fates) {
		c.Reason = PartlyAnnounced
	}
	c.Message = strings.Join(texts, "; ")
	return c
}

// way says how addresses are announced, if all are.
func way(fates []fate) string {
	layer2, routers := false, false
	for _, f := range fates {
		layer2 = layer2 || f.layer2
		routers = routers || f.routers
	}
	switch {
	case layer2 && routers:
		return AnnouncedByBoth
	case routers:
		return AnnouncedByBGP
	default:
		return AnnouncedByLayer2
	}
}

// fate returns what becomes of an address of a Service, and whether that is
// known: by layer 2, and what routers are told.
func (f facts) fate(v *plan.Verdict, svc *plan.Service) (fate, bool) {
	local, known := f.layer2(v, svc)
	nodes := v.Routed[svc.Namespace+"/"+svc.Name]
	switch {
	case nodes == 0 || !known:
		return local, known
	case local.reason == NotAnswered: // it is about to be announced in both ways
		return fate{}, false
	}
	return local.toRouters(v.Address, nodes), true
}

// layer2 returns what becomes of an address of a Service, and whether that is
// known. What only a majority could know is not.
func (f facts) layer2(v *plan.Verdict, svc *plan.Service) (fate, bool) {
	if own := holderReason(v, svc); own != plan.Honoured && own != plan.Overruled {
		return silent(own, fmt.Sprintf("not announcing %s: %s", v.Address, own.Meaning())), true
	}
	switch v.Owner {
	case "":
		return f.nobody(v)
	case f.plan.Snapshot.Node:
		return f.own(v)
	}
	if v.Behind[v.Owner] == plan.LinkDown {
		return linkDown(v), true
	}
	return announced(v), true
}

// holderReason says what a Service has to say about its address.
func holderReason(v *plan.Verdict, svc *plan.Service) plan.Reason {
	for _, h := range v.Holders {
		if h.Service == svc.Namespace+"/"+svc.Name {
			return h.Reason
		}
	}
	return plan.Honoured
}

// own is fate for an address that this node owns.
func (f facts) own(v *plan.Verdict) (fate, bool) {
	if c, contested := f.conflicts[v.Address]; contested {
		return silent(AddressConflict, contest(v, c)), true
	}
	if f.answers(v.Address) {
		return announced(v), true
	}
	if v.Behind[v.Owner] == plan.LinkDown {
		return linkDown(v), true
	}
	return unanswered(v), true
}

// unanswered is what becomes of an address that its owner does not answer for:
// mostly that it is about to. If not, its log has said why.
func unanswered(v *plan.Verdict) fate {
	f := silent(NotAnswered, fmt.Sprintf("%s does not answer for %s, which it should announce: its log says why", v.Owner, v.Address))
	f.sure = unansweredFor
	return f
}

func contest(v *plan.Verdict, c Conflict) string {
	whose := "a foreign station"
	switch {
	case c.Node == "":
	case c.Cause == memberAnnounces:
		whose = "the announcer of node " + c.Node
	default:
		whose = "the kernel of node " + c.Node + " (kube-proxy in IPVS mode without strictARP?)"
	}
	return fmt.Sprintf("%s of %s: %s, %s, claims it on %s", v.Address, v.Owner, whose, c.MAC, c.Link)
}

func announced(v *plan.Verdict) fate {
	return fate{announced: true, layer2: true, text: "announcing " + place(v)}
}

func linkDown(v *plan.Verdict) fate {
	return silent(plan.NoInterface, fmt.Sprintf("not announcing %s: no candidate's link is up", place(v)))
}

// place says which address is announced from where.
func place(v *plan.Verdict) string {
	return fmt.Sprintf("%s from %s", v.Address, strings.Join(slices.Concat([]string{v.Owner}, v.OwnerLinks), ", "))
}

// nobody is fate for an address without an owner. Who is in a minority does
// not know what the others do.
func (f facts) nobody(v *plan.Verdict) (fate, bool) {
	if v.Reason == plan.NoQuorum {
		return fate{}, false
	}
	reason := v.Reason
	if len(v.LeftOut) > 0 && v.LeftOut[plan.NoInterface] == total(v.LeftOut) {
		reason = plan.NoInterface
	}
	text := fmt.Sprintf("not announcing %s: %s", v.Address, reason.Meaning())
	if counts := tally(v.LeftOut); counts != "" {
		text += ": " + counts
	}
	return silent(reason, text), true
}

func silent(reason plan.Reason, text string) fate {
	return fate{reason: string(reason), text: text, sure: sureAfter}
}

// tally says how many nodes were left out for which reason.
func tally(leftOut map[plan.Reason]int) string {
	var counts []string
	for _, reason := range slices.Sorted(maps.Keys(leftOut)) {
		counts = append(counts, fmt.Sprintf("%d %s", leftOut[reason], reason))
	}
	return strings.Join(counts, ", ")
}

func total(counts map[plan.Reason]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// ConditionPatch returns the strategic merge patch of a Service's status that
// makes the condition want out of was, and of nothing else. It is refused if
// the Service is another one by now than that with the UID.
func ConditionPatch(uid string, was, want Condition, now time.Time) ([]byte, error) {
	condition := map[string]string{
		"type": ConditionAnnounced, "status": string(want.Status), "reason": want.Reason, "message": want.Message,
	}
	if was.Status != want.Status {
		condition["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]string{"uid": uid},
		"status":   map[string]any{"conditions": []any{condition}},
	})
}
