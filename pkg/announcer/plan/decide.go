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
	cases := v.cases()
	inParallel(len(cases), func(i int) { cases[i].elect(v, nil) })
	return v.verdicts(cases)
}

// cases looks at all addresses, but for the election.
func (v *view) cases() []verdict {
	cases := make([]verdict, len(v.addresses))
	for i, address := range v.addresses {
		cases[i] = v.decide(address)
	}
	return cases
}

// verdicts completes the cases after the election.
func (v *view) verdicts(cases []verdict) []Verdict {
	verdicts := make([]Verdict, len(cases))
	for i := range cases {
		verdicts[i] = cases[i].Verdict
		if owner := v.index(verdicts[i].Owner); owner >= 0 {
			verdicts[i].OwnerLinks = v.part(owner, verdicts[i].Address, cases[i].advertisements).names
		}
	}
	return verdicts
}

// verdict is a Verdict in the making: everything but the election.
type verdict struct {
	Verdict
	part           part  // this node's, as a candidate
	advertisements []int // those that the demands that decided match
}

// decide looks at one address and at all Services that hold it.
func (v *view) decide(address netip.Addr) verdict {
	holders := v.holders[address]
	d := verdict{Verdict: Verdict{
		Address:  address,
		Services: keys(holders),
		Holders:  make([]Holder, len(holders)),
	}}
	demands := v.demands(address, holders, d.Holders)
	v.tell(&d.Verdict, address, holders)
	if len(demands) == 0 {
		d.Reason = gravest(d.Holders)
		return d
	}
	o := v.poll(demands)
	d.outcome, d.Eligible, d.Behind, d.Excluded, d.LeftOut = o, o.field.size, o.behind, o.excluded, o.leftOut
	deciding := demands
	if o.decisive >= 0 {
		overrule(d.Holders, demands, o.decisive)
		deciding = demands[o.decisive : o.decisive+1]
	}
	d.advertisements = advertisementsOf(deciding)
	own := v.part(v.self, address, d.advertisements)
	d.part, d.Layer2 = own, own.layer2
	if !o.field.has(v.node) {
		own = v.ownPart(address, v.servable(demands))
	}
	d.Links = own.up()
	return d
}

// elect ranks the candidates, and says what that means for this node.
func (d *verdict) elect(v *view, known *election.Favourites) {
	if d.Reason != "" {
		return
	}
	d.rank(v, known)
	if len(d.Candidates) > 0 {
		d.Owner = d.Candidates[0]
	}
	switch {
	case d.Owner == "":
		d.Reason = NoEligibleNode
	case v.forbidden:
		d.Owner, d.Reason = "", NoQuorum
	case d.Owner == v.node:
		d.Reason, d.Links = Owner, d.part.links
	case d.outcome.field.has(v.node):
		d.Reason = NotOwner
	default:
		d.Reason = NotCandidate
	}
}

// fewNodes is up to how many nodes it costs less to rank than to look for them
// among favourites.
const fewNodes = 8

// rank fills in the candidates, best first, tier by tier.
func (d *verdict) rank(v *view, known *election.Favourites) {
	for t, names := range d.outcome.field.tiers {
		most := v.shown - len(d.Candidates)
		switch {
		case len(names) == 0 || most == 0:
		case d.Candidates == nil:
			d.Candidates = d.best(v, known, tier(t), most)
		default:
			d.Candidates = append(d.Candidates, d.best(v, known, tier(t), most)...)
		}
	}
}

// best returns the first most candidates of a tier.
func (d *verdict) best(v *view, known *election.Favourites, t tier, most int) []string {
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
