package l2

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ConflictCause says who claims an address of ours. Changing one is an API change.
type ConflictCause string

// The causes.
const (
	// ForeignStation: no member of ours.
	ForeignStation ConflictCause = "ForeignStation"

	// KernelAnswers: a member's link answers although its announcer does not
	// want the address, so it is the kernel: kube-proxy in IPVS mode without
	// strictARP does that.
	KernelAnswers ConflictCause = "KernelAnswers"

	// MemberAnnounces: a member's announcer takes itself for the owner, long
	// after any change of owner.
	MemberAnnounces ConflictCause = "MemberAnnounces"
)

// Conflict is a station that claims an address of ours on a link.
type Conflict struct {
	Address netip.Addr
	Link    string
	MAC     string
	Node    string // the member that the MAC belongs to, empty if it is none
	Cause   ConflictCause
	Since   time.Time
	Refused bool // the address is not announced on the link because of it
}

// Withheld is an address that is wanted on a link and not claimed there: the
// wire is asked for it, or it is left to a station that has answered.
type Withheld struct {
	Address netip.Addr
	Link    string
	MAC     string // of that station, empty while nobody has answered
	Node    string // the member that the MAC belongs to, empty if it is none
	Since   time.Time
}

// sighted judges a foreign claim to an address of ours.
func (s *Speaker) sighted(now time.Time, g sighting) {
	c := g.claim
	by := holder{mac: g.by, node: c.want.Peers[g.by.String()]}
	if c.gone {
		return
	}
	if g.announced && by.node != "" {
		c.heard = now
		c.release(g.by) // it may not have been known for a member when it was heard
		c.repeat(now)
	}
	if c.want.Yield {
		return
	}
	if c.asking && c.heeds(by) {
		s.leave(now, c, by)
	}
	if c.detects() && (by.node == "" || c.announces()) {
		s.contest(now, c, by, g.announced)
	}
}

// leave leaves an address to a station. If that is a conflict, it is told as such.
func (s *Speaker) leave(now time.Time, c *claim, to holder) {
	isNew := c.leave(now, to)
	if isNew && (to.node != "" || !c.detects()) {
		s.log.Info("address is left to the station that answers for it",
			"address", c.address, "link", c.link.Name, "mac", to.mac, "node", to.node)
		s.kick()
	}
}

// contest notes that a station has an address that is ours, or should be.
func (s *Speaker) contest(now time.Time, c *claim, by holder, announced bool) {
	c.link.responder(c.address).stats.foreign.Add(1)
	conflict, isNew := c.rivals.hear(now, by, announced, c.taken)
	s.contested[c] = struct{}{}
	s.expireAt = earliest(s.expireAt, now.Add(c.quiet()))
	if !conflict {
		return
	}
	if isNew {
		s.log.Warn("address conflict", "address", c.address, "link", c.link.Name,
			"mac", by.mac, "node", by.node, "cause", c.rivals[by.mac].cause, "refused", c.left == by)
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
	if len(c.rivals) == 0 && c.left != (holder{}) && !c.want.Ask {
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
					Cause: v.cause, Since: v.since, Refused: c.left.mac == by,
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int {
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.Link, b.Link), strings.Compare(a.MAC, b.MAC))
	})
	return out
}

// withheld is Withheld, in the loop.
func (s *Speaker) withheld() []Withheld {
	var out []Withheld
	for _, l := range s.links {
		for _, r := range l.responders() {
			for _, c := range r.claims {
				if c.withheld() {
					out = append(out, c.whyWithheld())
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Withheld) int {
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.Link, b.Link))
	})
	return out
}

func (c *claim) whyWithheld() Withheld {
	w := Withheld{Address: c.address, Link: c.link.Name, Since: c.since}
	if c.left != (holder{}) {
		w.MAC, w.Node = c.left.mac.String(), c.left.node
	}
	return w
}
