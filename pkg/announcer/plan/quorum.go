package plan

// Minority tells whether this node sees half of the announcers or fewer. Those
// that it sees are the live members; those that it misses have departed
// without having said so, while their Node is Ready: it may be the gossip alone
// that does not reach them. An announcer that has never met another misses one on every Ready Node that
// could have one. Half is too few, because the other half thinks the same.
func (s Snapshot) Minority() bool {
	seen := len(s.Members)
	missing := s.missing()
	return missing > 0 && seen <= missing
}

// missing counts the announcers that may well live unseen.
func (s Snapshot) missing() int {
	away := map[string]bool{}
	for i := range s.Departed {
		if !s.Departed[i].Draining {
			away[s.Departed[i].Name] = true
		}
	}
	alone := len(s.Members) <= 1 && len(s.Departed) == 0
	missing := 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		could := away[n.Name] || alone && n.Name != s.Node && n.Labels[osLabel] != "windows"
		if could && n.Ready {
			missing++
		}
	}
	return missing
}
