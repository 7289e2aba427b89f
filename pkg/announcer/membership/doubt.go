package membership

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// memberlist believes a message of a death at once, also if it is old news that
// a member brings along which was cut off itself. The one who is spoken of refutes
// that in a moment. Until then its addresses would move, and its life would have
// ended. So it remains a member for that moment if it has just been heard.

// doubt is what is known of a member that is said to be dead and was heard a
// moment ago.
type doubt struct {
	until    time.Time // it is lost then
	answered bool      // it has not only been heard but has heard us too
}

// freshness returns for how long a packet proves that its sender cannot have
// been taken for dead for good reason: a little less than the silence that takes,
// as packets are noted late on a busy machine.
func freshness(c *memberlist.Config) time.Duration {
	return c.ProbeInterval * time.Duration(1+c.SuspicionMult) * 3 / 4
}

// answered notes that a member has answered a ping.
func (v *view) answered(name string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p, ok := v.live[name]; ok {
		p.answered = at
		v.live[name] = p
	}
}

// doubts tells whether a member that is said to be dead remains one for a
// moment: until what was last heard of it, so long ago, is old.
func (v *view) doubts(name string, silence time.Duration, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.live[name]
	if !ok || p.leaving || silence >= v.fresh {
		return false
	}
	p.doubt = &doubt{now.Add(v.fresh - silence), now.Sub(p.answered) < v.fresh}
	v.live[name] = p
	return true
}

// trusts ends the doubt in a member that has shown that it lives. It reports
// whether there was one.
func (v *view) trusts(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.live[name]
	if !ok || p.doubt == nil {
		return false
	}
	p.doubt = nil
	v.live[name] = p
	return true
}

// lapsed removes the members that have been doubted for long enough, and returns
// them. Those that show themselves at this very moment stay, or come back.
func (v *view) lapsed(now time.Time, cutOff bool) []memberlist.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []memberlist.Node
	for name, p := range v.live {
		if p.doubt != nil && !now.Before(p.doubt.until) {
			out = append(out, p.node)
			v.lose(name, p, now, cutOff)
		}
	}
	return out
}
