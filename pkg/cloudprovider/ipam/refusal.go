package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// refusal is why a Service does not get an address.
type refusal struct {
	reason   Reason
	text     string
	blockers []blocker // what has to lift before the answer can be another one, besides the pools
}

func refuse(reason Reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, text: fmt.Sprintf(format, args...)}
}

// on adds what the refusal depends on.
func (r *refusal) on(b blocker) *refusal {
	r.blockers = append(r.blockers, b)
	return r
}

// about says which address a refusal is about.
func (r *refusal) about(addr netip.Addr) *refusal {
	r.text = fmt.Sprintf("%s is not given out: %s", addr, r.text)
	return r
}

// graver lists the reasons that several pools can have, the most telling
// first: a Service waits for the one that came closest to serving it.
var graver = [...]Reason{PoolExhausted, QuotaExceeded, FamilyUnavailable, NamespaceNotAllowed, NoPool}

// named is how many pools a message names.
const named = 5

// noneOf sums up why no pool gave an address of a family.
func noneOf(f Family, why []*refusal) *refusal {
	if len(why) == 0 {
		return refuse(NoPool, "no %s address: there are no pools", f)
	}
	sum := &refusal{}
	var texts []string
	for _, reason := range graver {
		for _, no := range why {
			if no.reason != reason {
				continue
			}
			sum.reason = cmp.Or(sum.reason, reason)
			sum.blockers = append(sum.blockers, no.blockers...)
			texts = append(texts, no.text)
		}
	}
	if more := len(texts) - named; more > 0 {
		texts = append(texts[:named], fmt.Sprintf("and %d more", more))
	}
	sum.text = fmt.Sprintf("no %s address: %s", f, strings.Join(texts, ", "))
	return sum
}
