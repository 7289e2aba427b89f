package decide

import (
	"fmt"
	"time"
)

// A Suspicion is what has been seen of a Node whose machine seems to be gone.
// The zero Suspicion is none.
type Suspicion struct {
	Since time.Time // the first time
	Times int       // how often
	Epoch int       // of the source that said it
}

// Again adds a sighting. Another epoch means that the source was out of reach
// in between: what was seen before does not count.
func (s Suspicion) Again(now time.Time, epoch int) Suspicion {
	if s.Times == 0 || s.Epoch != epoch {
		s = Suspicion{Since: now, Epoch: epoch}
	}
	s.Times++
	return s
}

// NodeFacts is what counts of a Node when it is to be deleted.
type NodeFacts struct {
	UID          string
	Created      time.Time
	Initialized  bool
	Ready        bool
	ReadyChanged time.Time // when it became Ready, or ceased to be; zero: never known
	ControlPlane bool
}

// Confirmed tells whether a suspicion has held for so long, and was seen so
// often, that the Node may be deleted; why says what is missing if not.
func (s Suspicion) Confirmed(n NodeFacts, now time.Time, after time.Duration, sightings int) (ok bool, why string) {
	changed := n.ReadyChanged
	if changed.IsZero() {
		changed = n.Created
	}
	switch {
	case n.Ready:
		return false, "the Node is Ready"
	case !n.Initialized:
		return false, "the Node was never initialized"
	case now.Sub(n.Created) < after:
		return false, fmt.Sprintf("the Node is younger than %s", after)
	case now.Sub(changed) < after:
		return false, fmt.Sprintf("the Node has not been NotReady for %s", after)
	case now.Sub(s.Since) < after:
		return false, fmt.Sprintf("the machine has not been gone for %s", after)
	case s.Times < sightings:
		return false, fmt.Sprintf("the machine was seen to be gone %d times, not yet %d", s.Times, sightings)
	}
	return true, ""
}

// Limits of a Breaker: in a window, a tenth of the Nodes and at least one.
const (
	window   = 10 * time.Minute
	fraction = 10
)

// A Breaker stops mass deletions. The zero Breaker has allowed nothing yet. It
// is not safe for concurrent use.
type Breaker struct {
	allowed map[string]time.Time // by UID of the Node
}

// Allow tells whether one more Node may be deleted, given all that there are;
// why says what forbids it. A Node that was allowed is not counted again.
func (b *Breaker) Allow(n NodeFacts, all []NodeFacts, now time.Time) (ok bool, why string) {
	for uid, at := range b.allowed {
		if now.Sub(at) >= window {
			delete(b.allowed, uid)
		}
	}
	if _, again := b.allowed[n.UID]; again {
		return true, ""
	}
	total := len(all)
	for uid := range b.allowed {
		if !contains(all, uid) {
			total++
		}
	}
	if limit := max(1, total/fraction); len(b.allowed) >= limit {
		return false, fmt.Sprintf("%d of %d Nodes in %s is the limit", limit, total, window)
	}
	if why := quorum(n, all); why != "" {
		return false, why
	}
	if b.allowed == nil {
		b.allowed = map[string]time.Time{}
	}
	b.allowed[n.UID] = now
	return true, ""
}

func contains(all []NodeFacts, uid string) bool {
	for _, n := range all {
		if n.UID == uid {
			return true
		}
	}
	return false
}

// quorum says why a Node of the control plane must not be deleted: so few of
// the others work that it may be needed to bring the cluster back.
func quorum(n NodeFacts, all []NodeFacts) string {
	if !n.ControlPlane {
		return ""
	}
	members, ready := 0, 0
	for _, other := range all {
		if !other.ControlPlane {
			continue
		}
		members++
		if other.Ready && other.UID != n.UID {
			ready++
		}
	}
	if 2*ready > members {
		return ""
	}
	return fmt.Sprintf("of %d Nodes of the control plane only %d others are Ready", members, ready)
}
