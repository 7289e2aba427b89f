package frrcluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrk8s"
)

const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// attempts spaces the passes after one that went wrong, however often something
// is heard meanwhile: what frr-k8s tells of sessions is no reason to try again.
type attempts struct {
	failures int           // in a row, with one thing asked
	last     time.Time     // when the last one was
	pause    time.Duration // after it
	asked    string
}

// note takes how a pass went in which something was asked.
func (a *attempts) note(now time.Time, asked func() string, err error) {
	if err == nil {
		*a = attempts{}
		return
	}
	if this := asked(); this != a.asked {
		a.failures, a.asked = 0, this
	}
	a.pause = bgp.Jitter(min(firstPause<<min(a.failures, 6), longestPause))
	a.failures++
	a.last = now
}

// next returns when to try again; zero: at any time. What is asked may be
// another thing now, and be taken: that is tried sooner.
func (a *attempts) next(asked func() string) time.Time {
	switch {
	case a.failures == 0:
		return time.Time{}
	case a.asked != asked():
		return a.last.Add(min(a.pause, firstPause))
	}
	return a.last.Add(a.pause)
}

// held tells whether it is too early for another attempt.
func (a *attempts) held(now time.Time, asked func() string) bool { return now.Before(a.next(asked)) }

// asked is what a pass asks for, and whether frr-k8s can be asked: a text to
// compare.
func (s *Speaker) asked() string {
	text, err := json.Marshal(frrk8s.Render(frrk8s.Input{Node: s.self, Namespace: s.o.Namespace, Peerings: s.lineup()}))
	return fmt.Sprintf("%s %v %v", text, err, s.configurations.state().err)
}

const (
	// mostRepairs is how often in a time an object is repaired that others
	// change. After that they have it for a while: two that do not agree would
	// else write as fast as they can.
	mostRepairs = 5
	repairsIn   = time.Minute
)

// repairs are the last ones.
type repairs []time.Time

// enough tells whether one more would be too many.
func (r *repairs) enough(now time.Time) bool {
	*r = slices.DeleteFunc(*r, func(at time.Time) bool { return now.Sub(at) >= repairsIn })
	return len(*r) >= mostRepairs
}
