package membership

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// publish takes over this announcer's own state. It reports whether it changed.
func (v *view) publish(s State) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.self
	next.passive, next.draining = s.Passive, s.Draining
	next.settling, next.stale, next.noAPI = s.Settling, s.Stale, s.NoAPI
	next.established, next.config, next.unfit = s.Established, s.Config, string(s.Unfit)
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

// accompanied tells whether there are other members, or were until they were lost.
func (v *view) accompanied() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.live) > 0 {
		return true
	}
	for _, d := range v.gone {
		if !d.left {
			return true
		}
	}
	return false
}

// calm tells whether nobody has come for a while, so that all are known who
// are there.
func (v *view) calm(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return now.Sub(v.lastJoin) >= calmAfter
}

// nameAt returns the member at an address, if there is one.
func (v *view) nameAt(address netip.Addr) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, p := range v.live {
		if a, ok := netip.AddrFromSlice(p.node.Addr); ok && a.Unmap() == address {
			return name
		}
	}
	return ""
}

// hold says which gossip keys this announcer holds. It reports whether that
// has changed.
func (v *view) hold(keys string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.self.keys == keys {
		return false
	}
	v.self.keys = keys
	v.self.seq++
	return true
}

// holdings returns what the other members say which keys they hold.
func (v *view) holdings() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]string, 0, len(v.live))
	for _, p := range v.live {
		if !p.leaving {
			out = append(out, p.keys)
		}
	}
	return out
}
