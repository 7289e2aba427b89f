package l2

import (
	"maps"
	"time"
)

const (
	// excuse is how long around a change of owner a member may still, or
	// already, answer for an address.
	excuse = 5 * time.Second

	// defence bounds how often we insist (RFC 5227, 2.4c).
	defence = 10 * time.Second

	// maxRivals bounds what forged frames can make us remember of an address.
	maxRivals = 16
)

// rivals are the stations that were heard to have an address of ours on one link.
type rivals map[mac]*rival

type rival struct {
	first time.Time // heard for the first time
	last  time.Time
	since time.Time // when it became a conflict, zero while it is excused
	node  string    // the member that it belongs to, if any
	cause ConflictCause
}

// hear notes that by has an address that became ours at taken; announced says
// that it told everybody. It says whether that is a conflict, and whether a new
// one.
func (r rivals) hear(now time.Time, by holder, announced bool, taken time.Time) (conflict, isNew bool) {
	v := r[by.mac]
	if v == nil {
		if len(r) == maxRivals {
			return by.node == "", false
		}
		v = &rival{first: now}
		r[by.mac] = v
	}
	v.last, v.node, v.cause = now, by.node, causeOf(v, by, announced)
	if by.node != "" && (now.Before(v.first.Add(excuse)) || now.Before(taken.Add(excuse))) {
		return false, false
	}
	isNew = v.since.IsZero()
	if isNew {
		v.since = now
	}
	return true, isNew
}

// causeOf says what makes a rival one. A kernel answers when it is asked, an
// announcer also speaks up by itself.
func causeOf(v *rival, by holder, announced bool) ConflictCause {
	switch {
	case by.node == "":
		return ForeignStation
	case announced || v.cause == MemberAnnounces:
		return MemberAnnounces
	}
	return KernelAnswers
}

// forget drops the rivals that have not been heard for quiet, and returns
// those of them that were conflicts.
func (r rivals) forget(now time.Time, quiet time.Duration) []mac {
	var ended []mac
	maps.DeleteFunc(r, func(by mac, v *rival) bool {
		gone := now.Sub(v.last) >= quiet
		if gone && !v.since.IsZero() {
			ended = append(ended, by)
		}
		return gone
	})
	return ended
}

// earliest returns when the first of them was last heard.
func (r rivals) earliest() time.Time {
	var out time.Time
	for _, v := range r {
		if out.IsZero() || v.last.Before(out) {
			out = v.last
		}
	}
	return out
}
