package plan

import (
	"math"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
)

// Decide returns one Verdict per address that a Service in s holds, sorted by
// address. Owner, Candidates, Excluded and Holders are the same on every node
// that has the same view; Reason, Links and Layer2 are s.Node's.
func Decide(s Snapshot) []Verdict {
	return decide(s, Ranked)
}

// Explain returns the Verdict about one address with all its candidates, and
// whether a Service holds the address.
func Explain(s Snapshot, address netip.Addr) (Verdict, bool) {
	s.Services = slices.DeleteFunc(slices.Clone(s.Services), func(svc Service) bool {
		return !slices.Contains(svc.Addresses, address)
	})
	for _, verdict := range decide(s, math.MaxInt) {
		if verdict.Address == address {
			return verdict, true
		}
	}
	return Verdict{}, false
}

// decide names at most shown candidates and excluded nodes in each Verdict.
func decide(s Snapshot, shown int) []Verdict {
	v := newView(s, shown)
	verdicts := v.cases()
	inParallel(len(verdicts), func(i int) { v.elect(&verdicts[i], nil) })
	v.nameLinks(verdicts)
	return verdicts
}

// cases looks at all addresses, but for the election.
func (v *view) cases() []Verdict {
	verdicts := make([]Verdict, len(v.addresses))
	for i, address := range v.addresses {
		v.decide(&verdicts[i], address)
	}
	return verdicts
}

// decide looks at one address and at all Services that hold it.
func (v *view) decide(d *Verdict, address netip.Addr) {
	held := v.held[address]
	d.Address, d.Services, d.Holders = address, held.services, make([]Holder, len(held.by))
	demands := v.demands(address, held.by, d.Holders)
	v.tell(d, address, held.by)
	if len(demands) == 0 {
		d.Reason = gravest(d.Holders)
		return
	}
	o := v.poll(address, demands)
	d.outcome, d.Eligible, d.Behind, d.Excluded, d.LeftOut = o, o.field.size, o.behind, o.excluded, o.leftOut
	d.Links, d.Layer2 = o.links, o.own.layer2
	if o.decisive >= 0 {
		overrule(d.Holders, demands, o.decisive)
	}
}

// elect ranks the candidates, and says what that means for this node.
func (v *view) elect(d *Verdict, known *election.Favourites) {
	if d.Reason != "" {
		return
	}
	v.rank(d, known)
	if len(d.Candidates) > 0 {
		d.Owner = d.Candidates[0]
	}
	switch {
	case d.Owner == "":
		d.Reason = NoEligibleNode
	case v.forbidden:
		d.Owner, d.Reason = "", NoQuorum
	case d.Owner == v.node:
		d.Reason, d.Links = Owner, d.outcome.own.links
	case d.outcome.candidate:
		d.Reason = NotOwner
	default:
		d.Reason = NotCandidate
	}
}

// nameLinks fills in the links of the owners.
func (v *view) nameLinks(verdicts []Verdict) {
	for i := range verdicts {
		if d := &verdicts[i]; d.Owner != "" {
			d.OwnerLinks = v.linksOf(d.Owner, d.Address, d.outcome)
		}
	}
}

// fewNodes is up to how many nodes it costs less to rank than to look for them
// among favourites.
const fewNodes = 8

// rank fills in the candidates, best first, tier by tier.
func (v *view) rank(d *Verdict, known *election.Favourites) {
	for t, names := range d.outcome.field.tiers {
		most := v.shown - len(d.Candidates)
		switch {
		case len(names) == 0 || most == 0:
		case d.Candidates == nil:
			d.Candidates = v.best(d, known, tier(t), most)
		default:
			d.Candidates = append(d.Candidates, v.best(d, known, tier(t), most)...)
		}
	}
}

// best returns the first most candidates of a tier.
func (v *view) best(d *Verdict, known *election.Favourites, t tier, most int) []string {
	names := d.outcome.field.tiers[t]
	if known != nil && len(names) > fewNodes {
		passes := func(node int) bool {
			return d.outcome.ground.tiers[node] == t && d.outcome.fault(node) == ""
		}
		if best, ok := known.Best(v.names, passes, len(names), most); ok {
			return best
		}
	}
	return election.Best(names, d.Address, most)
}

// gravest returns the reason to give for an address that no Service may have
// announced: that of the Service which came nearest to it.
func gravest(holders []Holder) Reason {
	order := []Reason{Deleting, NotAllocated, NoEndpoints, NoAdvertisement, NoEligibleNode, OnlyBGP, NodeAddress, SpecialPurpose}
	nearest := slices.MaxFunc(holders, func(a, b Holder) int {
		return slices.Index(order, a.Reason) - slices.Index(order, b.Reason)
	})
	return nearest.Reason
}

// overrule marks the Services that had a demand, except the decisive one.
func overrule(holders []Holder, demands []demand, decisive int) {
	for i, d := range demands {
		if i != decisive {
			holders[d.holder].Reason = Overruled
		}
	}
}

// inParallel calls do for 0 to n-1, each once. Hashing is most of the work of
// a pass, and no call depends on another.
func inParallel(n int, do func(int)) {
	const most = 4 // a node has other things to do
	workers := min(most, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	wg.Wait()
}
