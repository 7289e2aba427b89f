package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const seeds = 500

// asSeenBy returns the snapshot that another node has when all have the same view.
func asSeenBy(s Snapshot, node string) Snapshot {
	s.Node, s.Links = node, nil
	for _, m := range s.Members {
		if m.Name == node {
			s.Links = m.Links
		}
	}
	return s
}

// told gives every member links, because a node always knows its own.
func told(s Snapshot) Snapshot {
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		if s.Members[i].Links == nil {
			s.Members[i].Links = []Link{}
		}
	}
	return asSeenBy(s, s.Node)
}

func TestNodesWithOneViewAgreeOnOneOwner(t *testing.T) {
	for seed := range uint64(seeds) {
		s := told(randomSnapshot(t, seed))
		want := common(Decide(s))
		announcing := map[netip.Addr]string{}
		for _, node := range naiveNodes(s) {
			seen := asSeenBy(s, node)
			got := Decide(seen)
			if diff := difference(want, common(got)); diff != "" {
				t.Fatalf("seed %d: %s and %s disagree:\n%s", seed, s.Node, node, diff)
			}
			for _, a := range Announcements(got, seen) {
				if a.Yield {
					continue
				}
				i := slices.IndexFunc(want, func(v Verdict) bool { return v.Address == a.Address })
				if !slices.Equal(want[i].OwnerLinks, linkNames(a.Links)) {
					t.Fatalf("seed %d: %s announces on %v, say others on %v", seed, node, linkNames(a.Links), want[i].OwnerLinks)
				}
				if other := announcing[a.Address]; other != "" {
					t.Fatalf("seed %d: %s and %s both announce %s", seed, other, node, a.Address)
				}
				announcing[a.Address] = node
			}
		}
		for _, v := range want {
			if announcing[v.Address] != v.Owner {
				t.Fatalf("seed %d: %s is announced by %q, its owner is %q", seed, v.Address, announcing[v.Address], v.Owner)
			}
		}
	}
}

// common leaves out what each node says for itself.
func common(verdicts []Verdict) []Verdict {
	out := slices.Clone(verdicts)
	for i := range out {
		out[i].Reason, out[i].Links, out[i].Layer2, out[i].outcome = "", nil, config.Layer2{}, nil
	}
	return out
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	for seed := range uint64(seeds) {
		s := randomSnapshot(t, seed)
		if diff := difference(Decide(s), Decide(shuffled(s))); diff != "" {
			t.Fatalf("seed %d: shuffled input decides otherwise:\n%s", seed, diff)
		}
	}
}

func shuffled(s Snapshot) Snapshot {
	s.Services, s.Nodes, s.Members, s.Links = shuffle(s.Services), shuffle(s.Nodes), shuffle(s.Members), shuffle(s.Links)
	for i := range s.Services {
		svc := &s.Services[i]
		svc.Addresses = shuffle(svc.Addresses)
		svc.Endpoints.Ready, svc.Endpoints.Terminating = shuffle(svc.Endpoints.Ready), shuffle(svc.Endpoints.Terminating)
	}
	for i := range s.Members {
		s.Members[i].Links = shuffle(s.Members[i].Links)
	}
	return s
}

func shuffle[T any](list []T) []T {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// oneRelease returns a snapshot whose members all know the same rules.
func oneRelease(s Snapshot) Snapshot {
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		s.Members[i].Rules = election.Rules
	}
	return s
}

func TestLosingANodeMovesOnlyItsAddresses(t *testing.T) {
	for seed := range uint64(seeds) {
		s := oneRelease(randomSnapshot(t, seed))
		before := owners(Decide(s))
		for _, lost := range s.Members {
			after := s
			after.Members = slices.DeleteFunc(slices.Clone(s.Members), func(m Member) bool { return m.Name == lost.Name })
			for address, owner := range owners(Decide(after)) {
				if before[address] != lost.Name && owner != before[address] {
					t.Fatalf("seed %d: %s was lost, and %s went from %s to %s", seed, lost.Name, address, before[address], owner)
				}
			}
		}
	}
}

func TestAJoiningNodeTakesAddressesOnlyForItself(t *testing.T) {
	for seed := range uint64(seeds) {
		s := oneRelease(randomSnapshot(t, seed))
		after := owners(Decide(s))
		for _, joins := range s.Members {
			before := s
			before.Members = slices.DeleteFunc(slices.Clone(s.Members), func(m Member) bool { return m.Name == joins.Name })
			for address, owner := range owners(Decide(before)) {
				if after[address] != owner && after[address] != joins.Name {
					t.Fatalf("seed %d: %s joined, and %s went from %s to %s", seed, joins.Name, address, owner, after[address])
				}
			}
		}
	}
}

func owners(verdicts []Verdict) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, v := range verdicts {
		out[v.Address] = v.Owner
	}
	return out
}

func TestAnnouncementsAreSortedAndHaveLinksThatAreUpIfAnyIs(t *testing.T) {
	for seed := range uint64(seeds) {
		s := randomSnapshot(t, seed)
		verdicts := Decide(s)
		announcements := Announcements(verdicts, s)
		owned := map[netip.Addr]bool{}
		for i, a := range announcements {
			if i > 0 && !announcements[i-1].Address.Less(a.Address) {
				t.Fatalf("seed %d: %s does not come before %s", seed, announcements[i-1].Address, a.Address)
			}
			v := verdicts[slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Address == a.Address })]
			up := v.Behind[v.Owner] != LinkDown || a.Yield
			if len(a.Links) == 0 || slices.ContainsFunc(a.Links, func(l Link) bool { return l.Up != up }) {
				t.Fatalf("seed %d: %s is announced on %v", seed, a.Address, a.Links)
			}
			owned[a.Address] = !a.Yield
		}
		for _, v := range verdicts {
			if mine := v.Owner == s.Node; mine != owned[v.Address] || mine != (v.Reason == Owner) {
				t.Fatalf("seed %d: %s: owner %s, reason %s, announced %t", seed, v.Address, v.Owner, v.Reason, owned[v.Address])
			}
		}
	}
}

func TestAtMostOneLinkPerLAN(t *testing.T) {
	for seed := range uint64(seeds) {
		for _, v := range Decide(randomSnapshot(t, seed)) {
			for i, l := range v.Links {
				if slices.ContainsFunc(v.Links[i+1:], l.sameLAN) {
					t.Fatalf("seed %d: %s is announced twice in one LAN: %v", seed, v.Address, v.Links)
				}
			}
		}
	}
}

// Diff applied to what was gives what is: nothing that happened is missing.
func TestDiffLeadsFromOnePassToTheNext(t *testing.T) {
	for seed := range uint64(seeds) {
		before, after := Decide(randomSnapshot(t, seed)), Decide(randomSnapshot(t, seed+1))
		got := owners(before)
		for _, c := range Diff(before, after) {
			if got[c.Address] != c.From {
				t.Fatalf("seed %d: %s comes from %q, says the change: %+v", seed, c.Address, got[c.Address], c)
			}
			if c.From == c.To && c.From != "" && c.Cause != LinksChanged || c.Cause == "" && c.From != "" {
				t.Fatalf("seed %d: no cause for %+v", seed, c)
			}
			got[c.Address] = c.To
		}
		maps.DeleteFunc(got, func(_ netip.Addr, owner string) bool { return owner == "" })
		want := owners(after)
		maps.DeleteFunc(want, func(_ netip.Addr, owner string) bool { return owner == "" })
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: the changes lead to %v, want %v", seed, got, want)
		}
		if again := Diff(after, after); len(again) != 0 {
			t.Fatalf("seed %d: changes without a change: %v", seed, again)
		}
	}
}

func TestExplainGivesTheSameVerdictWithTheWholeRanking(t *testing.T) {
	var s Snapshot
	s.Config = randomSnapshot(t, 0).Config
	for i := range 3 * Ranked {
		name := fmt.Sprintf("n%02d", i)
		s.Nodes = append(s.Nodes, Node{Name: name})
		s.Members = append(s.Members, Member{Name: name})
	}
	s.Services = []Service{{
		Namespace: "shop", Name: "web", Allocated: true, Endpoints: Endpoints{Ready: []string{"n00"}},
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")},
	}}
	short := Decide(s)[1]
	long, held := Explain(s, short.Address)
	if !held || len(short.Candidates) != Ranked || short.Eligible != 3*Ranked {
		t.Fatalf("held %t, %d candidates of %d", held, len(short.Candidates), short.Eligible)
	}
	if want := election.Rank(naiveNodes(s), short.Address); !slices.Equal(long.Candidates, want) {
		t.Errorf("explained candidates %v, want %v", long.Candidates, want)
	}
	if !slices.Equal(short.Candidates, long.Candidates[:Ranked]) {
		t.Errorf("decided candidates %v are not the first of %v", short.Candidates, long.Candidates)
	}
	if _, held := Explain(s, netip.MustParseAddr("192.0.2.99")); held {
		t.Error("an address that no Service holds is explained")
	}
}

// A rolling update: as long as one announcer is of the release before, those of
// the new one decide as it does, though they know more.
func TestReleasesSideBySideAgreeOnEachOwner(t *testing.T) {
	mixed := 0
	for seed := range uint64(4 * seeds) {
		s := told(randomSnapshot(t, seed))
		s.Config.Membership.Quorum = config.QuorumOff
		if len(s.Members) == 0 || rulesOf(s.Members) == election.Rules {
			continue
		}
		mixed++
		old := s
		old.Members = slices.Clone(s.Members)
		for i := range old.Members {
			old.Members[i].Standing, old.Members[i].Rules = Standing{}, 1 // all that it can hear
		}
		if got, want := owners(Decide(s)), owners(naiveDecide(old)); !maps.Equal(got, want) {
			t.Fatalf("seed %d: the old release elects\n%v\nthe new one\n%v", seed, want, got)
		}
		for node := range s.Members {
			seen := asSeenBy(s, s.Members[node].Name)
			if got := owners(Decide(seen)); !maps.Equal(got, owners(Decide(s))) {
				t.Fatalf("seed %d: %s elects others", seed, seen.Node)
			}
		}
	}
	if mixed < seeds/2 {
		t.Errorf("only %d clusters were of two releases", mixed)
	}
}
