package status

import (
	"slices"
	"sync"
)

// movesAtMost is how many moves are remembered.
const movesAtMost = 50

// moves remembers the last moves.
type moves struct {
	mu   sync.Mutex
	last []Move // oldest first
}

// note takes in what a pass has changed. What the first pass of an announcer
// finds was so before, and has not moved.
func (m *moves) note(before *Pass, p Pass) {
	if !before.known() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range p.Changes {
		if c.From == c.To {
			continue
		}
		m.last = append(m.last, Move{Time: p.Started, Address: c.Address, From: c.From, To: c.To, Cause: c.Cause, Services: holders(p.Verdicts, c.Address)})
	}
	m.last = slices.Clone(m.last[max(0, len(m.last)-movesAtMost):]) // thousands may have come at once
}

// newest returns the moves, newest first.
func (m *moves) newest() []Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.last)
	slices.Reverse(out)
	return out
}
