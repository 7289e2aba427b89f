package ipam

import (
	"net/netip"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// answer puts a decision into words.
func (a *Allocator) answer(s *service, seats []seat) Decision {
	d := Decision{Addresses: slices.Clone(s.held), Reason: a.reason(s, seats), Reassigned: s.reassigned && !slices.ContainsFunc(s.leaving, a.isBarred)}
	confirmed := make([]config.Confirmation, 0, len(s.held))
	for _, addr := range s.held {
		confirmed = append(confirmed, a.describe(s, addr))
	}
	var remarks []string
	if s.require && slices.ContainsFunc(seats, seat.empty) {
		remarks = append(remarks, "both families are required")
	}
	for _, t := range seats {
		if t.refused == nil {
			continue
		}
		if d.Unmet == "" && d.Reason.OK() {
			d.Unmet = t.refused.reason
		}
		if text := t.excuse(); !slices.Contains(remarks, text) {
			remarks = append(remarks, text)
		}
	}
	d.Message = config.Verdict(confirmed, remarks...)
	return d
}

// excuse says why a seat has not what it should have.
func (s seat) excuse() string {
	switch {
	case len(s.kept) == 0:
		return s.refused.text
	case s.asks:
		return "the request cannot be met: " + s.refused.text
	}
	return "nothing to replace it: " + s.refused.text
}

func (a *Allocator) reason(s *service, seats []seat) Reason {
	out := Allocated
	for _, t := range seats {
		if t.empty() && len(s.held) > 0 {
			out = PartialFamilies
		}
		if t.refused != nil && len(s.held) == 0 {
			return t.refused.reason
		}
	}
	for _, addr := range s.held {
		if a.isBarred(addr) {
			return NodeAddress
		}
		if a.holdings[addr].at == nil {
			out = AddressOutsidePools
		}
	}
	return out
}

// describe says where an address that a Service holds is from, and what is
// wrong with it.
func (a *Allocator) describe(s *service, addr netip.Addr) config.Confirmation {
	c := config.Confirmation{Address: addr, Pool: a.origins[addr]}
	if at := a.holdings[addr].at; at != nil {
		c.Pool = at.pool.Name
	}
	if wrong, _ := a.complaint(s, addr); wrong != "" {
		c.Note = "kept though " + wrong
	}
	return c
}
