package ipam

import "slices"

// Waiter is a Service that does not have all that it asks for.
type Waiter struct {
	Key      Key
	Decision Decision
	Pools    []string // that would serve it if they had room for it, sorted
}

// Waiters returns the Services that wait, oldest first.
func (a *Allocator) Waiters() []Waiter {
	var out []Waiter
	for _, s := range a.waiting[blocker{kind: onPools}] {
		w := Waiter{Key: s.key, Decision: s.wait.answer}
		for _, b := range s.wait.blockers {
			name := b.pool
			if at := a.at(b.addr); b.kind == onAddress && at != nil {
				name = at.pool.Name
			}
			if name != "" && !slices.Contains(w.Pools, name) {
				w.Pools = append(w.Pools, name)
			}
		}
		slices.Sort(w.Pools)
		out = append(out, w)
	}
	return out
}
