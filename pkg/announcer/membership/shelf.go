package membership

import (
	"bytes"
	"time"
)

// forgetAfter is how long the table of somebody who is not live is kept. It
// may arrive before the news that its member lives.
const forgetAfter = 30 * time.Second

// shelf holds the newest table of each member, within bounds.
type shelf struct {
	tables map[string]table
	bytes  int // encoded, of all tables
}

// put takes in a table unless a better one is there. life is that of the
// member if it is live, else 0: the table of the live process is never
// replaced by another's.
func (s *shelf) put(t table, life uint64) bool {
	old, ok := s.tables[t.name]
	switch {
	case ok && old.life == t.life && old.seq >= t.seq:
		return false
	case ok && old.life != t.life && old.life == life:
		return false
	case !ok && len(s.tables) >= maxMembers:
		return false
	case s.bytes-len(old.encoded)+len(t.encoded) > maxState:
		return false
	}
	t.encoded = bytes.Clone(t.encoded) // it is part of a packet, or of a whole exchange
	s.bytes += len(t.encoded) - len(old.encoded)
	s.tables[t.name] = t
	return true
}

// get returns the table that a process has told, if it is there.
func (s *shelf) get(name string, life uint64) (table, bool) {
	t, ok := s.tables[name]
	return t, ok && t.life == life
}

func (s *shelf) drop(name string) {
	s.bytes -= len(s.tables[name].encoded)
	delete(s.tables, name)
}

// sweep drops what is old and not of a live member.
func (s *shelf) sweep(now time.Time, live func(name string) bool) {
	for name, t := range s.tables {
		if !live(name) && now.Sub(t.heard) > forgetAfter {
			s.drop(name)
		}
	}
}
