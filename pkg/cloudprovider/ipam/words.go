package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// answer puts a decision into words.
func (a *Allocator) answer(s *service, seats []seat) Decision {
	d := Decision{Addresses: slices.Clone(s.held), Reason: a.reason(s, seats)}
	var texts []string
	for _, addr := range s.held {
		texts = append(texts, a.describe(s, addr))
	}
	if len(s.held) == 0 && s.require {
		texts = append(texts, "both families are required")
	}
	for _, t := range seats {
		if t.refused == nil {
			continue
		}
		if d.Unmet == "" && d.Reason.OK() {
			d.Unmet = t.refused.reason
		}
		if text := t.excuse(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	d.Message = strings.Join(texts, "; ")
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
		if len(t.addresses()) == 0 && len(s.held) > 0 {
			out = PartialFamilies
		}
		if t.refused != nil && len(s.held) == 0 {
			return t.refused.reason
		}
	}
	for _, addr := range s.held {
		if _, barred := a.barred[addr]; barred {
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
func (a *Allocator) describe(s *service, addr netip.Addr) string {
	if b, barred := a.barred[addr]; barred {
		return fmt.Sprintf("%s is %s", addr, b.text)
	}
	out := addr.String()
	if at := a.holdings[addr].at; at != nil {
		out = fmt.Sprintf("%s from pool %q", addr, at.pool.Name)
	}
	if wrong, _ := a.complaint(s, addr); wrong != "" {
		out += ", kept though " + wrong
	}
	return out
}
