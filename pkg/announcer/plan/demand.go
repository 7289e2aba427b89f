package plan

import (
	"net/netip"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// demand is what one Service on an address asks of a node that is to
// announce it.
type demand struct {
	holder         int   // its place among the holders of the address
	advertisements []int // that match it
	reach          *reach
	local          bool
	eligible       []int // policy Local: the nodes whose endpoints count
	serving        []int // policy Local: the nodes with any endpoint that serves
}

// demands returns what the Services on an address ask for, oldest first, and
// fills in the reason for each of them. They are valid until the next call.
func (v *view) demands(address netip.Addr, holders []holder, reasons []Holder) []demand {
	out := v.room[:0]
	pool, _ := v.config.PoolOf(address)
	ban := v.ban(address)
	for i, h := range holders {
		matching := v.matching(h.selected, pool.Name)
		reason := ban
		if reason == "" {
			reason = h.objection(matching)
		}
		reasons[i] = Holder{Service: h.key, Reason: reason}
		if reason == Honoured {
			out = append(out, demand{i, matching, v.reach(address, matching), h.Local, h.eligible, h.serving})
		}
	}
	v.room = out
	return out
}

// ban says why an address is announced for nobody, whatever a status says.
func (v *view) ban(address netip.Addr) Reason {
	switch {
	case !address.IsValid() || address.Zone() != "" || config.SpecialPurpose(address) != "":
		return SpecialPurpose
	case v.taken[address]:
		return NodeAddress
	}
	return ""
}

// objection says why the Service has no say in the election, Honoured if it has.
func (h holder) objection(matching []int) Reason {
	switch {
	case h.Deleting:
		return Deleting
	case !h.Allocated:
		return NotAllocated
	case !h.usable:
		return NoEndpoints
	case len(matching) == 0:
		return NoAdvertisement
	}
	return Honoured
}
