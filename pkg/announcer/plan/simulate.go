package plan

import "slices"

// Lose returns s as it would be if a node's announcer died now, its Node still
// being there. An unknown node changes nothing.
func Lose(s Snapshot, node string) Snapshot {
	i := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == node })
	if i < 0 {
		return s
	}
	s.Departed = append(slices.Clip(s.Departed), s.Members[i])
	s.Members = slices.Delete(slices.Clone(s.Members), i, i+1)
	return s
}

// Drain returns s as it would be if a node's announcer said that it drains. An
// unknown node changes nothing.
func Drain(s Snapshot, node string) Snapshot {
	i := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == node })
	if i < 0 {
		return s
	}
	s.Members = slices.Clone(s.Members)
	s.Members[i].Draining = true
	return s
}
