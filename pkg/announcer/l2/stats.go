package l2

import "sync/atomic"

// Stats counts since New, but for Links, which describes what is there.
type Stats struct {
	ARP, NDP FamilyStats
	Links    []LinkStats // the wanted ones, sorted by name
}

// FamilyStats counts the frames of one protocol.
type FamilyStats struct {
	Requests   uint64 // for an address that is answered for
	Replies    uint64 // to them
	Unsent     uint64 // frames that the kernel would not take
	Gratuitous uint64 // announcements
	Probes     uint64
	Foreign    uint64           // frames by which another station claimed an address of ours
	Dropped    map[Cause]uint64 // frames that passed the filter for nothing, by cause
}

// LinkStats is the state of one link.
type LinkStats struct {
	Name     string
	Open     bool   // every socket that it needs is open
	Errors   uint64 // sockets that failed to open or read, frames that could not be sent
	Overflow uint64 // frames that the kernel threw away because they were not read in time
	Answers  int    // addresses that are answered for
	Withheld int    // addresses that are asked for on the wire, or left to who has answered

	// Broadcasts are the ARP frames to all that came from others since the link
	// is answered on by ARP, Filtered those of them that woke no reader: the
	// kernel saw that they are about no address near ours. Of NDP there is no
	// such figure: what a link has not joined a group for does not arrive.
	Broadcasts, Filtered uint64

	// Deaf: no broadcast came for half an hour, so requests may not arrive either.
	Deaf bool
}

// familyStats is what FamilyStats is made of.
type familyStats struct {
	requests, replies, unsent   atomic.Uint64
	gratuitous, probes, foreign atomic.Uint64
	dropped                     [causes]atomic.Uint64
}

func (s *familyStats) read() FamilyStats {
	out := FamilyStats{
		Requests:   s.requests.Load(),
		Replies:    s.replies.Load(),
		Unsent:     s.unsent.Load(),
		Gratuitous: s.gratuitous.Load(),
		Probes:     s.probes.Load(),
		Foreign:    s.foreign.Load(),
		Dropped:    map[Cause]uint64{},
	}
	for c := accepted + 1; c < causes; c++ {
		out.Dropped[c] = s.dropped[c].Load()
	}
	return out
}
