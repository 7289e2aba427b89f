package membership

import (
	"bytes"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// publish takes over this announcer's own state. It reports whether it changed.
func (v *view) publish(s State) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.self
	next.passive, next.draining = s.Passive, s.Draining
	if t, ok := v.newLinks(s.Links); ok {
		v.own = t
		next.linksSeq = t.seq
	}
	if next == v.self {
		return false
	}
	next.seq++
	v.self = next
	return true
}

// newLinks returns the table of the links if it differs from what was told.
func (v *view) newLinks(links []plan.Link) (table, bool) {
	if links == nil {
		return table{}, false
	}
	same := newTable(v.name, v.self.life, v.own.seq, links)
	if v.own.seq > 0 && bytes.Equal(same.encoded, v.own.encoded) {
		return table{}, false
	}
	return newTable(v.name, v.self.life, v.own.seq+1, links), true
}

// leave marks this announcer as going.
func (v *view) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.self.leaving = true
	v.self.seq++
}

// metadata returns what this announcer says of itself.
func (v *view) metadata() metadata {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.self
}

// table returns this announcer's own table; its seq is 0 if none was told yet.
func (v *view) table() table {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.own
}

// wasGone counts a return of this announcer that another member has noticed.
// It reports whether that is news.
func (v *view) wasGone(life uint64, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if life != v.self.life || now.Sub(v.lastBack) < ownReturnEvery {
		return false
	}
	v.lastBack = now
	v.returns++
	return true
}
