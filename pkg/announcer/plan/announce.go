package plan

import "github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"

// Announcements returns what the speakers of s.Node are to do, sorted by
// address: the addresses it owns, and as Yield those that another node owns
// while this one could serve them, so that a speaker which answers for one
// goes on until the owner has announced it. For all others a speaker is to
// fall silent at once: they have no entry. First is for the caller to fill in,
// who knows what was before.
func Announcements(verdicts []Verdict, s Snapshot) []Announcement {
	var out []Announcement
	peers, ask := peerMACs(s), s.Minority() || s.Isolated
	for _, v := range verdicts {
		if v.Owner == "" || len(v.Links) == 0 {
			continue
		}
		out = append(out, Announcement{
			Address: v.Address,
			Links:   v.Links,
			Yield:   v.Owner != s.Node,
			Returns: s.Returns,
			Ask:     ask && v.Owner == s.Node,
			Peers:   peers,
			Layer2:  v.Layer2,
		})
	}
	return out
}

// peerMACs returns the MACs of the other members' links, each with its Node. A
// member that has departed may not know it yet, and go on answering.
func peerMACs(s Snapshot) map[string]string {
	out := map[string]string{}
	for _, members := range [][]Member{s.Departed, s.Members} {
		for _, m := range members {
			for _, l := range m.Links {
				if m.Name != s.Node && l.MAC != "" {
					out[l.MAC] = m.Name
				}
			}
		}
	}
	return out
}

// Reporter returns the one node that says in public what becomes of an
// address: its owner, or without one the live announcer that ranks first for
// the address among those that are neither passive nor about to leave, or, if
// all of them leave, not passive. It is empty if there is none.
func Reporter(v Verdict, members []Member) string {
	if v.Owner != "" {
		return v.Owner
	}
	var staying, live []string
	for i := range members {
		switch m := &members[i]; {
		case m.Passive:
		case m.Draining:
			live = append(live, m.Name)
		default:
			staying = append(staying, m.Name)
		}
	}
	if len(staying) > 0 {
		live = staying
	}
	first, _ := election.Owner(live, v.Address)
	return first
}
