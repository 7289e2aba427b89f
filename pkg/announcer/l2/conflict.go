package l2

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Conflict is a station that claims an address of ours on a link.
type Conflict struct {
	Address netip.Addr
	Link    string
	MAC     string

	// Node is the member that the MAC belongs to, empty if it is none. Its
	// announcer does not want the address, so it is its kernel that answers:
	// kube-proxy in IPVS mode without strictARP does that.
	Node string

	Since   time.Time
	Refused bool // the address is not announced on the link because of it
}

// sighted judges a foreign claim to an address of ours.
func (s *Speaker) sighted(now time.Time, g sighting) {
	c := g.claim
	node := c.want.Peers[g.by.String()]
	if g.announced && node != "" {
		c.heard = now
	}
	if c.gone || c.want.Yield || !c.detects() {
		return
	}
	c.link.responder(c.address).stats.foreign.Add(1)
	conflict, isNew := c.rivals.hear(now, g.by, node, c.taken)
	s.contested[c] = struct{}{}
	s.expireAt = earliest(s.expireAt, now.Add(c.quiet()))
	if !conflict {
		return
	}
	if c.asking && node == "" {
		c.refuse(now)
	}
	if isNew {
		s.log.Warn("address conflict", "address", c.address, "link", c.link.Name,
			"mac", g.by, "node", node, "refused", c.refused)
		s.kick()
	}
	s.defend(now, c)
}

// defend announces an address that is disputed, once in a while.
func (s *Speaker) defend(now time.Time, c *claim) {
	l := c.link
	if !c.announces() || now.Sub(c.defended) < defence || !l.limiter.AllowN(now, 1) {
		return
	}
	c.defended = now
	if err := l.send(c, request); err != nil {
		l.errors++
	}
}

// forget ends the conflicts whose other side has been quiet, and returns when
// to look again, zero for never.
func (s *Speaker) forget(now time.Time) time.Time {
	if s.expireAt.IsZero() || now.Before(s.expireAt) {
		return s.expireAt
	}
	s.expireAt = time.Time{}
	for c := range s.contested {
		if !c.gone && c.detects() {
			s.forgetRivals(now, c)
		} else {
			clear(c.rivals)
		}
		if len(c.rivals) == 0 {
			delete(s.contested, c)
			continue
		}
		s.expireAt = earliest(s.expireAt, c.rivals.earliest().Add(c.quiet()))
	}
	return s.expireAt
}

// forgetRivals ends the conflicts about one address. One that was refused is
// asked for again when nobody is left.
func (s *Speaker) forgetRivals(now time.Time, c *claim) {
	for _, by := range c.rivals.forget(now, c.quiet()) {
		s.log.Info("address conflict is over", "address", c.address, "link", c.link.Name, "mac", by)
		s.kick()
	}
	if len(c.rivals) == 0 && c.refused {
		c.ask(now)
	}
}

// quiet is for how long a rival must not be heard to be forgotten: two of our
// probes must have stayed unanswered.
func (c *claim) quiet() time.Duration { return 2*c.refreshAfter() + time.Second }

// conflicts is Conflicts, in the loop.
func (s *Speaker) conflicts() []Conflict {
	var out []Conflict
	for c := range s.contested {
		if c.gone || !c.detects() {
			continue
		}
		for by, v := range c.rivals {
			if !v.since.IsZero() {
				out = append(out, Conflict{
					Address: c.address, Link: c.link.Name, MAC: by.String(), Node: v.node,
					Since: v.since, Refused: c.refused,
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int {
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.Link, b.Link), strings.Compare(a.MAC, b.MAC))
	})
	return out
}
